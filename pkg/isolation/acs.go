package isolation

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// requiredACS is what the kernel requires of each port before it gives the devices below separate groups (REQ_ACS_FLAGS
// in drivers/iommu/iommu.c): devices can't spoof their requester id, and requests and completions go up to the IOMMU
// even if the target is below the same port.
const requiredACS = pci.ACSSourceValidation | pci.ACSRequestRedirect |
	pci.ACSCompletionRedirect | pci.ACSUpstreamForwarding

// ACSState is the protection from peer-to-peer requests by a function's registers.
type ACSState string

// ACS states, by the kernel's rules.
const (
	ACSOn ACSState = "on"
	// ACSOff: a switch that the capability offers is off.
	ACSOff ACSState = "off"
	// ACSAbsent: the capability is missing where one is needed.
	ACSAbsent ACSState = "absent"
	// ACSUnknown: configuration space was not read that far, or the registers
	// don't follow the standard.
	ACSUnknown ACSState = "unknown"
)

// ReadACS applies the kernel's pci_acs_enabled (drivers/pci/pci.c) to the registers of f, without the kernel's table of
// quirks. It is evidence, not the verdict: if the two differ, the IOMMU groups show the kernel's decision.
func ReadACS(s *device.Snapshot, f *device.Function) ACSState {
	express := f.Capabilities.Express
	switch {
	case express == nil && f.Capabilities.Truncated:
		return ACSUnknown
	case express == nil:
		return ACSAbsent // a conventional bus is shared: every device on it can listen
	}
	switch express.Type {
	// The PCIe specification excludes ACS on PCIe-to-PCI bridges and event collectors (PCIe 3.0, section 6.12.1). The
	// kernel treats a PCI-to-PCIe bridge like a conventional device, because its primary side is one.
	case pci.PCIeToPCI, pci.PCIToPCIe, pci.RCEventCollector:
		return ACSAbsent
	case pci.Endpoint, pci.LegacyEndpoint, pci.UpstreamPort, pci.RCEndpoint:
		// A single-function device has no peer inside the device, so it needs no ACS. The port above it decides.
		if !multifunction(s, f) {
			return ACSOn
		}
	// A port can route between the devices below it or to its sibling ports, so its registers always count.
	case pci.RootPort, pci.DownstreamPort:
	}
	return acsRegisters(f)
}

// acsRegisters applies pci_acs_flags_enabled: controls that the capability lacks count as hard-wired on.
func acsRegisters(f *device.Function) ACSState {
	acs := f.Capabilities.ACS
	switch {
	case acs == nil && f.Capabilities.Truncated, oddACS(f):
		return ACSUnknown
	case acs == nil:
		return ACSAbsent
	case missingACS(acs) == 0:
		return ACSOn
	}
	return ACSOff
}

// missingACS returns the required ACS controls that the port has but does not enable.
func missingACS(acs *pci.ACS) uint16 {
	return requiredACS & acs.Capability &^ acs.Control
}

// oddACS reports whether f is one of the Intel PCH root ports whose ACS registers are 32 bits wide, so that the
// value at the usual offset is not the control register (pci_quirk_intel_spt_pch_acs_match in
// drivers/pci/quirks.c).
func oddACS(f *device.Function) bool {
	if f.Vendor != 0x8086 || f.Capabilities.Express.Type != pci.RootPort {
		return false
	}
	for _, ids := range [][2]pci.ID{{0xa110, 0xa11f}, {0xa167, 0xa16a}, {0xa290, 0xa29f}, {0xa2e7, 0xa2ee}, {0x9d10, 0x9d1b}} {
		if ids[0] <= f.Device && f.Device <= ids[1] {
			return true
		}
	}
	return false
}

// multifunction reports whether f shares its device with other functions. The kernel uses the header's multi-function bit,
// and sets it for every function after the first. A device with the bit and a single function has no internal peer, so the
// difference does not matter. A VF never counts (pci_iov_add_virtfn).
func multifunction(s *device.Snapshot, f *device.Function) bool {
	if f.VF != nil {
		return false
	}
	for _, mate := range s.Slot(f) {
		if mate.Address != f.Address && mate.VF == nil {
			return true
		}
	}
	return false
}

// peers verifies that the ACS registers match the group's isolation.
//
// The kernel decided at boot: had a port above f not blocked peer-to-peer requests, f would be in that port's
// group (pci_device_group). So the group is the verdict, and each port outside it must still have its switches on.
// Without the capability the kernel applied a quirk, which is worth a note. If the port has no group either,
// nothing proves that it isolates.
func (j *judging) peers() {
	if j.group == nil {
		return
	}
	for i, bridge := range slices.Backward(j.f.Upstream) {
		port, ok := j.s.Function(bridge)
		switch {
		case ok && !j.inGroup(port):
			j.port(port)
		case ok && i > 0 && isDownstream(port):
			j.switchPort(port, j.f.Upstream[i-1])
		}
	}
	if multifunction(j.s, j.f) && j.slotIsSplit() {
		j.function()
	}
}

func isDownstream(p *device.Function) bool {
	return p.Capabilities.Express != nil && p.Capabilities.Express.Type == pci.DownstreamPort
}

// switchPort judges a switch's downstream port that is in the function's group because the port does not block
// peer-to-peer requests. The kernel (as of Linux 6.12) still gives each such port its own group, because
// pci_device_group looks up the path, not across the switch. But the switch routes requests between its ports
// without passing the IOMMU, so the groups are not isolated.
func (j *judging) switchPort(p *device.Function, upstream pci.Address) {
	neighbor, ok := j.neighbor(upstream)
	if state := ReadACS(j.s, p); !ok || state == ACSOn {
		return
	}
	j.reason(rule.Verdict{
		Code: rule.PeerToPeerPossible, Culprit: new(p.Address), Evidence: j.sawACS(p),
		Text: fmt.Sprintf("switch port %s above %s does not redirect requests by ACS: they can reach %s, which is in another group below the same switch, without passing the IOMMU",
			p.Address, j.f.Address, neighbor),
		Fix: fmt.Sprintf("%s; or give all devices below %s to one tenant by a DeviceClass with `allowUnisolated: true`", Separate(j.s, j.f), upstream),
	})
}

// neighbor returns the first endpoint below a switch that is in another group.
func (j *judging) neighbor(upstream pci.Address) (pci.Address, bool) {
	for i := range j.s.Functions {
		if f := &j.s.Functions[i]; isEndpoint(f) && !j.inGroup(f) && slices.Contains(f.Upstream, upstream) {
			return f.Address, true
		}
	}
	return pci.Address{}, false
}

// isEndpoint reports whether a function below a switch sends and gets requests of its own. A function with an endpoint's
// header may do so, whatever its class.
func isEndpoint(f *device.Function) bool {
	return !f.IsBridge() || f.Capabilities.Header == pci.HeaderNormal
}

func (j *judging) inGroup(f *device.Function) bool {
	return f.Group != nil && *f.Group == j.group.Number
}

// slotIsSplit reports whether a function of f's device is in another group.
func (j *judging) slotIsSplit() bool {
	for _, mate := range j.s.Slot(j.f) {
		if mate.VF == nil && !j.inGroup(mate) {
			return true
		}
	}
	return false
}

// port judges one port on the path that is outside the group.
func (j *judging) port(p *device.Function) {
	seen := j.sawACS(p)
	state := ReadACS(j.s, p)
	vouched := p.Group != nil
	r := rule.Verdict{Code: rule.PeerToPeerPossible, Culprit: new(p.Address), Evidence: seen}
	switch {
	// VFIO relies on the groups that the kernel formed before and does not read ACS again, so it would still accept
	// this group.
	case state == ACSOff:
		r.Text = fmt.Sprintf("port %s above %s has %s switched off: requests can reach other devices below it without passing the IOMMU",
			p.Address, j.f.Address, ACSNames(missingACS(p.Capabilities.ACS)))
		r.Fix = restoreACS(p)
		j.reason(r)
	// A port that is in another group passed the kernel's check when the groups were formed, by its registers or by a
	// quirk. A port without a group proves nothing.
	case state == ACSAbsent && !vouched:
		r.Text = fmt.Sprintf("port %s above %s has no ACS and no IOMMU group: requests can reach other devices below it without passing the IOMMU", p.Address, j.f.Address)
		r.Fix = otherSlotFix(j.f.Address.String())
		j.reason(r)
	case state == ACSAbsent:
		j.unproven(p, seen, fmt.Sprintf("port %s above %s shows no ACS, but the kernel treats it as isolating", p.Address, j.f.Address))
	case state == ACSUnknown:
		j.unreadable(p, seen)
	}
}

// function judges f itself against the other functions of its device.
func (j *judging) function() {
	seen := j.sawACS(j.f)
	switch ReadACS(j.s, j.f) {
	case ACSOn:
	case ACSOff:
		j.reason(rule.Verdict{
			Code: rule.PeerToPeerPossible, Evidence: seen,
			Text: fmt.Sprintf("%s has %s switched off: it can reach the other functions of its device, which are in other groups, without passing the IOMMU",
				j.f.Address, ACSNames(missingACS(j.f.Capabilities.ACS))),
			Fix: restoreACS(j.f),
		})
	case ACSAbsent:
		j.unproven(j.f, seen, fmt.Sprintf("%s shows no ACS, but the kernel isolates it from the other functions of its device", j.f.Address))
	case ACSUnknown:
		j.unreadable(j.f, seen)
	}
}

func (j *judging) unproven(p *device.Function, seen []rule.Evidence, text string) {
	j.note(rule.Verdict{
		Code: rule.ACSUnproven, Culprit: new(p.Address), Evidence: seen,
		Text: text,
		Fix:  rule.ACSUnproven.Fix(),
	})
}

func (j *judging) unreadable(p *device.Function, seen []rule.Evidence) {
	j.note(rule.Verdict{
		Code: rule.ACSUnreadable, Culprit: new(p.Address), Evidence: seen,
		Text: fmt.Sprintf("ACS of %s can't be read in a standard form, so only its IOMMU group shows that it isolates", p.Address),
		Fix:  rule.ACSUnreadable.Fix(),
	})
}

// sawACS records a function's ACS registers.
func (j *judging) sawACS(f *device.Function) []rule.Evidence {
	value := "no ACS capability"
	if acs := f.Capabilities.ACS; acs != nil {
		value = fmt.Sprintf("ACS capability 0x%04x, control 0x%04x", acs.Capability, acs.Control)
	} else if f.Capabilities.Truncated {
		value = "extended capabilities not readable"
	}
	return j.saw(attribute(f.Address, "config"), value)
}

// restoreACS returns the way to switch a port's ACS on again.
func restoreACS(p *device.Function) string {
	control := p.Capabilities.ACS.Control | missingACS(p.Capabilities.ACS)
	return fmt.Sprintf("find what cleared it (a kernel argument, a GPUDirect or tuning script): %s; to enable it now: `%s`",
		ACSAtBoot(p), SetACS(p.Address, control))
}

// ACSNames names ACS switches in lspci's words: "SrcValid, ReqRedir".
func ACSNames(bits uint16) string {
	var names []string
	for _, b := range []struct {
		bit  uint16
		name string
	}{
		{pci.ACSSourceValidation, "SrcValid"},
		{pci.ACSTranslationBlocking, "TransBlk"},
		{pci.ACSRequestRedirect, "ReqRedir"},
		{pci.ACSCompletionRedirect, "CmpltRedir"},
		{pci.ACSUpstreamForwarding, "UpstreamFwd"},
		{pci.ACSEgressControl, "EgressCtrl"},
		{pci.ACSDirectTranslated, "DirectTrans"},
	} {
		if bits&b.bit != 0 {
			names = append(names, b.name)
		}
	}
	return strings.Join(names, ", ")
}

// translation notes ATS: translated requests pass the IOMMU unchecked. If a port above has Direct Translated P2P on, they
// don't even reach it.
func (j *judging) translation() {
	if ats := j.f.Capabilities.ATS; ats == nil || !ats.Enabled {
		return
	}
	r := rule.Verdict{
		Code:     rule.ATSEnabled,
		Text:     fmt.Sprintf("%s has ATS enabled: the IOMMU trusts addresses that it marks as translated", j.f.Address),
		Fix:      atsFix(j.s, j.f),
		Evidence: j.saw(attribute(j.f.Address, "config"), "ATS enabled"),
	}
	for _, addr := range j.f.Upstream {
		port, ok := j.s.Function(addr)
		if !ok || port.Capabilities.ACS == nil || port.Capabilities.ACS.Control&pci.ACSDirectTranslated == 0 {
			continue
		}
		// Direct Translated P2P exempts translated requests from the redirection (PCIe Base Specification, section
		// 6.12), so the port forwards them although its other controls are on.
		r.Culprit = new(addr)
		r.Text = fmt.Sprintf("%s has ATS on and port %s has DirectTrans on: requests marked as translated reach other devices below that port without passing the IOMMU", j.f.Address, addr)
		r.Fix = DirectTranslatedFix(j.s, port)
		r.Evidence = append(r.Evidence, j.sawACS(port)...)
	}
	j.note(r)
}

// firstVMDDomain is the first PCI domain that Intel's VMD driver gives the functions behind it (vmd_find_free_domain in
// drivers/pci/controller/vmd.c).
const firstVMDDomain = 0x10000

// BehindVMD reports whether Intel's VMD (Volume Management Device) hides a function from the platform: such a function has
// no IOMMU group of its own.
func BehindVMD(a pci.Address) bool { return a.Domain >= firstVMDDomain }

// Separate returns the way to give f a separate IOMMU group, as a phrase for a fix. The kernel forms groups when it finds
// a function, by the ACS of the ports above it.
func Separate(s *device.Snapshot, f *device.Function) string {
	if BehindVMD(f.Address) {
		return "disable VMD (Intel Volume Management Device) for the slot of " + f.Address.String() + " in the firmware setup: all functions behind VMD share its IOMMU group"
	}
	for _, addr := range slices.Backward(f.Upstream) {
		if port, ok := s.Function(addr); ok && port.Capabilities.Express != nil && ReadACS(s, port) == ACSOff {
			return fmt.Sprintf("switch ACS of port %s on: %s", addr, ACSAtBoot(port))
		}
	}
	if f.IsNVSwitch() { // soldered to its board
		return "enable ACS of the ports above " + f.Address.String() + " in the firmware setup, or update the firmware"
	}
	return otherSlotFix(f.Address.String())
}

// ACSAtBoot returns the way to make the kernel enable a port's ACS. The port has ACS.
func ACSAtBoot(p *device.Function) string {
	return acsAtBootBy(acsFlags(missingACS(p.Capabilities.ACS)) + "@" + p.Address.String())
}

// acsFlags returns controls in the form of config_acs, the lowest on the right: 1 is on, x is unchanged.
func acsFlags(on uint16) string {
	flags := []byte("xxxxxxx")
	for i := range flags {
		if on&(1<<i) != 0 {
			flags[len(flags)-1-i] = '1'
		}
	}
	return string(flags)
}
