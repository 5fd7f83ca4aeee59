package host

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/blueprint"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/nodeconfig"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// classIOMMU is the class of an IOMMU that is a PCI function, as AMD's are.
const classIOMMU = 0x0806

// DiskUse is the use of a function's disks, in addition to [device.Function.Uses]. The zero value means unused.
type DiskUse struct {
	// Used is a phrase that names the used disk; empty if none is used.
	Used string
	// Unknown is the reason why the use can't be verified; empty if it can.
	Unknown string
}

// KeepInUse returns a blueprint whose vfio.keepOff has the functions of [Kept] that the running node does not need. The node
// needs a function with a mounted disk, a NIC with the node's address, the boot console unless the blueprint gives it up, a
// bridge, and whatever else the plugin never takes. If vfio.keepOff names a needed function, that is a fatal problem, because
// the next boot would come up without it. So is a disk whose use can't be verified. A function that only a match selects is
// left to the node, with a warning.
func KeepInUse(b *blueprint.Blueprint, kept []KeptFunction, s *device.Snapshot, disks map[pci.Address]DiskUse) (*blueprint.Blueprint, []state.Problem) {
	n := &node{blueprint: b}
	free := *b
	free.VFIO.KeepOff = nil
	for _, k := range kept {
		f, there := s.Function(k.Address)
		if there && (n.needed(s, f, k, disks[k.Address].Used) || n.drivesConsole(f, k) || n.unverified(k, disks[k.Address].Unknown)) {
			continue
		}
		free.VFIO.KeepOff = append(free.VFIO.KeepOff, k.Address)
	}
	return &free, n.wanted.Problems
}

// needed reports whether the node needs a function for more than its screen, and records the problem.
func (n *node) needed(s *device.Snapshot, f *device.Function, k KeptFunction, disk string) bool {
	code, why, fix := needs(s, f, disk)
	if why != "" {
		n.problem(state.Problem{
			Part: udevPart, Code: code, Fatal: k.named(), Text: fmt.Sprintf("%s %s, but %s", k.by(), f.Address, why), Fix: k.without() + fix,
		})
	}
	return why != ""
}

// drivesConsole reports whether the node would lose its screen without the blueprint's permission, and records the problem.
// With the permission, the problem is a warning, because a node without its screen still boots. It is also a warning if the
// function has the firmware's frame buffer, but no console is on it.
func (n *node) drivesConsole(f *device.Function, k KeptFunction) bool {
	isConsole := func(u device.Use) bool { return u.Kind == device.UseConsole }
	if !slices.ContainsFunc(f.Uses, isConsole) {
		return false
	}
	leave := !n.blueprint.VFIO.AllowBootConsole && slices.ContainsFunc(f.Uses, func(u device.Use) bool { return isConsole(u) && u.Detail == "" })
	p := state.Problem{
		Part: udevPart, Code: rule.DrivesConsole, Text: fmt.Sprintf("%s %s, which drives the boot console: its screen shows nothing more once the kernel has started", k.by(), f.Address),
		Fix: "make sure that you reach the node by network or serial console, or make another GPU the first display in the firmware setup",
	}
	if leave {
		p.Fatal = k.named()
		p.Fix = "make another GPU the first display in the firmware setup, or " + k.without() + ". If you reach the node by network or serial console, you can give up its screen: set vfio.allowBootConsole to true"
	}
	n.problem(p)
	return leave
}

// unverified reports whether a disk's use is unknown, and records the problem.
func (n *node) unverified(k KeptFunction, why string) bool {
	if why != "" {
		n.problem(state.Problem{
			Part: udevPart, Code: rule.UseUnknown, Fatal: k.named(), Text: fmt.Sprintf("%s %s, but it is unknown whether the node uses its disks: %s", k.by(), k.Address, why),
			Fix: "run bootstrap as root on the node itself, or " + k.without(),
		})
	}
	return why != ""
}

// needs returns the reason why the node needs a function, and the steps to assign it anyway. why is empty if the node
// does not need it, apart from the boot console.
func needs(s *device.Snapshot, f *device.Function, disk string) (code rule.Code, why, fix string) {
	var uses []string
	for _, u := range f.Uses {
		if u.Kind != device.UseConsole {
			uses = append(uses, u.String())
		}
	}
	code = rule.Forbidden
	if disk != "" {
		if len(uses) == 0 {
			code = rule.DiskInUse
		}
		uses = append(uses, disk)
	}
	const lost = ", and the next boot would come up without it"
	switch {
	case f.IsBridge():
		return rule.Bridge, "it is a bridge (class " + f.Class.String() + ")" + lost, ""
	case f.Class.Sub() == classIOMMU:
		return code, "it is an IOMMU" + lost, ""
	case len(uses) > 0:
		return code, "the node uses it: " + strings.Join(uses, ", ") + lost, ", or move what uses it elsewhere first"
	}
	if why := unusedYetForbidden(s, f.Address); why != "" {
		return code, why, ", or end that use first"
	}
	return "", "", ""
}

// unusedYetForbidden returns the reason why the plugin never takes a function even if the node itself does not use it, or "" if
// there is none. For example, tenants may have its VFs, or its PF.
func unusedYetForbidden(s *device.Snapshot, a pci.Address) string {
	unused := &device.Snapshot{Functions: slices.Clone(s.Functions)}
	if f, there := unused.Function(a); there {
		f.Uses = nil
	}
	if choice := nodeconfig.Select(nil, unused).Choice(a); choice.Forbidden {
		return choice.Why
	}
	return ""
}
