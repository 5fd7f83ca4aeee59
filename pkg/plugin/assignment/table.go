package assignment

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"
	"time"

	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/cdi"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
)

// Journal lists the records; [journal.Store] is the real one. It returns the
// same pointer for a record that has not changed.
type Journal interface {
	List() ([]*journal.Record, []error)
}

// Specs reads CDI specs; [cdi.Dir] is the real one. Its error matches
// fs.ErrNotExist for a claim without one.
type Specs interface {
	Read(claimUID string) (*specs.Spec, error)
}

// Table keeps a [View] of the journal. Its methods may be called from several
// goroutines.
type Table struct {
	// Node is the node's name in the cluster, by which its pools are named. Set it before use;
	// where it is empty, pools are not compared.
	Node string

	journal Journal
	specs   Specs
	bootID  string
	dirs    [2]string

	mu    sync.Mutex // guards below
	stamp dirVersion // of dirs, before given was read
	given []entry    // what the view was made of
	view  *View
	// withdrawn says of claims, by UID, why their allocation is not of what is prepared.
	withdrawn map[string]string
}

// entry is what one assignment is made of.
type entry struct {
	record *journal.Record
	spec   *specs.Spec // nil without one
}

// NewTable returns the table of a node that booted with the ID. The
// directories are the journal's and that of the specs.
func NewTable(records Journal, specs Specs, bootID, journalDir, specsDir string) *Table {
	return &Table{journal: records, specs: specs, bootID: bootID, dirs: [2]string{journalDir, specsDir}, withdrawn: map[string]string{}}
}

// Withdraw tells that the allocation of the claim with the UID is not of what is prepared, and
// why; an empty reason tells that it is.
func (t *Table) Withdraw(uid, why string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.withdrawn[uid] == why {
		return
	}
	if t.view = nil; why == "" {
		delete(t.withdrawn, uid)
		return
	}
	t.withdrawn[uid] = why
}

// View returns the assignments as journal and specs have them now, also what
// another instance of a rolling update wrote: while no file of the directories
// came, went or was replaced that costs two stats, otherwise two for each
// claim, and only what changed is read. A file that can't be read is an error,
// since any device may be in it.
func (t *Table) View() (*View, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := stampOf(t.dirs)
	if t.view != nil && now.same(t.stamp) {
		return t.view, nil
	}
	entries, err := t.entries()
	if err != nil {
		return nil, err
	}
	t.stamp = now
	if t.view != nil && slices.Equal(entries, t.given) {
		return t.view, nil
	}
	all := make([]*Assignment, len(entries))
	for i, e := range entries {
		all[i] = t.assignment(e)
	}
	t.given, t.view = entries, newView(all)
	return t.view, nil
}

func (t *Table) entries() ([]entry, error) {
	records, errs := t.journal.List()
	if len(errs) > 0 {
		return nil, fmt.Errorf("look up who has which device: %w", errors.Join(errs...))
	}
	var entries []entry
	for _, r := range records {
		if r.Kind != journal.Claim {
			continue
		}
		e := entry{record: r}
		var err error
		if r.State == journal.Prepared {
			e.spec, err = t.specs.Read(r.ID())
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("look up the device nodes of claim %s: %w", r.Plan.Claim, err)
		}
		entries = append(entries, e)
	}
	return entries, nil
}

func (t *Table) assignment(e entry) *Assignment {
	r := e.record
	a := &Assignment{Claim: r.Plan.Claim, State: r.State, Stale: r.BootID != t.bootID, Withdrawn: t.withdrawn[r.ID()], Sandbox: r.Sandbox}
	nodes := map[string][]string{}
	if !a.Stale {
		nodes = nodesByDevice(e.spec)
	}
	for _, d := range r.Plan.Devices {
		if t.Node != "" && !device.IsPoolOf(t.Node, d.Pool) {
			a.Withdrawn = fmt.Sprintf("%s is allocated from pool %s, which is not of node %s", d.Name, d.Pool, t.Node)
		}
		a.Devices = append(a.Devices, Device{
			Request: d.Request, Pool: d.Pool, Name: d.Name, Published: d.Published(), Address: d.Address,
			Endpoint: d.Attachment == v1alpha1.AttachPhysicalEndpoint,
			CDI:      cdi.QualifiedName(r.ID(), d.Name), Nodes: nodes[cdi.DeviceName(r.ID(), d.Name)],
		})
	}
	return a
}

func nodesByDevice(spec *specs.Spec) map[string][]string {
	nodes := map[string][]string{}
	if spec == nil {
		return nodes
	}
	for _, d := range spec.Devices {
		for _, n := range d.ContainerEdits.DeviceNodes {
			nodes[d.Name] = append(nodes[d.Name], n.Path)
		}
	}
	return nodes
}

// settleTime is how long a directory must have been at rest before its
// modification time is trusted to tell of the next change: the kernel stamps
// files by a clock that ticks every 10 ms or faster (CONFIG_HZ), so that two
// changes within a tick look the same.
const settleTime = 50 * time.Millisecond

// dirVersion tells whether files in the directories were made, replaced or removed:
// each of these changes its directory's modification time (POSIX rename(),
// unlink()). A write into an existing file does not, and nobody makes one:
// journal and CDI specs are replaced whole.
type dirVersion struct {
	times   [2]time.Time
	settled bool
}

// stampOf reads the stamp now. A directory that can't be read has none that is
// settled.
func stampOf(dirs [2]string) dirVersion {
	now := time.Now()
	s := dirVersion{settled: true}
	for i, dir := range dirs {
		info, err := os.Stat(dir)
		if err != nil {
			return dirVersion{}
		}
		s.times[i] = info.ModTime()
		s.settled = s.settled && now.Sub(s.times[i]) > settleTime
	}
	return s
}

// same reports whether nothing changed between an earlier stamp and this one.
func (s dirVersion) same(earlier dirVersion) bool { return earlier.settled && s.times == earlier.times }
