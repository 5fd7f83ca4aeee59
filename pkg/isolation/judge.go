// Package isolation judges whether a function can be assigned to one tenant without giving it access to another.
// It judges from facts alone, and all packages use the same judgment: prepare enforces it, publish turns it into
// attributes and taints, the audit prints it with its evidence.
package isolation

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// Judgment is the result of the checks of one function's isolation within its group.
type Judgment struct {
	// Isolated is true when there are no Reasons.
	Isolated bool
	// Reasons are worst first; within a severity, in the order of the checks
	// and then of addresses.
	Reasons []rule.Verdict
	// Notes are facts that don't break isolation: ATS on, an identity default
	// domain, group mates that go with the function. Ordered as Reasons are.
	Notes []rule.Verdict
	// Evidence are all facts that were checked.
	Evidence Evidence
	// Reset is the way to reset the function, or nil if there is none.
	Reset *Reset
}

// Has reports whether a reason has the code.
func (v *Judgment) Has(code rule.Code) bool { return rule.HasCode(v.Reasons, code) }

// judging collects the results of [Judge] for one function.
type judging struct {
	s     *device.Snapshot
	known *Judger
	f     *device.Function
	// group is nil when f has none.
	group *device.Group
	v     Judgment
}

// Judge returns the judgment on f. It is deterministic and uses only the snapshot of f. It answers whether a tenant's VM
// with f and its [AssignmentSet] is isolated from the rest of the node. Package plan decides whether f is free.
//
// Unknown facts count as not isolated. For many functions of a snapshot, use a [Judger].
func Judge(s *device.Snapshot, f *device.Function) Judgment { return NewJudger(s).Judge(f) }

// Judge returns the judgment on f, a function of the judger's snapshot: see the function [Judge].
func (k *Judger) Judge(f *device.Function) Judgment {
	j := &judging{s: k.s, known: k, f: f}
	j.group, _ = k.s.GroupWith(f)
	if f.IsBridge() {
		j.bridge()
		return j.sorted()
	}
	// The order is visible: reasons of equal severity keep it (see Judgment.Reasons).
	for _, check := range []func(*judging){
		(*judging).grouped, (*judging).viable, (*judging).interrupts,
		(*judging).reserved, (*judging).peers, (*judging).translation,
		(*judging).domain, (*judging).alive, (*judging).resettable,
	} {
		check(j)
	}
	return j.sorted()
}

// sorted returns the results in a stable order.
func (j *judging) sorted() Judgment {
	worstFirst := func(a, b rule.Verdict) int { return a.Severity.Compare(b.Severity) }
	slices.SortStableFunc(j.v.Reasons, worstFirst)
	slices.SortStableFunc(j.v.Notes, worstFirst)
	j.v.Isolated = len(j.v.Reasons) == 0
	return j.v
}

func (j *judging) reason(r rule.Verdict) { j.v.Reasons = append(j.v.Reasons, weighed(r)) }

func (j *judging) note(r rule.Verdict) { j.v.Notes = append(j.v.Notes, weighed(r)) }

// saw records a fact and returns it, so that a reason can cite it.
func (j *judging) saw(path, value string) []rule.Evidence {
	e := rule.Evidence{Path: path, Value: value}
	j.v.Evidence.add(e)
	return []rule.Evidence{e}
}

// bridge explains why the other checks are left out for a bridge.
func (j *judging) bridge() {
	j.reason(rule.Verdict{
		Code:     rule.Bridge,
		Text:     fmt.Sprintf("%s is a bridge, and a bridge can't be assigned to a VM", j.f.Address),
		Fix:      "give the VM functions below it",
		Evidence: j.saw(attribute(j.f.Address, "class"), "0x"+j.f.Class.String()),
	})
}

// alive checks that the function answers.
func (j *judging) alive() {
	if !j.f.ConfigDead {
		return
	}
	r := rule.Verdict{
		Code:     rule.ConfigSpaceDead,
		Text:     DeadText(j.f),
		Fix:      fixAt(rule.ConfigSpaceDead, "/sys/bus/pci/devices/<address>/remove", attribute(j.f.Address, "remove")),
		Evidence: j.saw(attribute(j.f.Address, "config"), "ff ff ff ff"),
	}
	if j.f.D3cold {
		r.Fix = coldFix(j.f)
		r.Evidence = append(r.Evidence, j.saw(attribute(j.f.Address, "power_state"), "D3cold")...)
	}
	j.reason(r)
}

// DeadText describes the fault of a function whose configuration space reads all ones.
func DeadText(f *device.Function) string {
	if f.D3cold {
		return fmt.Sprintf("%s is in D3cold and does not come back: configuration space reads all ones", f.Address)
	}
	return fmt.Sprintf("configuration space of %s reads all ones: the function does not answer", f.Address)
}

// coldFix is the fix of [rule.ConfigSpaceDead] for a function that lost its power and did not come back. The
// kernel removes the power of an idle function, such as one on vfio-pci that no VM has open, if the function and
// the port above it allow that (Documentation/ABI/testing/sysfs-bus-pci d3cold_allowed, drivers/pci/pci.c
// pci_dev_check_d3cold).
func coldFix(f *device.Function) string {
	files := attribute(f.Address, "d3cold_allowed")
	if n := len(f.Upstream); n > 0 {
		files += " " + attribute(f.Upstream[n-1], "d3cold_allowed")
	}
	return "boot with `vfio_pci.disable_idle_d3=1`, run `echo 0 | tee " + files + "` at each boot, and power-cycle the node"
}

// attribute returns the path of a function's sysfs attribute.
func attribute(a pci.Address, name string) string {
	return "/sys/bus/pci/devices/" + a.String() + "/" + name
}

// groupFile returns the path of a file of an IOMMU group.
func groupFile(number int, name string) string {
	return fmt.Sprintf("/sys/kernel/iommu_groups/%d/%s", number, name)
}

// unbindFix returns the command that takes a function from its driver.
func unbindFix(f *device.Function) string {
	return fmt.Sprintf("unbind %s from %s: `echo %s > /sys/bus/pci/drivers/%s/unbind`", f.Address, f.Driver, f.Address, f.Driver)
}

// fixAt returns the fix of a code, with the path or value of the case in place of the placeholder in the general text.
func fixAt(code rule.Code, placeholder, value string) string {
	return strings.ReplaceAll(code.Fix(), placeholder, value)
}

// acsFixes returns the two halves of the fix of [rule.PeerToPeerPossible]: the first for a port that has ACS, the second for a device whose
// ports have none.
func acsFixes() (switchOn, otherSlot string) {
	switchOn, otherSlot, _ = strings.Cut(rule.PeerToPeerPossible.Fix(), ". Where the port has no ACS, ")
	return strings.TrimPrefix(switchOn, "switch ACS of the port on: "), otherSlot
}

// otherSlotFix is the fix for a device that no change of ACS controls can isolate.
func otherSlotFix(slot string) string {
	_, fix := acsFixes()
	return strings.Replace(fix, "the device", slot, 1)
}

// acsAtBootBy returns how to make the kernel enable ACS at boot. With an IOMMU the kernel enables ACS by itself unless an argument prevents
// it: disable_acs_redir switches redirection off, and config_acs sets each control (Documentation/admin-guide/kernel-parameters.txt, since
// 6.11).
func acsAtBootBy(value string) string {
	fix, _ := acsFixes()
	return strings.Replace(fix, "<flags>@<port>", value, 1)
}
