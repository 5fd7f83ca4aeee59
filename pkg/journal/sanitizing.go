package journal

import (
	"fmt"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/nodeconfig"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// SanitizingFacts are the facts that decide which functions must pass a sanitizing stage.
type SanitizingFacts struct {
	Snapshot  *device.Snapshot
	Selection *nodeconfig.Selection
	// Profiles are those of the cluster; nil if there are none.
	Profiles *v1alpha1.Sanitizers
	Marks    []SanitizeMark
	Proofs   []SanitizeProof
}

// Sanitizing returns, by address, why functions of the snapshot must pass a sanitizing stage before a tenant gets them.
// Only rules of the node config ask for stages. If a function's rule no longer does, the function's mark is kept, and
// counts again as soon as the rule asks for stages again.
func Sanitizing(facts SanitizingFacts) map[pci.Address]plan.Sanitizing {
	marked := Unsanitized(facts.Marks, facts.Snapshot)
	need := map[pci.Address]plan.Sanitizing{}
	for _, f := range facts.Selection.Ours() {
		sanitize := facts.Selection.Choice(f.Address).Sanitize
		if sanitize == nil {
			continue
		}
		if why, waits := facts.why(sanitize, marked[f.Address], facts.Snapshot.Identify(f)); waits {
			why.Profile = sanitize.Profile
			need[f.Address] = why
		}
	}
	return need
}

// SanitizedFunctions returns how functions of the snapshot were sanitized in this boot, if no tenant had them since.
func SanitizedFunctions(proofs []SanitizeProof, snap *device.Snapshot) map[pci.Address]plan.Sanitized {
	clean := map[pci.Address]plan.Sanitized{}
	for i := range snap.Functions {
		f := &snap.Functions[i]
		proof, found := FindSanitized(proofs, snap.Identify(f))
		if !found || !proof.Covers(snap.Identify(f)) {
			continue
		}
		s := plan.Sanitized{Profile: proof.Profile, Image: proof.Image, Time: proof.Time}
		for _, check := range proof.Checks {
			s.Methods = append(s.Methods, check.Method+" of "+check.Name)
		}
		clean[f.Address] = s
	}
	return clean
}

// why returns why a function with the rule, the mark (nil if it has none) and the identity must pass a stage, and false if
// it need not.
func (facts *SanitizingFacts) why(sanitize *v1alpha1.SanitizeRule, mark *SanitizeMark, id device.Identity) (plan.Sanitizing, bool) {
	if mark != nil && mark.Failed != nil {
		return mark.of(mark.failed()), true
	}
	if _, ok := facts.Profiles.Profile(sanitize.Profile); !ok {
		// The mistake is reported before a tenant gets the function: if it showed only at the tenant's end, the device
		// would be lost until an operator acts.
		return plan.Sanitizing{Code: rule.SanitizerUnknown, Text: fmt.Sprintf("needs the sanitizer profile %q, which does not exist", sanitize.Profile)}, true
	}
	if mark != nil {
		return mark.of(mark.waits()), true
	}
	proof, _ := FindSanitized(facts.Proofs, id)
	if sanitize.When == v1alpha1.SanitizeBeforeClaim && !proof.Covers(id) {
		return plan.Sanitizing{Code: rule.NotSanitized, Text: "waits for its sanitizing stage: none has sanitized it since the node started"}, true
	}
	return plan.Sanitizing{}, false
}

// of returns s with the tenant of the mark.
func (m *SanitizeMark) of(s plan.Sanitizing) plan.Sanitizing {
	s.HadTenant, s.Tenant = !m.NoTenant, m.Claim.Tenant
	return s
}

// failed describes the failed stage of a mark.
func (m *SanitizeMark) failed() plan.Sanitizing {
	if len(m.Failed.Changes) > 0 {
		return plan.Sanitizing{Code: rule.FirmwareChanged, Text: "has other firmware than before: " + m.Failed.Reason}
	}
	return plan.Sanitizing{Code: rule.SanitizeFailed, Text: "was not proven clean by its sanitizing stage: " + m.Failed.Reason}
}

// waits describes a mark without a failed stage.
func (m *SanitizeMark) waits() plan.Sanitizing {
	s := plan.Sanitizing{Code: rule.NotSanitized, Text: "waits for its sanitizing stage since its last tenant", Claim: m.Claim.UID}
	if m.Stage != nil {
		s.Text = "is in its sanitizing stage since " + m.Stage.Since
		s.Claim = "" // the stage may have changed what the tenant left there
	}
	return s
}
