package check

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// claimable is the ID of the check that applies the same conditions as Prepare.
const claimable = "VFIO-024"

// claimableChecks are about the functions that the node config selects.
func claimableChecks() []Check {
	return []Check{
		{ID: claimable, Judge: selectedAreClaimable},
	}
}

// refusedAlike is what selected functions in one finding have in common: the code of the refusal, and its culprit (zero if none).
type refusedAlike struct {
	code    rule.Code
	culprit pci.Address
}

// selectedAreClaimable applies the conditions of Prepare, except for those of other checks.
func selectedAreClaimable(n *facts.Node) Answer {
	planned, _ := n.Planned()
	// Otherwise a failure of another check would count twice, and a failure of this check would cause itself.
	planned.Failing = nil
	assessor := plan.NewAssessor(planned)
	selected := planned.Selection.Ours()
	var found Answer
	at := map[refusedAlike]int{}
	for _, f := range selected {
		assessment := assessor.Assess(f)
		r, refused := worthwhile(assessment.Faults())
		if !refused || foundByRules(r, &assessment.Isolation) {
			continue
		}
		key := refusedAlike{code: r.Code}
		if r.Culprit != nil {
			key.culprit = *r.Culprit
		}
		i, known := at[key]
		if !known {
			at[key] = len(found)
			found = append(found, unclaimable(f, r)...)
			continue
		}
		// With a second function, the finding is about several devices, so Device is unset.
		found[i].Device, found[i].Object = nil, cmp.Or(found[i].Object, string(r.Code))
		found[i].Devices = append(found[i].Devices, f.Address)
	}
	return conclude(found, selected, "function", "the node config selects no function", one(driverFact))
}

// worthwhile returns the first refusal that needs action. A drain is intended by the operator, a sanitizing stage ends by itself,
// and the tenant of an exclusive domain can get the free functions in it.
func worthwhile(refusals []rule.Verdict) (*rule.Verdict, bool) {
	for i := range refusals {
		switch refusals[i].Code {
		case rule.Drained, rule.NotSanitized, rule.DomainOfOtherTenant:
		default:
			return &refusals[i], true
		}
	}
	return nil, false
}

// foundByRules reports whether other rules fail for all reasons of the judgment on the function.
func foundByRules(r *rule.Verdict, v *isolation.Judgment) bool {
	if !slices.Contains([]rule.Code{rule.NotIsolated, rule.NoReset, rule.ConfigSpaceDead}, r.Code) || len(v.Reasons) == 0 {
		return false
	}
	return !slices.ContainsFunc(v.Reasons, func(reason rule.Verdict) bool { return !hasRuleOfItsOwn(reason.Code) })
}

// hasRuleOfItsOwn reports whether another check fails for the fault. A fault is one finding, and one waiver accepts it.
func hasRuleOfItsOwn(code rule.Code) bool {
	return slices.ContainsFunc(code.Checks(), func(id string) bool { return id != claimable })
}

func unclaimable(f *device.Function, r *rule.Verdict) Answer {
	return fail(fmt.Sprintf("no claim can get %s (%s): %s", f.Address, r.Code, r.Text), driverFact(f), groupFact(f)).fix(r.Fix).on(f)
}
