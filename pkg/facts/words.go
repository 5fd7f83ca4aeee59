package facts

import (
	"fmt"
	"strings"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// The texts that this file returns contain names of tenants and reasons from the ledger, unescaped. Callers escape them before they
// print them.

// Stamp writes a time for people.
func Stamp(t time.Time) string { return t.UTC().Format(time.DateTime) + "Z" }

// ClaimName names a claim: "namespace/name", or its UID where it has none.
func ClaimName(c *ledger.Claim) string {
	if c.Name == "" {
		return c.UID
	}
	return c.Namespace + "/" + c.Name
}

// Words says how a function was reset.
func (c *Cleaning) Words() string {
	text := fmt.Sprintf("%s in %d ms", c.Proof.Method, c.Proof.Milliseconds)
	if c.Proven() {
		return text + fmt.Sprintf(", %s (event %d)", isolation.Proven, c.Event)
	}
	if c.Reason != "" {
		text += ": " + c.Reason
	}
	return text + fmt.Sprintf(", NOT proven (event %d)", c.Event)
}

// BeforeWords says what reset the function before the claim had it.
func (t *PastTenancy) BeforeWords() string {
	switch {
	case t.Before != nil:
		return "reset " + Stamp(t.Before.Time) + " by " + t.Before.Words()
	case t.First:
		return "the ledger has no earlier tenant of this function"
	case t.Partial:
		return "this bundle has no earlier events: ask the ledger"
	}
	return "no reset since the earlier tenant is in the ledger"
}

// ProvidedWords says what was set for the function: "partition 3 (modules 1, 3)". It is empty if nothing was set.
func (t *PastTenancy) ProvidedWords() string {
	return strings.Join(ProvidedWords(t.Provided), ", ")
}

// ProvidedWords names values that were set for a function: "partition 3 (modules 1, 3)".
func ProvidedWords(all []ledger.Provided) []string {
	words := make([]string, len(all))
	for i, p := range all {
		words[i] = p.Name + " " + p.Value
	}
	return words
}

// PodNames returns the claim's pods: "namespace/name".
func (t *PastTenancy) PodNames() []string {
	names := make([]string, len(t.Pods))
	for i, p := range t.Pods {
		names[i] = t.Claim.Namespace + "/" + p.Name
	}
	return names
}

// Words names the sandbox and its VMM.
func (s *Stay) Words() string {
	if s.VM.PID == 0 {
		return "sandbox " + s.VM.Sandbox + ", its VMM is not known"
	}
	return fmt.Sprintf("sandbox %s, VMM pid %d (start %d)", s.VM.Sandbox, s.VM.PID, s.VM.StartTime)
}

// IsolationWords says how the function was isolated when the claim took it.
func (t *PastTenancy) IsolationWords() string {
	d := &t.Device
	var words []string
	switch {
	case d.Isolation == nil:
		words = append(words, "no verdict on its isolation")
	case d.Isolation.Isolated:
		words = append(words, "isolated")
	default:
		words = append(words, "NOT isolated: "+codes(d.Isolation.Reasons))
	}
	if d.Group != nil {
		functions := "functions"
		if len(d.GroupMembers) == 1 {
			functions = "function"
		}
		words = append(words, fmt.Sprintf("IOMMU group %d of %d %s", *d.Group, len(d.GroupMembers), functions))
	}
	if len(d.Upstream) > 0 {
		words = append(words, "below "+d.Upstream[0].String())
	}
	if d.Isolation != nil && len(d.Isolation.Notes) > 0 {
		words = append(words, "notes "+codes(d.Isolation.Notes))
	}
	return strings.Join(words, "; ")
}

func codes(list []rule.Code) string {
	words := make([]string, len(list))
	for i, c := range list {
		words[i] = string(c)
	}
	return strings.Join(words, " ")
}

// End is how a tenancy ended.
type End string

// Ends.
const (
	Held        End = "held until now"
	Quarantined End = "quarantined"
	Undone      End = "undone: no VM had it"
	Unproven    End = "given back without a proven reset: it is reset before the next tenant"
	GivenBack   End = "given back"
)

// End returns how the tenancy ended, or that it has not.
func (t *PastTenancy) End() End {
	switch {
	case t.Quarantined != "":
		return Quarantined
	case t.To == nil:
		return Held
	case t.Undone:
		return Undone
	case t.Unproven:
		return Unproven
	}
	return GivenBack
}
