package inventory

import (
	"maps"
	"path"
	"strconv"
	"strings"
	"sync"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// subject is what a uevent is about. Many events about one are as good as one.
type subject struct{ subsystem, path string }

// scope says what has to be read again.
type scope struct {
	// all is a full scan.
	all bool
	// addrs are functions. With none, the facts of the host alone.
	addrs []pci.Address
}

// relevant reports whether the inventory has to do with a uevent. A node with
// containers makes and drops virtual netdevs and loop devices all day.
func relevant(ev Uevent) bool {
	_, onFunction := lastAddress(ev.Path)
	switch ev.Subsystem {
	case "pci", "net", "drm", "infiniband", "nvme", "vfio-dev":
		return onFunction
	case "block":
		return onFunction || !strings.HasPrefix(path.Base(ev.Path), "loop")
	case "vfio", "iommu", "drivers":
		return true
	case "misc":
		return path.Base(ev.Path) == "iommu"
	case "module":
		return strings.Contains(ev.Path, "vfio") || strings.Contains(ev.Path, "iommufd")
	}
	return false
}

// scopeOf returns what a set of subjects makes it necessary to read.
func scopeOf(subjects map[subject]bool, snap *device.Snapshot) scope {
	var s scope
	for subj := range subjects {
		addrs, ok := concernedBy(subj, snap)
		s.all = s.all || !ok
		s.addrs = append(s.addrs, addrs...)
	}
	return s
}

// concernedBy returns the functions that an event is about, false where only a
// full scan will tell.
func concernedBy(subj subject, snap *device.Snapshot) ([]pci.Address, bool) {
	if a, ok := lastAddress(subj.path); ok {
		return []pci.Address{a}, true
	}
	switch subj.subsystem {
	case "vfio":
		return membersOf(path.Base(subj.path), snap)
	case "block":
		return withDisks(snap), true
	case "iommu":
		return nil, false
	}
	return nil, true
}

// membersOf returns the members of the group with a VFIO node's name, "15" or
// "noiommu-15".
func membersOf(node string, snap *device.Snapshot) ([]pci.Address, bool) {
	n, err := strconv.Atoi(strings.TrimPrefix(node, "noiommu-"))
	if err != nil {
		return nil, true // the control node
	}
	g, ok := snap.Group(n)
	if !ok {
		return nil, false
	}
	return g.Members, true
}

// withDisks returns the functions that a virtual block device may be built on.
func withDisks(snap *device.Snapshot) []pci.Address {
	var addrs []pci.Address
	for i := range snap.Functions {
		if c := &snap.Functions[i].Children; len(c.Block) > 0 || len(c.NVMe) > 0 {
			addrs = append(addrs, snap.Functions[i].Address)
		}
	}
	return addrs
}

// maxPending is how many subjects are remembered one by one; beyond that a
// full scan is cheaper.
const maxPending = 1024

// pending gathers what has changed since the last update. Its methods may be
// called from several goroutines.
type pending struct {
	// wake holds a token while there is something to take.
	wake chan struct{}

	mu       sync.Mutex // guards what follows
	all      bool
	subjects map[subject]bool
}

func newPending() *pending {
	return &pending{wake: make(chan struct{}, 1), subjects: map[subject]bool{}}
}

// add notes subjects, or with none that anything may have changed.
func (p *pending) add(subjects ...subject) {
	p.mu.Lock()
	for _, s := range subjects {
		p.subjects[s] = true
	}
	p.all = p.all || len(subjects) == 0 || len(p.subjects) > maxPending
	p.mu.Unlock()
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// take returns what has changed and forgets it.
func (p *pending) take() (all bool, subjects map[subject]bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	all, subjects = p.all, p.subjects
	p.all, p.subjects = false, map[subject]bool{}
	return all, subjects
}

// put back what was taken and could not be used. It wakes nobody.
func (p *pending) put(all bool, subjects map[subject]bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all = p.all || all
	maps.Copy(p.subjects, subjects)
}
