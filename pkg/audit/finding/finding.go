// Package finding has the results of an audit: findings with their states, severity, exposure and
// evidence, and the report that they make up. Everything here is a value. Package check makes
// findings, package audit prints them, and the plugin turns them into taints.
package finding

import (
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// State is the result of a check. States are never merged: an unknown result is neither good nor bad.
type State string

// States.
const (
	Pass State = "pass"
	Fail State = "fail"
	// Error: the check itself failed. The result says nothing about the node.
	Error State = "error"
	// Unknown: the node does not show the necessary facts to this reader, or to nobody.
	Unknown State = "unknown"
	// NotApplicable: the node has no object of the check.
	NotApplicable State = "notapplicable"
	// Manual: no file has the answer, so a person has to look.
	Manual State = "manual"
	// Waived: the check fails, and a waiver accepts the failure until a date.
	Waived State = "waived"
)

// States returns all states, those that need attention first.
func States() []State { return []State{Fail, Error, Unknown, Manual, Waived, Pass, NotApplicable} }

// Compare orders states as [States] does.
func (s State) Compare(other State) int { return s.rank() - other.rank() }

func (s State) rank() int { return slices.Index(States(), s) }

// Exposure says who can be affected by a finding. It is computed, not part of a rule: a missing ACS
// bit above an idle slot is less urgent than one between two tenants.
type Exposure string

// Exposures, the worst first.
const (
	// CrossTenant: the finding names functions, and several tenants have some of them now.
	CrossTenant Exposure = "cross-tenant"
	// Allocated: a tenant has one of the affected functions. If the finding affects the whole node, any of its functions counts.
	Allocated Exposure = "allocated"
	// Published: some of the affected functions can be allocated, and no tenant has any of them.
	Published Exposure = "published"
	// WouldBePublished: no plugin publishes on the node, but by its config a plugin would publish affected functions (see [Basis]).
	WouldBePublished Exposure = "would-be-published"
	// Unexposed: tenants can get none of the affected functions.
	Unexposed Exposure = "none"
)

// Compare orders exposures, the worst first.
func (e Exposure) Compare(other Exposure) int { return e.rank() - other.rank() }

func (e Exposure) rank() int {
	return slices.Index(Exposures(), e)
}

// Exposures returns all exposures, the worst first.
func Exposures() []Exposure {
	return []Exposure{CrossTenant, Allocated, Published, WouldBePublished, Unexposed}
}

// About returns the meaning of the exposure, as a phrase.
func (e Exposure) About() string {
	return map[Exposure]string{
		CrossTenant:      "several tenants have functions that the finding names",
		Allocated:        "a tenant has a function that the finding is about",
		Published:        "no tenant has one; the plugin publishes one, or a VFIO driver has one",
		WouldBePublished: "no plugin publishes here; the node's config, or the default one, selects one",
		Unexposed:        "tenants can't get any function that the finding is about",
	}[e]
}

// ExposureWords returns the meaning of each exposure.
func ExposureWords() map[Exposure]string {
	words := map[Exposure]string{}
	for _, e := range Exposures() {
		words[e] = e.About()
	}
	return words
}

// Words returns the exposure for people: "would be published".
func (e Exposure) Words() string {
	if e == WouldBePublished {
		return "would be published"
	}
	return string(e)
}

// Finding is the result of a check for one object, or for all objects that pass. Its JSON names are
// stable for machines.
type Finding struct {
	// ID is the rule's, "IOM-003".
	ID       string        `json:"id"`
	Title    string        `json:"title"`
	State    State         `json:"state"`
	Severity rule.Severity `json:"severity"`
	Exposure Exposure      `json:"exposure"`
	// Device is the function that is at fault or concerned, if there is one.
	Device *pci.Address `json:"device,omitempty"`
	// Object names what the finding is about besides a function: "claim t1/train", "pid 4711 (dpdk)", "/etc/cdi/x.json", "port
	// 0000:3a:00.0". It is empty if the finding is about the whole node or only about Device.
	Object string `json:"object,omitempty"`
	// Devices are all functions in reach, Device included: the blast radius.
	Devices []pci.Address `json:"devices"`
	// Tenants are the tenants that have one of Devices, sorted.
	Tenants []string `json:"tenants"`
	// Text is the finding as one sentence, without its full stop.
	Text string `json:"text"`
	// Pending is set if the running state and the configuration for the next boot differ: "fixed on
	// disk, reboot pending".
	Pending string `json:"pending,omitempty"`
	// Remediation says what to do, in the same form.
	Remediation string `json:"remediation"`
	// Verify is a command by which a person sees the same.
	Verify   string          `json:"verify"`
	Evidence []rule.Evidence `json:"evidence"`
	// LeftOut counts the objects of a pass that were checked in the same way as those in Evidence, but are not in it.
	LeftOut int `json:"evidenceLeftOut,omitempty"`
	// Waiver is set for Waived, and for Fail if the waiver has expired.
	Waiver *Waiver `json:"waiver,omitempty"`
}

// Compare orders findings for people: by state, those that need attention first, then by severity, exposure, ID, device and object.
func (f *Finding) Compare(g *Finding) int {
	for _, c := range []int{
		f.State.Compare(g.State), f.Severity.Compare(g.Severity), f.Exposure.Compare(g.Exposure),
		compareText(f.ID, g.ID), compareDevice(f.Device, g.Device), compareText(f.Object, g.Object),
	} {
		if c != 0 {
			return c
		}
	}
	return compareText(f.Text, g.Text)
}

func compareDevice(a, b *pci.Address) int {
	switch {
	case a == nil && b == nil:
		return 0
	case a == nil:
		return -1
	case b == nil:
		return 1
	}
	return a.Compare(*b)
}
