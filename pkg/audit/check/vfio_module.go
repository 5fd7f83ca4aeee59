package check

import (
	"fmt"
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/audit/facts"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// vfioModuleChecks returns the checks of vfio-pci's parameters.
func vfioModuleChecks() []Check {
	parameters := "grep -H . /sys/module/vfio_pci/parameters/*; grep -r 'vfio.pci' /etc/modprobe.d /proc/cmdline"
	source := []string{"Linux: drivers/vfio/pci/vfio_pci.c"}
	return []Check{
		{Rule: finding.Rule{
			ID: "VFIO-001", Title: "vfio-pci's list of denied devices is in force", Severity: isolation.High, Cheap: true,
			Why:    "the list has devices with errata that an untrusted user exploits, in the kernel's own words",
			Fix:    "take disable_denylist out of modprobe.d and the command line, and load the module again",
			Verify: parameters, Sources: source,
		}, Judge: func(n *facts.Node) []finding.Finding {
			return moduleSays(n, "disable_denylist", "the list is switched off", "N")
		}},
		{Rule: finding.Rule{
			ID: "VFIO-002", Title: "A PF in user space can't make VFs", Severity: isolation.High, Cheap: true,
			Why:    "who has the PF by VFIO controls the VFs that others use",
			Fix:    "`echo N > /sys/module/vfio_pci/parameters/enable_sriov`, and take it out of modprobe.d",
			Verify: parameters, Sources: source,
		}, Judge: func(n *facts.Node) []finding.Finding {
			return moduleSays(n, "enable_sriov", "VFs can be made of a PF that a VM or process has", "N")
		}},
		{Rule: finding.Rule{
			ID: "VFIO-015", Title: "vfio-pci masks interrupts at the function and leaves legacy VGA alone", Severity: isolation.Low, Cheap: true,
			Why:    "masking at the interrupt controller reaches other devices on the line, and legacy VGA is one range for all cards",
			Fix:    "options vfio-pci nointxmask=N disable_vga=Y",
			Verify: parameters, Sources: source,
		}, Judge: legacyOff},
	}
}

// moduleSays judges a parameter of vfio-pci's that is good with one value.
func moduleSays(n *facts.Node, name, bad, good string) []finding.Finding {
	s := n.Parameter("vfio_pci", name)
	switch {
	case s.Running.Status == facts.Absent:
		return setLater(notApplicable("vfio-pci is not loaded, or has no such parameter", s.Running), &s, good)
	case !s.Running.OK():
		return unknown(name, s.Running)
	case !isAny(s.Running.Value, []string{good}):
		return pending(fail(bad, s.Running), &s, good)
	}
	return setLater(pass(name+"="+s.Running.Value, s.Running), &s, good)
}

// legacyOff asks for VGA only where a card of that class is given away.
func legacyOff(n *facts.Node) []finding.Finding {
	said := moduleSays(n, "nointxmask", "interrupts are masked at the interrupt controller", "N")
	vga := slices.ContainsFunc(assignable(n), func(f *device.Function) bool { return f.Class.Sub() == pci.ClassVGA })
	if !vga || said[0].State == finding.Fail {
		return said
	}
	legacy := moduleSays(n, "disable_vga", fmt.Sprintf("who has a VGA card can reach the legacy range of all (class %04x)", uint16(pci.ClassVGA)), "Y")
	if legacy[0].State == finding.NotApplicable { // a kernel without CONFIG_VFIO_PCI_VGA
		return said
	}
	return legacy
}
