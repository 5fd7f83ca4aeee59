package isolation

import (
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// Evidence are the facts that a judgment has checked. The judgments on the functions of an IOMMU group share the facts about the group's
// members: a group can have hundreds of members, and each judgment checks all of them.
type Evidence struct {
	// own are the facts of this judgment alone.
	own []rule.Evidence
	// members has one fact for each member of the group. All judgments on the group's functions share it. List inserts members after
	// own[:before], without the fact at index self, which is about the judged function.
	members      []rule.Evidence
	before, self int
}

// List returns the facts in the order of the checks.
func (e *Evidence) List() []rule.Evidence {
	return slices.Concat(e.own[:e.before], e.members[:e.self], e.members[min(e.self+1, len(e.members)):], e.own[e.before:])
}

// add adds a fact of this judgment alone.
func (e *Evidence) add(seen rule.Evidence) { e.own = append(e.own, seen) }

// share adds the facts about a group's members, except for the one at index self. It is called at most once.
func (e *Evidence) share(members []rule.Evidence, self int) {
	e.members, e.self, e.before = members, self, len(e.own)
}
