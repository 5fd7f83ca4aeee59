package check

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/facts/runtimes"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// confidentialChecks returns the checks of group CC.
func confidentialChecks() []Check {
	return []Check{
		{ID: "CC-001", Judge: encryptionIsOn},
		{ID: "CC-003", Judge: linksEncrypt},
	}
}

// encryptionIsOn applies to nodes that a module's parameter configures for confidential guests. The
// parameter is on by default in kernels that have it, and shows N if the hardware or its firmware lacks
// support.
func encryptionIsOn(n *facts.Node) Answer {
	var on Answer
	found := over([][2]string{{"kvm_intel", "tdx"}, {"kvm_amd", "sev_snp"}}, func(p [2]string) Answer {
		s := n.Parameter(p[0], p[1])
		next, set := s.Next()
		asked := set && isYes(next) || slices.ContainsFunc(n.Arguments(s.Name), isYes)
		switch {
		case s.Running.On():
			on = append(on, pass(s.Name+" is on", s.Running)...)
			return nil
		case !asked:
			return nil
		case s.Running.Status == facts.Absent:
			return fail(fmt.Sprintf("%s is configured, but %s is not loaded or does not support it", s.Name, p[0]), append(s.Configured, s.Running)...)
		case !s.Running.OK():
			return unknown(s.Name, s.Running)
		}
		return fail(s.Name+" is configured, but off in the kernel", append(s.Configured, s.Running)...)
	})
	return found.or(on).or(notApplicable("the node is not configured for confidential guests"))
}

// confidential reports whether VMs of the handler get devices and are confidential, or that this is unknown.
func confidential(n *facts.Node, h *runtimes.Handler, k *runtimes.Kata) bool {
	return runtimes.TakesDevices(n, h, k) && (!k.OK() || k.Hypervisor("confidential_guest").On())
}

func hasIommufd(n *facts.Node, _ *runtimes.Handler, k *runtimes.Kata) (string, []facts.Fact) {
	seen := says(k.Hypervisor("confidential_guest"))
	iommufd := n.Read("sys/class/misc/iommu/dev")
	if !iommufd.OK() {
		return "its VMs are confidential, but the kernel has no iommufd", append(seen, iommufd)
	}
	for _, f := range n.Functions() {
		if device.IsVFIO(f.Driver) && f.Children.VFIO == "" {
			list := facts.Fact{Path: fmt.Sprintf("/sys/bus/pci/devices/%s/vfio-dev", f.Address), How: "list", Status: facts.Absent}
			return fmt.Sprintf("its VMs are confidential, but %s has only a VFIO group node", f.Address), append(seen, iommufd, list)
		}
	}
	return "", append(seen, iommufd)
}

// confidentialVM is what QEMU's command line has for one (docs/system/confidential-guest-support.rst).
const confidentialVM = "confidential-guest-support="

// agentPolicies checks the confidential VMs that run. No file of the node shows the policy within their
// image.
func agentPolicies(n *facts.Node) Answer {
	vmms := runtimes.VMMs(n)
	vms := slices.DeleteFunc(slices.Clone(vmms), func(v runtimes.VMM) bool { return !v.Has(confidentialVM) })
	if len(vms) == 0 {
		return unseen(n, len(vmms), "which confidential VMs run").or(notApplicable("no confidential VM runs"))
	}
	var seen []facts.Fact
	return over(vms, func(v runtimes.VMM) Answer {
		has, bundle := runtimes.AgentPolicy(n, v.Sandbox)
		seen = append(seen, v.Cmdline, bundle)
		said := fail(fmt.Sprintf("the confidential VM of sandbox %s has no agent policy: the image's applies, which allows everything by default",
			cmp.Or(v.Sandbox, "(unnamed)")), v.Cmdline, bundle)
		switch {
		case has:
			return nil
		// A policy comes with the init data in the sandbox's bundle. Without the bundle, the VM may have one.
		case v.Sandbox == "" || !bundle.OK():
			said = unknown("whether the VM has an agent policy", bundle, v.Cmdline)
		}
		return said.object(fmt.Sprintf("pid %d", v.PID)).reaching(listDevices(n, v.Sandbox)...)
	}).or(pass(count(len(vms), "confidential VM"), seen...))
}

// confidentialMode leaves the answer to a person: the mode is in registers that only the vendor's tools read.
func confidentialMode(n *facts.Node) Answer {
	gpus := slices.DeleteFunc(assignableGPUs(n), func(f *device.Function) bool { return f.Vendor != pci.VendorNVIDIA })
	hardware := encryptionIsOn(n)[0]
	handlers := ofChosen(confidential, hasIommufd)(n)[0]
	switch {
	case len(gpus) == 0:
		return notApplicable("no NVIDIA GPU is assignable")
	case hardware.State == finding.NotApplicable && handlers.State == finding.NotApplicable:
		return notApplicable("the node is not configured for confidential guests")
	}
	said := say(finding.Manual, "the node is configured for confidential guests, but no file shows the mode of its GPUs: query it before you assign them", nil)
	said[0].Evidence = hardware.Evidence
	if handlers.State != finding.NotApplicable {
		said[0].Evidence = append(said[0].Evidence, handlers.Evidence...)
	}
	return said.reaching(addresses(gpus)...)
}

// linksEncrypt looks at the functions that may go to confidential guests.
func linksEncrypt(n *facts.Node) Answer {
	if ofChosen(confidential, hasIommufd)(n)[0].State == finding.NotApplicable {
		return notApplicable("no handler runs confidential VMs with devices")
	}
	registers := one(func(f *device.Function) facts.Fact {
		register, _, _ := linkSecurity(n, f)
		return register
	})
	return each(n, registers, func(f *device.Function) Answer {
		register, tee, err := linkSecurity(n, f)
		switch {
		case err != nil:
			return unknown("whether "+f.Address.String()+" can encrypt its link", register)
		case !tee:
			return fail(f.Address.String()+" has no TDISP: it can't encrypt its link", register)
		}
		return nil
	})
}

// Registers of configuration space with a device's features (include/uapi/linux/pci_regs.h).
const (
	capExpress   = 0x10    // PCI_CAP_ID_EXP
	offDevCap    = 4       // PCI_EXP_DEVCAP
	devCapTEE    = 1 << 30 // PCI_EXP_DEVCAP_TEE
	extendedIDE  = 0x30    // PCI_EXT_CAP_ID_IDE
	extendedMail = 0x2e    // PCI_EXT_CAP_ID_DOE
)

// linkSecurity reports whether a function declares support for TDISP. A VF is judged by its PF.
func linkSecurity(n *facts.Node, f *device.Function) (seen facts.Fact, tee bool, err error) {
	a := f.Address
	if f.VF != nil {
		a = f.VF.PF
	}
	registers, seen := n.Config(a)
	if !seen.OK() {
		return seen, false, fmt.Errorf("%s", cmp.Or(seen.Err, "not present"))
	}
	words := []string{}
	chain, _ := pci.Chain(registers) // capabilities before the damage count
	for _, c := range chain {
		switch {
		case !c.Extended && c.ID == capExpress && c.Offset+offDevCap+4 <= len(registers):
			tee = binary.LittleEndian.Uint32(registers[c.Offset+offDevCap:])&devCapTEE != 0
		case c.Extended && c.ID == extendedIDE:
			words = append(words, "IDE")
		case c.Extended && c.ID == extendedMail:
			words = append(words, "DOE")
		}
	}
	if tee {
		words = append(words, "TEE-IO")
	}
	seen.Value = cmp.Or(strings.Join(words, ", "), "neither IDE nor TEE-IO")
	return seen, tee, nil
}
