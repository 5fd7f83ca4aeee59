package finding

import (
	"fmt"
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// Waiver accepts a failure for a time. The check still runs.
type Waiver struct {
	// Rule is the rule's id, and Scope the scope of the waiver: a device address, an object, [WholeNode] for a failure of
	// the node as a whole, or "*" for all.
	Rule  string `json:"rule"`
	Scope string `json:"scope"`
	// Until is the last day, "2027-03-31".
	Until  string `json:"until"`
	Reason string `json:"reason"`
	Author string `json:"author"`
	// Expired is set if Until has passed: the failure counts again.
	Expired bool `json:"expired,omitempty"`
}

// UnusedWords warns of a waiver that [Unused] returns.
func (w *Waiver) UnusedWords() string {
	return fmt.Sprintf("the waiver of %s for %q accepts nothing: no such failure is of that scope; the scope is a finding's object in `kata-vfio-audit node -o json`, a device, %q for a failure of the whole node, or \"*\"",
		w.Rule, w.Scope, WholeNode)
}

// WholeNode is the scope of a failure that names neither a device nor an object.
const WholeNode = "node"

// Apply sets the state of each failure that a waiver covers to Waived. If the waiver has expired, the state stays Fail, and Waiver
// is set. A failure of several devices is waived if each of them is. today is a day as in Waiver.Until, which is itself still
// covered.
func Apply(waivers []Waiver, today string, findings []Finding) {
	for i := range findings {
		f := &findings[i]
		if f.State != Fail {
			continue
		}
		for _, w := range waivers {
			if !w.covers(f) && (!w.concerns(f) || !allWaived(waivers, today, f)) {
				continue
			}
			// Days are compared as text. An expired waiver does not end the loop, because another waiver may still be valid.
			w.Expired = w.Until < today
			f.Waiver = &w
			if !w.Expired {
				f.State = Waived
				break
			}
		}
	}
}

// covers reports whether the waiver is about the whole finding.
func (w *Waiver) covers(f *Finding) bool {
	if w.Rule != f.ID {
		return false
	}
	switch w.Scope {
	case "":
		return false
	case "*", f.Object:
		return true
	case WholeNode:
		return f.Device == nil && f.Object == ""
	}
	return f.Device != nil && w.Scope == f.Device.String()
}

// concerns reports whether the waiver covers the finding, or accepts it for one device. This is one of several devices that the
// finding names, or any device if it names none, because a failure of the whole node counts against each device.
func (w *Waiver) concerns(f *Finding) bool {
	switch {
	case w.Rule != f.ID:
		return false
	case w.covers(f):
		return true
	case len(f.Devices) == 0:
		_, err := pci.ParseAddress(w.Scope)
		return err == nil
	}
	return slices.ContainsFunc(f.Devices, func(a pci.Address) bool { return w.Scope == a.String() })
}

// allWaived reports whether each device of a finding has a waiver of its own that counts.
func allWaived(waivers []Waiver, today string, f *Finding) bool {
	return len(f.Devices) > 0 && !slices.ContainsFunc(f.Devices, func(a pci.Address) bool { return !WaivedFor(waivers, today, f.ID, a) })
}

// WaivedFor reports whether a waiver accepts the rule's failures for one device, including those of the node as a whole.
func WaivedFor(waivers []Waiver, today, id string, a pci.Address) bool {
	return slices.ContainsFunc(waivers, func(w Waiver) bool {
		return w.Rule == id && w.Scope == a.String() && w.Until >= today
	})
}

// Unused returns the waivers that match no failure, although their rules were checked.
func Unused(waivers []Waiver, findings []Finding) []Waiver {
	var unused []Waiver
	for _, w := range waivers {
		asked, used := false, false
		for i := range findings {
			f := &findings[i]
			asked = asked || f.ID == w.Rule
			used = used || (f.State == Waived || f.State == Fail) && w.concerns(f)
		}
		if asked && !used {
			unused = append(unused, w)
		}
	}
	return unused
}

// ProfileNamed returns the profile of that name.
func ProfileNamed(name string) (Profile, bool) {
	i := slices.IndexFunc(Profiles(), func(p Profile) bool { return p.Name == name })
	if i < 0 {
		return Profile{}, false
	}
	return Profiles()[i], true
}

// Severity returns the severity of a rule's failure under the profile.
func (p *Profile) Severity(r *rule.Rule) rule.Severity {
	if s, ok := p.Severities[r.ID]; ok {
		return s
	}
	return r.Severity
}
