package plan

import (
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// memo caches facts about the functions of a snapshot: devices of one group need the same facts.
type memo struct {
	snapshot  *device.Snapshot
	judger    *isolation.Judger
	sets      map[int]*assigned // by IOMMU group
	judgments map[pci.Address]isolation.Judgment
	ways      map[pci.Address][]isolation.Reset
	// exclusive are the node's exclusive domains, once hasExclusive is set.
	exclusive    map[isolation.ExclusiveDomain][]Tenancy
	hasExclusive bool
	// drained and attempted are the drains by [Node.Drained] and [Node.Attempted]; nil until they are needed.
	drained, attempted Drains
}

// drains returns the drains of the node that the memo is of.
func (m *memo) drains(n *Node) Drains {
	if m.drained == nil {
		m.drained = newDrains(m.judger, m.snapshot, n.Drained)
	}
	return m.drained
}

// attempts returns what [Node.Attempted] keeps from claims, which is the same as by drains.
func (m *memo) attempts(n *Node) Drains {
	if m.attempted == nil {
		m.attempted = newDrains(m.judger, m.snapshot, n.Attempted)
	}
	return m.attempted
}

// domains returns the exclusive domains of the node that the memo is of.
func (m *memo) domains(n *Node) map[isolation.ExclusiveDomain][]Tenancy {
	if !m.hasExclusive {
		m.exclusive, m.hasExclusive = n.exclusiveDomains(), true
	}
	return m.exclusive
}

func newMemo(s *device.Snapshot) *memo {
	return &memo{
		snapshot: s, judger: isolation.NewJudger(s), sets: map[int]*assigned{},
		judgments: map[pci.Address]isolation.Judgment{}, ways: map[pci.Address][]isolation.Reset{},
	}
}

func (m *memo) judgment(f *device.Function) isolation.Judgment {
	v, ok := m.judgments[f.Address]
	if !ok {
		v = m.judger.Judge(f)
		m.judgments[f.Address] = v
	}
	return v
}

// resets returns the ways to reset f, best first.
func (m *memo) resets(f *device.Function) []isolation.Reset {
	ways, ok := m.ways[f.Address]
	if !ok {
		ways = m.judger.Resets(f)
		m.ways[f.Address] = ways
	}
	return ways
}

// fix returns the fix in the judgment on f for a reason with the code.
func (m *memo) fix(f *device.Function, code rule.Code) string {
	for _, r := range m.judgment(f).Reasons {
		if r.Code == code {
			return r.Fix
		}
	}
	return isolation.FixOn(m.snapshot, code)
}

// assignedWith returns the assignment set of f. All functions of an IOMMU group share one set, unless companions in
// other groups belong to the set of f.
func (m *memo) assignedWith(f *device.Function) *assigned {
	functions, whole := m.judger.AssignmentSet(f)
	if !whole {
		return &assigned{functions: functions, answers: map[question][]*device.Function{}}
	}
	set, ok := m.sets[*f.Group]
	if !ok {
		set = &assigned{functions: functions, answers: map[question][]*device.Function{}}
		m.sets[*f.Group] = set
	}
	return set
}

// assigned is an assignment set: functions that are assigned together, in order of address.
type assigned struct {
	functions []*device.Function
	answers   map[question][]*device.Function
}

// question is what a check asks about each function of an assignment set.
type question int

// The questions. The answer depends on a function, its assignment set and the node, but never on the claimed device. So
// one answer serves all devices of the set.
const (
	isLocked question = iota
	isQuarantined
	isHeld
	isUnexplained
	isKeptByDriver
	waitsForStage
	isOfOtherTenant
	isUnlinked
	isUnsound
	hasPFOrVFs
	isUntakeable
	isVMDOfRule
	isUnselected
	isUnselectedVMD
	isRefusedByVFIO
	lacksReset
	isTooLarge
	failsAudit
)

// having returns the functions of the set for which the answer to a question is yes, in order. It calls isTrue only
// when the question is asked for the first time: a group may have hundreds of functions, and each is judged together
// with all others.
func (s *assigned) having(q question, isTrue func(*device.Function) bool) []*device.Function {
	found, ok := s.answers[q]
	if !ok {
		for _, f := range s.functions {
			if isTrue(f) {
				found = append(found, f)
			}
		}
		s.answers[q] = found
	}
	return found
}

// includes reports whether the set has a function. It is a binary search, because a group can have hundreds of
// functions, and each of them asks.
func (s *assigned) includes(a pci.Address) bool {
	_, ok := slices.BinarySearchFunc(s.functions, a, func(f *device.Function, a pci.Address) int { return f.Address.Compare(a) })
	return ok
}
