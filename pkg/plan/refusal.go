package plan

import (
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// NotReady is why a node refuses all new claims.
type NotReady struct {
	Obstacle rule.Code `json:"obstacle"`
	// Text says what is wrong and what to do.
	Text string `json:"text"`
}

// RefuseClaim returns the error for a claim that does not get its devices.
func RefuseClaim(claim Ref, verdicts ...rule.Verdict) *rule.RefusedError {
	return &rule.RefusedError{Subject: "claim " + claim.String(), Verdicts: verdicts}
}

// joinMates adds the other reasons why a group is not viable: all its members are named at once.
func joinMates(v *rule.Verdict, others []rule.Verdict) {
	for i := range others {
		if o := &others[i]; o.Code == rule.GroupNotViable {
			v.Text += "; " + o.Text
			if !strings.Contains(v.Fix, o.Fix) {
				v.Fix += "; " + o.Fix
			}
		}
	}
}

// HoldsForItsKind reports whether a node of the same hardware, firmware, kernel settings and config would refuse the
// function as well, so that the refusal is not of this node's present state.
func HoldsForItsKind(code rule.Code) bool {
	switch code {
	case rule.GroupNotViable, rule.NotIsolated, rule.FailsAudit, rule.NoReset, rule.BackendUnavailable, rule.OnVFIODenylist, rule.DriverServesVFIO, rule.BARsUnassigned, rule.BARReserved, rule.GroupMateNotSelected, rule.HotPlugWindowTooSmall:
		return true
	default:
		return false
	}
}
