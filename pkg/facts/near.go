package facts

import (
	"cmp"
	"slices"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// Relation is what two functions have in common, the nearest first.
type Relation string

// Relations.
const (
	// SameFunction: both had the function, one after the other. Both had it at the same time only if the ledger or the node is at fault.
	SameFunction Relation = "the same function"
	SameGroup    Relation = "one IOMMU group"
	// SamePF: VFs of one PF, or a VF and its PF.
	SamePF     Relation = "one PF"
	SameSlot   Relation = "one physical device"
	SameSwitch Relation = "one PCIe switch"
	SamePort   Relation = "one root port"
	// SameNode: they have only the node in common.
	SameNode Relation = "one node"
)

// relations returns all relations, the nearest first.
func relations() []Relation {
	return []Relation{SameFunction, SameGroup, SamePF, SameSlot, SameSwitch, SamePort, SameNode}
}

// Neighbor is a tenancy of another claim at the same time.
type Neighbor struct {
	// Mine and Other are the two tenancies, and Relation is what their functions have in common.
	Mine     *PastTenancy `json:"mine"`
	Other    *PastTenancy `json:"other"`
	Relation Relation     `json:"relation"`
	// From and To are the time during which both existed. To is nil if both still exist. A tenancy whose function is in quarantine
	// counts until the function left its last VM.
	From time.Time  `json:"from"`
	To   *time.Time `json:"to,omitempty"`
}

// Neighbors returns the tenancies of other claims on the same node that overlap with mine in time. Each is listed
// once, by its nearest relation; the nearest come first, then the earliest. Tenancies of the same tenant are included.
func (h *History) Neighbors(mine []*PastTenancy) []Neighbor { return neighbors(mine, h.Tenancies) }

// NeighborsAt is like [History.Neighbors], but leaves out tenancies that had not begun at the time, or had ended.
func (h *History) NeighborsAt(mine []*PastTenancy, when time.Time) []Neighbor {
	return neighbors(mine, slices.DeleteFunc(slices.Clone(h.Tenancies), func(o *PastTenancy) bool { return !o.At(when) }))
}

func neighbors(mine, others []*PastTenancy) []Neighbor {
	asked := map[*PastTenancy]int{}
	for i, m := range slices.Backward(mine) {
		asked[m] = i
	}
	var found []Neighbor
	for _, o := range others {
		if _, ok := asked[o]; ok {
			continue
		}
		if n, ok := nearest(o, mine); ok {
			found = append(found, n)
		}
	}
	slices.SortStableFunc(found, func(a, b Neighbor) int { return cmp.Or(a.compare(&b), asked[a.Mine]-asked[b.Mine]) })
	return found
}

// nearest returns the nearest relation of a tenancy to mine, the earliest of equal ones. ok is false if it overlaps with
// none of them.
func nearest(o *PastTenancy, mine []*PastTenancy) (best Neighbor, ok bool) {
	for _, m := range mine {
		if o.Claim.UID == m.Claim.UID || o.Node != m.Node || !m.Overlaps(o) {
			continue
		}
		n := Neighbor{Mine: m, Other: o, Relation: relate(&m.Device, &o.Device), From: m.From, To: earlier(m.leaves(), o.leaves())}
		if o.From.After(n.From) {
			n.From = o.From
		}
		if n.To != nil && n.To.Before(n.From) {
			continue // the function of one left its last VM, for quarantine, before the other began
		}
		if !ok || n.compare(&best) < 0 {
			best, ok = n, true
		}
	}
	return best, ok
}

// compare orders neighbors by their relations, the nearest first, then by the beginnings of the overlaps.
func (n *Neighbor) compare(o *Neighbor) int {
	return cmp.Or(rank(n.Relation)-rank(o.Relation), n.From.Compare(o.From))
}

// leaves returns the time from which no VM of the claim can have the function; nil if a VM may still have it. A quarantine keeps
// the function from all VMs although the tenancy has not ended, so the end of its last sandbox counts.
func (t *PastTenancy) leaves() *time.Time {
	if t.To == nil && t.Quarantined != "" && len(t.Stays) > 0 {
		return t.Stays[len(t.Stays)-1].To
	}
	return t.To
}

func rank(r Relation) int { return slices.Index(relations(), r) }

func earlier(a, b *time.Time) *time.Time {
	if a == nil || b != nil && b.Before(*a) {
		return b
	}
	return a
}

// relate returns the nearest relation of two functions, by their places at the beginning of the tenancies.
func relate(a, b *ledger.Device) Relation {
	switch {
	case a.Address == b.Address:
		return SameFunction
	case slices.Contains(a.GroupMembers, b.Address) || slices.Contains(b.GroupMembers, a.Address):
		return SameGroup
	case pfAddress(a) == pfAddress(b):
		return SamePF
	case cardAddress(a) == cardAddress(b) && a.PF == nil && b.PF == nil:
		return SameSlot
	case a.Switch != nil && b.Switch != nil && (*a.Switch == *b.Switch || slices.Contains(a.Upstream, *b.Switch) || slices.Contains(b.Upstream, *a.Switch)):
		return SameSwitch
	case len(a.Upstream) > 0 && len(b.Upstream) > 0 && a.Upstream[0] == b.Upstream[0]:
		return SamePort
	}
	return SameNode
}

// cardAddress returns function 0 of a function's physical device.
func cardAddress(d *ledger.Device) pci.Address {
	if d.FirstFunction != nil {
		return *d.FirstFunction
	}
	card := d.Address
	card.Function = 0
	return card
}

// pfAddress returns the PF of a VF. For any other function, it returns the function's own address.
func pfAddress(d *ledger.Device) pci.Address {
	if d.PF != nil {
		return *d.PF
	}
	return d.Address
}
