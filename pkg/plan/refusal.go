package plan

import (
	"fmt"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// NotReady says why a node refuses all new claims.
type NotReady struct {
	Obstacle rule.Code `json:"obstacle"`
	// Text has the fault and the fix.
	Text string `json:"text"`
}

// RefuseClaim returns the error for a claim that does not get its devices.
func RefuseClaim(claim Ref, verdicts ...rule.Verdict) *rule.RefusedError {
	return &rule.RefusedError{Subject: "claim " + claim.String(), Verdicts: verdicts}
}

// joinMates adds to v the other reasons why a group is not viable, so that one refusal names all members in question,
// or the first of many.
func joinMates(v *rule.Verdict, others []rule.Verdict) {
	named, more := 1, 0
	for i := range others {
		o := &others[i]
		switch {
		case o.Code != rule.GroupNotViable:
		case named == maxMates:
			more++
		default:
			named++
			v.Text += "; " + o.Text
			if !strings.Contains(v.Fix, o.Fix) {
				v.Fix += "; " + o.Fix
			}
		}
	}
	if more > 0 {
		v.Text += fmt.Sprintf("; and %d more members of the group", more)
	}
}

// HoldsForItsKind reports whether a refusal with the code would be the same on every node with the same hardware,
// firmware, kernel settings and config. Such a refusal does not depend on the present state of one node.
func HoldsForItsKind(code rule.Code) bool {
	switch code {
	case rule.GroupNotViable, rule.NotIsolated, rule.FailsAudit, rule.NoReset, rule.BackendUnavailable, rule.OnVFIODenylist, rule.DriverServesVFIO, rule.PFStaysOnHost, rule.GPUNotSliced, rule.BARsUnassigned, rule.BARReserved, rule.GroupMateNotSelected, rule.HotPlugWindowTooSmall:
		return true
	default:
		return false
	}
}
