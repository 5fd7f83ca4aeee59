package isolation

import (
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// Judger judges the functions of one snapshot, and caches the facts that the functions of an IOMMU group have in common. So judging all
// functions of a large group takes time in proportion to the group's size. It is not safe for concurrent use.
type Judger struct {
	s      *device.Snapshot
	groups map[*device.Group]*groupFacts
}

// NewJudger returns the judger of a snapshot, which must not change.
func NewJudger(s *device.Snapshot) *Judger {
	return &Judger{s: s, groups: map[*device.Group]*groupFacts{}}
}

// AssignmentSet returns the result of the function [AssignmentSet]. The caller must not change it. whole is set if the set consists of all
// endpoints of f's IOMMU group; each of these endpoints then has the same set.
func (k *Judger) AssignmentSet(f *device.Function) (set []*device.Function, whole bool) {
	g, ok := k.s.GroupWith(f)
	if !ok || f.IsBridge() {
		return AssignmentSet(k.s, f), false
	}
	facts := k.facts(g)
	if !facts.has(f) || slices.ContainsFunc(k.s.Companions(f), func(c *device.Function) bool { return !facts.has(c) }) {
		return AssignmentSet(k.s, f), false
	}
	return facts.endpoints, true
}

// groupFacts are the facts that are the same for all functions of an IOMMU group.
type groupFacts struct {
	// endpoints are the members without the bridges, by address.
	endpoints []*device.Function
	// members are the members of the group in the group's order, and at has the index of each. A member that the snapshot does not have is
	// nil.
	members []*device.Function
	at      map[pci.Address]int
	// evidence has one fact for each member: its driver, or that the function is missing.
	evidence []rule.Evidence
	// suspects are the indexes of members because of which some function of the group may not be assignable. The other members need no
	// look.
	suspects []int
	// known are the indexes of the members that the snapshot has. listed are the names of all members, as the kernel lists them.
	known  []int
	listed string
}

// has reports whether a function is an endpoint of the group.
func (g *groupFacts) has(f *device.Function) bool {
	i, ok := g.at[f.Address]
	return ok && g.members[i] != nil && !g.members[i].IsBridge()
}

// facts returns what is known of a group.
func (k *Judger) facts(g *device.Group) *groupFacts {
	if facts, ok := k.groups[g]; ok {
		return facts
	}
	facts := &groupFacts{at: make(map[pci.Address]int, len(g.Members)), listed: joinAddresses(g.Members)}
	parents := map[pci.Address]bool{} // the PFs of its VFs
	for i, addr := range g.Members {
		facts.at[addr] = i
		m, ok := k.s.Function(addr)
		facts.members = append(facts.members, m)
		if !ok {
			facts.evidence = append(facts.evidence, rule.Evidence{Path: groupFile(g.Number, "devices/"+addr.String()), Value: "no such function"})
			continue
		}
		facts.known = append(facts.known, i)
		facts.evidence = append(facts.evidence, rule.Evidence{Path: attribute(addr, "driver"), Value: orNone(m.Driver)})
		if m.VF != nil {
			parents[m.VF.PF] = true
		}
		if !m.IsBridge() {
			facts.endpoints = append(facts.endpoints, m)
		}
	}
	for i, m := range facts.members {
		if m == nil || isSuspect(m) || parents[m.Address] {
			facts.suspects = append(facts.suspects, i)
		}
	}
	slices.SortFunc(facts.endpoints, func(a, b *device.Function) int { return a.Address.Compare(b.Address) })
	k.groups[g] = facts
	return facts
}

// isSuspect reports whether [judging.mate] may refuse a member for some function of the group. The PF of a VF in the group is a suspect too;
// the caller adds it.
func isSuspect(m *device.Function) bool {
	return (m.IsBridge() || m.IsNVSwitch()) && !LeavesDMA(m.Driver) || len(m.Uses) > 0
}

// look returns the members that a judgment on f must look at, by index.
func (g *groupFacts) look(f *device.Function) []int {
	if _, ok := g.at[f.Address]; ok {
		return g.suspects
	}
	all := make([]int, len(g.members)) // f is not a member of the group that its link names, so every member is looked at
	for i := range all {
		all[i] = i
	}
	return all
}
