package finding

import (
	"cmp"

	"github.com/kata-vfio/kata-vfio/pkg/isolation"
)

func compareText(a, b string) int { return cmp.Compare(a, b) }

// Rule is what a check looks for and why. IDs and their meaning are stable: a
// rule that changes its meaning gets a new one.
type Rule struct {
	// ID is the group and a number, "IOM-003".
	ID    string `json:"id"`
	Title string `json:"title"`
	// Severity is that for untrusted tenants; see [Profile].
	Severity isolation.Severity `json:"severity"`
	// Why says what an attacker gains where it fails.
	Why string `json:"why"`
	// Fix and Verify are the finding's Remediation and Verify where the check
	// knows nothing more precise.
	Fix    string `json:"fix"`
	Verify string `json:"verify,omitempty"`
	// Sources are where the fact comes from: a kernel file, a specification, a CVE.
	Sources []string `json:"sources,omitempty"`
	// Cheap marks a check that reads nothing but the snapshot and a few attributes,
	// so that the plugin runs it whenever the node changes.
	Cheap bool `json:"cheap,omitempty"`
	// Static marks a rule whose failure no configuration repairs: advice, as where
	// to place tenants.
	Static bool `json:"static,omitempty"`
}

// Group returns the letters of the rule's ID: "IOM".
func (r *Rule) Group() string {
	for i, c := range r.ID {
		if c == '-' {
			return r.ID[:i]
		}
	}
	return r.ID
}
