package bench

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/ledger/writer"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/prepare"
	"github.com/kata-vfio/kata-vfio/pkg/prepare/effects"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
)

// The measure of a claim's own cost: what any program would need at least for the files of a claim. It is a plain loop of system calls
// that reads each of the node's files that the claim looks at, once, and makes the claim's writes and fsyncs of records, events
// and CDI spec.

// bareClaim are the accesses of one claim, to repeat. Claims record it from several goroutines.
type bareClaim struct {
	files *bareFiles

	mu     sync.Mutex // guards all below
	looked map[bareLook]bool
	looks  []bareLook
	writes []func(*bareFiles) error
}

// bareLook is an access to one of the node's files.
type bareLook struct {
	op   sysfs.Op
	path string
}

// recordBare records a claim with a device. An earlier claim has read what later ones know.
func recordBare(tb testing.TB, k *sysfstest.Kernel, kind string, a pci.Address) *bareClaim {
	tb.Helper()
	c := &bareClaim{files: newBareFiles(tb, k.Root()), looked: map[bareLook]bool{}}
	p := preparerThrough(tb, k, openNode(tb, k).WithTap(c.look), nil, func(config *prepare.Config) {
		parts := &config.Parts
		parts.Journal, parts.Specs = recordedJournal{parts.Journal, c}, recordedSpecs{parts.Specs, c}
		parts.Ledger = recordedLedger{newLedger(tb, c), c}
	})
	must(tb, aClaim(tb.Context(), p, kind, a))
	clear(c.looked)
	c.looks, c.writes = nil, nil
	must(tb, aClaim(tb.Context(), p, kind, a))
	return c
}

func (c *bareClaim) look(a sysfs.Access) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at := (bareLook{a.Op, a.Path}); !c.looked[at] {
		c.looked[at] = true
		c.looks = append(c.looks, at)
	}
}

func (c *bareClaim) write(w func(*bareFiles) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writes = append(c.writes, w)
}

// repeat does what the claim needed.
func (c *bareClaim) repeat() error {
	for _, l := range c.looks {
		if err := c.files.look(l); err != nil {
			return err
		}
	}
	for _, w := range c.writes {
		if err := w(c.files); err != nil {
			return err
		}
	}
	return nil
}

// recordedJournal records the writes of records.
type recordedJournal struct {
	effects.Journal
	to *bareClaim
}

func (j recordedJournal) Save(r *journal.Record) error {
	err := j.replace(r, j.Journal.Save)
	j.to.write((*bareFiles).syncRecords)
	return err
}

func (j recordedJournal) Replace(r *journal.Record) error { return j.replace(r, j.Journal.Replace) }

func (j recordedJournal) replace(r *journal.Record, put func(*journal.Record) error) error {
	data, err := journal.Encode(r)
	if err != nil {
		return err
	}
	j.to.write(func(f *bareFiles) error { return f.replace("record", data) })
	return put(r)
}

func (j recordedJournal) Delete(id string) error {
	j.to.write(func(f *bareFiles) error { return f.remove("record") })
	j.to.write((*bareFiles).syncRecords)
	return j.Journal.Delete(id)
}

// recordedSpecs records the writes of CDI specs.
type recordedSpecs struct {
	effects.Specs
	to *bareClaim
}

func (s recordedSpecs) Write(uid string, spec *specs.Spec) error {
	data, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	s.to.write(func(f *bareFiles) error { return f.replace("spec", data) })
	return s.Specs.Write(uid, spec)
}

func (s recordedSpecs) Remove(uid string) error {
	s.to.write(func(f *bareFiles) error { return f.remove("spec") })
	return s.Specs.Remove(uid)
}

// recordedLedger records the writes of events. [bareClaim.ObserveLedger] has their sizes.
type recordedLedger struct {
	effects.Ledger
	to *bareClaim
}

func (l recordedLedger) Append(ctx context.Context, events ...ledger.Event) (string, error) {
	signed, err := l.Ledger.Append(ctx, events...)
	l.to.write((*bareFiles).syncLedger)
	return signed, err
}

func (l recordedLedger) Sync(ctx context.Context) error {
	l.to.write((*bareFiles).syncLedger)
	return l.Ledger.Sync(ctx)
}

// ObserveLedger implements [writer.Metrics].
func (c *bareClaim) ObserveLedger(w writer.Write) {
	c.write(func(f *bareFiles) error { return f.extend(make([]byte, w.Bytes)) })
}

// bareFiles are the node's files, and those that stand for the plugin's.
type bareFiles struct {
	root, records, segment int // descriptors
	dir                    string
	unsynced               bool // the segment is
	buffer                 [8192]byte
}

func newBareFiles(tb testing.TB, root string) *bareFiles {
	tb.Helper()
	f := &bareFiles{dir: tb.TempDir()}
	for _, file := range []struct {
		descriptor *int
		path       string
		flags      int
	}{
		{&f.root, root, unix.O_PATH | unix.O_DIRECTORY},
		{&f.records, f.dir, unix.O_RDONLY | unix.O_DIRECTORY},
		{&f.segment, filepath.Join(f.dir, "segment"), unix.O_WRONLY | unix.O_APPEND | unix.O_CREAT},
	} {
		fd, err := unix.Open(file.path, file.flags|unix.O_CLOEXEC, 0o600)
		must(tb, err)
		tb.Cleanup(func() { _ = unix.Close(fd) })
		*file.descriptor = fd
	}
	return f
}

// look repeats an access. What the claim's end has removed is absent, as much of it was before the claim.
func (f *bareFiles) look(l bareLook) error {
	var err error
	switch l.op {
	case sysfs.OpLink:
		_, err = unix.Readlinkat(f.root, l.path, f.buffer[:])
	case sysfs.OpStat:
		var st unix.Stat_t
		err = unix.Fstatat(f.root, l.path, &st, 0)
	case sysfs.OpList:
		err = f.read(l.path, unix.O_DIRECTORY, unix.ReadDirent)
	case sysfs.OpRead:
		err = f.read(l.path, 0, unix.Read)
	case sysfs.OpOpen: // of a directory, whose files are named by paths here, or of a file that is read
	}
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINVAL) { // EINVAL: no link
		return nil
	}
	return err
}

func (f *bareFiles) read(path string, flags int, read func(fd int, p []byte) (int, error)) error {
	fd, err := unix.Openat(f.root, path, unix.O_RDONLY|unix.O_CLOEXEC|flags, 0)
	if err != nil {
		return err
	}
	_, err = read(fd, f.buffer[:])
	return errors.Join(err, unix.Close(fd))
}

// replace writes a file durably as a whole.
func (f *bareFiles) replace(name string, data []byte) error {
	fd, err := unix.Openat(f.records, name+".new", unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	_, err = unix.Write(fd, data)
	return errors.Join(err, unix.Fsync(fd), unix.Close(fd), unix.Renameat(f.records, name+".new", f.records, name))
}

func (f *bareFiles) remove(name string) error {
	if err := unix.Unlinkat(f.records, name, 0); !errors.Is(err, unix.ENOENT) {
		return err
	}
	return nil
}

func (f *bareFiles) syncRecords() error { return unix.Fsync(f.records) }

func (f *bareFiles) extend(data []byte) error {
	_, err := unix.Write(f.segment, data)
	f.unsynced = true
	return err
}

// syncLedger does nothing if there is nothing to wait for.
func (f *bareFiles) syncLedger() error {
	if !f.unsynced {
		return nil
	}
	f.unsynced = false
	return unix.Fsync(f.segment)
}
