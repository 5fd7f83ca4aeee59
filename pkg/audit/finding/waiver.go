package finding

import (
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/isolation"
)

// Waiver accepts a failure for a time. The check still runs.
type Waiver struct {
	// Rule is the rule's id, and Scope the device address or object that the
	// waiver is for; "*" is all.
	Rule  string `json:"rule"`
	Scope string `json:"scope"`
	// Until is the last day, "2027-03-31".
	Until  string `json:"until"`
	Reason string `json:"reason"`
	Author string `json:"author"`
	// Expired is set where Until has passed: the failure counts again.
	Expired bool `json:"expired,omitempty"`
}

// Apply marks the failures that a waiver covers: Waived, or still Fail with the
// waiver that has expired. today is as in Waiver.Until; the day itself is covered.
func Apply(waivers []Waiver, today string, findings []Finding) {
	for i := range findings {
		f := &findings[i]
		if f.State != Fail {
			continue
		}
		for _, w := range waivers {
			if !w.covers(f) {
				continue
			}
			w.Expired = w.Until < today
			f.Waiver = &w
			if !w.Expired {
				f.State = Waived
				break
			}
		}
	}
}

// covers reports whether the waiver is about the finding.
func (w *Waiver) covers(f *Finding) bool {
	if w.Rule != f.ID {
		return false
	}
	return w.Scope == "*" || w.Scope == f.Object && w.Scope != "" || f.Device != nil && w.Scope == f.Device.String()
}

// Severity returns what a rule's failure weighs under the profile.
func (p *Profile) Severity(r *Rule) isolation.Severity {
	if s, ok := p.Severities[r.ID]; ok {
		return s
	}
	return r.Severity
}

// ProfileNamed returns the profile of that name.
func ProfileNamed(name string) (Profile, bool) {
	i := slices.IndexFunc(Profiles(), func(p Profile) bool { return p.Name == name })
	if i < 0 {
		return Profile{}, false
	}
	return Profiles()[i], true
}
