package plan

import (
	"fmt"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// Sanitizing says why a function must pass a sanitizing stage before a tenant gets it.
type Sanitizing struct {
	// Code is NotSanitized, SanitizeFailed, FirmwareChanged or SanitizerUnknown.
	Code rule.Code
	// Profile is the name of the sanitizer.
	Profile string
	// Text follows the function's address: "waits for its sanitizing stage". A tenant sees it, so it names no claim.
	Text string
	// Claim is the UID of the claim that had the function last. That claim may get the function again, because the data
	// on it is its own tenant's.
	Claim string
	// HadTenant is set if a tenant had the function since it was last sanitized. Tenant is the ID of that tenant; empty
	// if it is not known.
	HadTenant bool
	Tenant    string
}

// Sanitized says how a function was sanitized in this boot. No tenant had the function since then.
type Sanitized struct {
	// Profile is the name of the sanitizer, and Image its digest.
	Profile string `json:"profile"`
	Image   string `json:"image,omitempty"`
	// Methods are the methods of the stage's checks: "FillVerifyZeroVerify of bar0".
	Methods []string `json:"methods"`
	// Time is when the result of the stage was decided, RFC 3339 in UTC.
	Time string `json:"time"`
}

// String returns "profile memory at 2026-11-28T06:00:00Z: FillVerifyZeroVerify of bar0".
func (s *Sanitized) String() string {
	return fmt.Sprintf("profile %s at %s: %s", s.Profile, s.Time, strings.Join(s.Methods, ", "))
}

// Stages says how to recognize the claims of sanitizing stages: by their namespace and their DeviceClass. With the zero
// value, no claim is a stage.
type Stages struct{ Namespace, DeviceClass string }

// isStage reports whether the candidate is the device of a sanitizing stage.
func (c *candidate) isStage() bool {
	stages := c.node.Stages
	return stages.DeviceClass != "" && c.claimed.Class == stages.DeviceClass && c.ref.Namespace == stages.Namespace
}

// stage returns the profile of the sanitizing stage that gets the device; empty if a tenant does.
func (c *candidate) stage() string {
	if !c.isStage() {
		return ""
	}
	return c.node.Sanitizing[c.f.Address].Profile
}

// sanitizedBy returns how the device was sanitized; nil if it was not, and for a stage.
func (c *candidate) sanitizedBy() *Sanitized {
	s, ok := c.node.Sanitized[c.f.Address]
	if !ok || c.isStage() {
		return nil
	}
	return &s
}

// ofItsNamespace refuses a claim that names the DeviceClass of sanitizing stages in another namespace. A namespace can
// use the class only if it is granted there, but without the chart's policies an administrator may grant it by mistake.
func (c *candidate) ofItsNamespace() *rule.Verdict {
	class := c.node.Stages.DeviceClass
	if class == "" || c.claimed.Class != class || c.isStage() {
		return nil
	}
	return &rule.Verdict{
		Code: rule.NotAStage, Driver: c.f.Driver,
		Text: fmt.Sprintf("the request names DeviceClass %s, which is for sanitizing stages in namespace %s", class, c.node.Stages.Namespace),
		Fix:  "name the DeviceClass that your operator offers",
	}
}

// sanitized refuses a function that must pass a sanitizing stage first. A stage gets the function only while the
// function waits for a stage. After a failed stage, no further stage gets the function: an operator decides.
func (c *candidate) sanitized() *rule.Verdict {
	own, waits := c.node.Sanitizing[c.f.Address]
	if c.isStage() && (!waits || own.Code == rule.NotSanitized) {
		if c.stageIsDue() {
			return nil
		}
		return &rule.Verdict{
			Code: rule.NothingToSanitize, Driver: c.f.Driver,
			Text: fmt.Sprintf("%s does not wait for a sanitizing stage", c.f.Address),
			Fix:  "nothing: kata-vfio-controller deletes the claim",
		}
	}
	waiting := c.set.having(waitsForStage, func(f *device.Function) bool {
		s, waits := c.node.Sanitizing[f.Address]
		return waits && (s.Code != rule.NotSanitized || s.Claim == "" || s.Claim != c.ref.UID)
	})
	if len(waiting) == 0 {
		return c.sanitizedAsRequired(waits)
	}
	s := c.node.Sanitizing[waiting[0].Address]
	r := c.mate(waiting[0], s.Code, fmt.Sprintf("%s %s", waiting[0].Address, s.Text), c.sanitizeFix(s))
	r.Object = s.Profile
	return r
}

// stageIsDue reports whether a function that the claim asks for waits for a stage. One function of a pair may wait
// while the other does not.
func (c *candidate) stageIsDue() bool {
	for a := range c.asked {
		if c.node.Sanitizing[a].Code == rule.NotSanitized {
			return true
		}
	}
	return false
}

// sanitizedAsRequired refuses a device that no stage has sanitized if the claim requires a sanitized one. waits says
// whether the device waits for a stage: if it does, only the claim that had it last comes here, and may get it again.
func (c *candidate) sanitizedAsRequired(waits bool) *rule.Verdict {
	_, sanitized := c.node.Sanitized[c.f.Address]
	if c.claimed.VFIO.Sanitized != v1alpha1.SanitizedRequired || sanitized || waits || c.isStage() {
		return nil
	}
	return &rule.Verdict{
		Code: rule.NotSanitized, Driver: c.f.Driver,
		Text: fmt.Sprintf("the claim requires a sanitized device, and no stage has sanitized %s since the node started and since its last tenant", c.f.Address),
		Fix:  "set `sanitize` with `when: BeforeClaim` in the device's rule of the node config, or claim without `sanitized: Required`",
	}
}

// sanitizeFix returns what to do about a function that is not sanitized.
func (c *candidate) sanitizeFix(s Sanitizing) string {
	switch s.Code {
	case rule.NotSanitized:
		return "wait for its stage; `kata-vfio-plugin status` on the node shows it. Without kata-vfio-controller no stage starts"
	case rule.SanitizerUnknown:
		return "name a profile of the chart's value sanitizers in the node config (devices[].sanitize.profile), or add the profile"
	default:
		return fmt.Sprintf("run `kata-vfio-plugin quarantine explain %s` on the node", c.f.Address)
	}
}
