package sysfs

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// ErrLocked is the error for an attribute that can't be read now, because the kernel holds the function's device lock
// or blocks its configuration space (pci_cfg_access_lock). An unbind, a probe or a reset of the function takes long or
// hangs.
var ErrLocked = errors.New("an operation on the function hangs in the kernel and holds its device lock")

// lockWait is how long a read waits for a device lock. A probe may hold the lock for seconds. An unbind that waits
// until a process closes the function holds it until then.
const lockWait = 2 * time.Second

// lockedReads counts the reads that hang. Such a read can't be canceled, and blocks a thread until the kernel answers.
// So an attribute is not read again while a read of it hangs.
type lockedReads struct {
	wait time.Duration

	mu      sync.Mutex // guards hanging
	hanging map[lockedAttribute]int
}

// lockedAttribute is one attribute of one function. Attributes are counted separately, because configuration space has
// another lock than the device.
type lockedAttribute struct {
	address pci.Address
	name    string
}

func newLockedReads() *lockedReads {
	return &lockedReads{wait: lockWait, hanging: map[lockedAttribute]int{}}
}

// add counts n more hanging reads of a.
func (l *lockedReads) add(a lockedAttribute, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.hanging[a] += n; l.hanging[a] == 0 {
		delete(l.hanging, a)
	}
}

// note records whether the read of an attribute hangs.
func (l *lockedReads) note(a lockedAttribute, hangs bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.hanging, a)
	if hangs {
		l.hanging[a] = 1
	}
}

func (l *lockedReads) hangs(a lockedAttribute) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.hanging[a] > 0
}

// LockedText reads an attribute of the function at a, whose directory is d. It is for attributes that some kernels read
// under the device lock: driver_override, until it became an attribute of all devices (drivers/pci/pci-sysfs.c
// driver_override_show), and sriov_numvfs, in v5.5 to v6.8 (drivers/pci/iov.c sriov_numvfs_show). It returns false if
// the attribute is absent, and [ErrLocked] if the lock is unavailable.
func (d *Dir) LockedText(a pci.Address, name string) (text string, ok bool, err error) {
	return d.lockedText(lockedAttribute{a, name}, name)
}

func (d *Dir) lockedText(a lockedAttribute, name string) (text string, ok bool, err error) {
	parts, ok, err := d.locked(a, name, []span{{0, pageBytes}})
	if !ok || err != nil {
		return "", ok, err
	}
	return strings.TrimSpace(string(parts[0])), true, nil
}

// lockPoll is how often a read tries again while a driver binds or unbinds.
const lockPoll = 50 * time.Millisecond

// Detaching returns the driver that the function at a, whose directory is d, still has although the driver link is
// gone: an unbind has begun and not ended. A probe looks the same, because it makes the link last. In all other cases,
// Detaching returns an empty name. It waits for the end of the unbind or probe as long as for a device lock, but only
// once for each unbind or probe.
//
// The kernel removes the driver link first, and then waits for the driver to release the function (drivers/base/dd.c
// __device_release_driver). Until the driver has released it, the uevent attribute names the driver
// (drivers/base/core.c dev_uevent). The device lock does not show the unbind, because newer kernels print
// driver_override without the lock.
func (d *Dir) Detaching(a pci.Address) (driver string, err error) {
	attribute := lockedAttribute{a, "driver"}
	before := d.fs.locked.hangs(attribute)
	end := time.Now().Add(d.fs.locked.wait)
	for {
		driver, err = d.detaching(a)
		if driver == "" || err != nil || before || time.Now().After(end) {
			break
		}
		<-time.After(lockPoll)
	}
	d.fs.locked.note(attribute, driver != "")
	return driver, err
}

// detaching looks once.
func (d *Dir) detaching(a pci.Address) (driver string, err error) {
	if _, bound, err := d.Link("driver"); bound || err != nil {
		return "", err
	}
	text, _, err := d.LockedText(a, "uevent")
	if err != nil {
		if d.fs.copy != nil && !errors.Is(err, ErrLocked) {
			err = nil // an older copy does not have it
		}
		return "", err
	}
	for line := range strings.Lines(text) {
		if driver, ok := strings.CutPrefix(strings.TrimSpace(line), "DRIVER="); ok {
			_, bound, err := d.Link("driver") // the link may have come between the two reads
			if bound || err != nil {
				return "", err
			}
			return driver, nil
		}
	}
	return "", nil
}

// ConfigHead reads the first n bytes of configuration space of the function at a, whose directory is d, and size bytes
// at each of the offsets. Each part may be shorter, if fewer bytes are readable. During a reset of the function or of
// the bus above it, the kernel blocks reads (drivers/pci/access.c pci_wait_cfg). If that takes long, the error is
// [ErrLocked]. The data is valid until the next read from d.
func (d *Dir) ConfigHead(a pci.Address, n int, offsets []int, size int) (config []byte, parts [][]byte, ok bool, err error) {
	spans := []span{{0, n}}
	for _, at := range offsets {
		spans = append(spans, span{at, size})
	}
	parts, ok, err = d.locked(lockedAttribute{a, "config"}, "config", spans)
	if !ok || err != nil {
		return nil, nil, ok, err
	}
	return parts[0], parts[1:], true, nil
}

// span is a part of a file.
type span struct{ at, size int }

// locked reads parts of an attribute. All of them must fit into the directory's buffer.
func (d *Dir) locked(attribute lockedAttribute, name string, spans []span) (parts [][]byte, ok bool, err error) {
	if d.fs.locked.hangs(attribute) {
		return nil, false, d.wrap("read", name, ErrLocked)
	}
	fd, ok, err := d.open(name, unix.O_RDONLY)
	if !ok || err != nil {
		return nil, false, err
	}
	if err = d.answer(OpRead, name); err == nil {
		parts, err = d.fs.locked.read(attribute, fd, d.buf[:], spans)
	} else {
		_ = unix.Close(fd)
	}
	if errors.Is(err, ErrLocked) { // the read that hangs has the buffer
		d.buf = d.fs.buffers.Get().(*buffer)
	}
	seen := Access{Op: OpRead, Path: name}
	if err == nil {
		seen.Data = parts[0]
	}
	if err = d.observed(seen, err); err != nil {
		return nil, false, d.wrap("read", name, err)
	}
	return parts, true, nil
}

// pageBytes is the maximum size of an attribute.
const pageBytes = 4096

// read reads parts of an open attribute of a into buf and closes the file. It waits at most l.wait. Each returned part
// has the length of its readable bytes. After [ErrLocked], the caller must not use buf any more, because the read that
// hangs still uses it.
func (l *lockedReads) read(a lockedAttribute, fd int, buf []byte, spans []span) ([][]byte, error) {
	type result struct {
		parts [][]byte
		err   error
	}
	done := make(chan result, 1)
	go func() {
		parts, err := readSpans(fd, buf, spans)
		_ = unix.Close(fd)
		done <- result{parts, err}
	}()
	limit := time.NewTimer(l.wait)
	defer limit.Stop()
	select {
	case r := <-done:
		return r.parts, r.err
	case <-limit.C:
	}
	// The read can't be canceled. Its goroutine ends, and closes the file, when the kernel answers.
	l.add(a, 1)
	go func() {
		<-done
		l.add(a, -1)
	}()
	return nil, ErrLocked
}

// readSpans reads parts of a file that was just opened into buf, one behind the other. Only the first part may begin at
// offset 0.
func readSpans(fd int, buf []byte, spans []span) (parts [][]byte, err error) {
	for _, s := range spans {
		part := buf[:s.size:s.size]
		buf = buf[s.size:]
		n, err := retry(func() (int, error) {
			if s.at == 0 {
				return unix.Read(fd, part)
			}
			return unix.Pread(fd, part, int64(s.at))
		})
		if err != nil {
			return nil, err
		}
		parts = append(parts, part[:n])
	}
	return parts, nil
}

// lockedText reads an attribute that may be locked of the function at a. It is empty if the attribute is absent.
func (f *FS) lockedText(a pci.Address, name string) (string, error) {
	data, err := f.lockedFile(a, name, pageBytes)
	if err != nil {
		return "", f.absent(a, err)
	}
	return strings.TrimSpace(string(data)), nil
}

// productBytes is how many bytes of vital product data are read. The device returns four bytes at a time, and its
// identity comes first.
const productBytes = 1 << 10

// ProductData returns the beginning of the vital product data of the function at a; nothing if it has none. The device takes time for each
// word, and may never answer (drivers/pci/vpd.c pci_vpd_read): then the error is [ErrLocked].
func (f *FS) ProductData(a pci.Address) ([]byte, error) {
	data, err := f.lockedFile(a, "vpd", productBytes)
	if err != nil {
		return nil, f.absent(a, err)
	}
	return data, nil
}

// lockedFile reads the first n bytes of an attribute that may be locked. It reads by the path, which takes fewer system
// calls than a Dir.
func (f *FS) lockedFile(a pci.Address, name string, n int) ([]byte, error) {
	path := FunctionPath(a) + "/" + name
	data, err := f.lockedRead(lockedAttribute{a, name}, path, n)
	if err = f.observed(Access{Op: OpRead, Path: path, Data: data}, err); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return data, nil
}

func (f *FS) lockedRead(a lockedAttribute, path string, n int) ([]byte, error) {
	if f.locked.hangs(a) {
		return nil, ErrLocked
	}
	if err := f.answer(OpRead, path); err != nil {
		return nil, err
	}
	fd, err := f.descriptor(path, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	parts, err := f.locked.read(a, fd, make([]byte, n), []span{{0, n}}) // a read that hangs has the buffer
	if err != nil {
		return nil, err
	}
	return parts[0], nil
}
