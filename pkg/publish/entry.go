package publish

import (
	"strings"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// entry is one device on its way into a pool.
type entry struct {
	name string
	kind device.Type
	addr pci.Address
	pool string
	// f is nil for an allocated device whose function is gone.
	f *device.Function
	// withdrawn says why the device would not be published if it were not
	// allocated, as a taint's value; empty when it would.
	withdrawn string
	// rank orders devices by how well they are isolated, best first.
	rank int
}

// Values of [TaintWithdrawn].
const (
	withdrawnForbidden = "Forbidden" // the node needs it itself
	withdrawnNotOurs   = "NotOurs"   // the node config leaves it out now
	withdrawnGone      = "Gone"      // no such function any more
)

// entries returns everything to publish. An allocated device keeps the pool
// and name under which it was allocated, and is the only one at its address.
func entries(n *Node, l *layout) []*entry {
	var all []*entry
	held := map[pci.Address]bool{}
	for _, a := range n.Allocated {
		if e := allocated(n, a); e != nil && !held[e.addr] {
			held[e.addr] = true
			all = append(all, e)
		}
	}
	for _, f := range n.Selection.Ours() {
		if !held[f.Address] {
			all = append(all, &entry{name: f.Name(), kind: f.Type, addr: f.Address, pool: l.pool(n.Name, f.Address), f: f})
		}
	}
	for _, e := range all {
		e.rank = rank(n, e)
	}
	return all
}

// allocated returns the entry of an allocated device, and nil where the name
// is none that this node could have published.
func allocated(n *Node, a Allocated) *entry {
	kind, addr, err := device.ParseName(a.Name)
	if err != nil || a.Pool != n.Name && !strings.HasPrefix(a.Pool, n.Name+"/") {
		return nil
	}
	e := &entry{name: a.Name, kind: kind, addr: addr, pool: a.Pool}
	f, ok := n.Snapshot.Function(addr)
	if !ok || f.Name() != a.Name {
		e.withdrawn = withdrawnGone
		return e
	}
	e.f = f
	switch choice := n.Selection.Choice(addr); {
	case choice.Forbidden:
		e.withdrawn = withdrawnForbidden
	case !choice.Ours:
		e.withdrawn = withdrawnNotOurs
	}
	return e
}

// rank orders by the worst reason against a device's isolation.
func rank(n *Node, e *entry) int {
	v, ok := n.Verdicts[e.addr]
	if !ok || e.f == nil {
		return severityRank("")
	}
	if v.Isolated {
		return 0
	}
	worst, _ := worstOf(v.Reasons)
	return severityRank(worst.Severity)
}

// severityRank returns 1 for the mildest severity; one that is unknown is as
// bad as it gets.
func severityRank(s isolation.Severity) int {
	switch s {
	case isolation.Low:
		return 1
	case isolation.Medium:
		return 2
	case isolation.High:
		return 3
	case isolation.Critical:
		return 4
	}
	return 4
}

// worstOf returns the first of the worst reasons, and false for none.
func worstOf(reasons []isolation.Reason) (isolation.Reason, bool) {
	var worst isolation.Reason
	found := false
	for _, r := range reasons {
		if !found || severityRank(r.Severity) > severityRank(worst.Severity) {
			worst, found = r, true
		}
	}
	return worst, found
}

// deviceOf returns the entry as the API has it, without counters.
func deviceOf(n *Node, e *entry) resourceapi.Device {
	d := resourceapi.Device{Name: e.name, Attributes: attributes(n, e), Taints: taints(n, e)}
	if e.f != nil {
		d.Capacity = capacity(e.f)
	}
	return d
}
