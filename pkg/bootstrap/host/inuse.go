package host

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/blueprint"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
	"github.com/kata-vfio/kata-vfio/pkg/device"
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

// KeepInUse returns a blueprint that takes no function which the running node needs: a disk that is mounted, a NIC with
// the node's address, a bridge. Each of them in vfio.keepOff is a fatal problem, because the next boot would come up
// without it. So is a disk whose use can't be verified.
func KeepInUse(b *blueprint.Blueprint, s *device.Snapshot, disks map[pci.Address]DiskUse) (*blueprint.Blueprint, []state.Problem) {
	n := &node{blueprint: b}
	free := *b
	free.VFIO.KeepOff = slices.DeleteFunc(slices.Clone(b.VFIO.KeepOff), func(a pci.Address) bool {
		f, there := s.Function(a)
		return there && (n.needed(f, disks[a].Used) || n.unverified(f, disks[a].Unknown))
	})
	return &free, n.wanted.Problems
}

// needed reports whether the node needs a function, and records the problem. The boot console alone does not make it
// needed: a node without its screen still boots.
func (n *node) needed(f *device.Function, disk string) bool {
	code, why, fix := needs(f, disk)
	shown := slices.ContainsFunc(f.Uses, func(u device.Use) bool { return u.Kind == device.UseConsole })
	switch {
	case why != "":
		n.problem(state.Problem{
			Part: udevPart, Code: code, Fatal: true, Text: fmt.Sprintf("vfio.keepOff names %s, but %s, and the next boot would come up without it", f.Address, why),
			Fix: fmt.Sprintf("remove %s from vfio.keepOff%s", f.Address, fix),
		})
	case shown:
		n.problem(state.Problem{
			Part: udevPart, Code: rule.DrivesConsole, Text: fmt.Sprintf("vfio.keepOff names %s, which drives the boot console: its screen shows nothing more once the kernel has started", f.Address),
			Fix: "make sure that you reach the node by network or serial console, or make another GPU the first display in the firmware setup",
		})
	}
	return why != ""
}

// unverified reports whether a disk's use is unknown, and records the problem.
func (n *node) unverified(f *device.Function, why string) bool {
	if why != "" {
		n.problem(state.Problem{
			Part: udevPart, Code: rule.UseUnknown, Fatal: true, Text: fmt.Sprintf("vfio.keepOff names %s, but it is unknown whether the node uses its disks: %s", f.Address, why),
			Fix: fmt.Sprintf("run bootstrap as root on the node itself, or remove %s from vfio.keepOff", f.Address),
		})
	}
	return why != ""
}

// needs returns the reason why the node needs a function, and the steps to assign it anyway. why is empty if the node
// does not need it.
func needs(f *device.Function, disk string) (code rule.Code, why, fix string) {
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
	switch {
	case f.IsBridge():
		return rule.Bridge, "it is a bridge (class " + f.Class.String() + ")", ""
	case f.Class.Sub() == classIOMMU:
		return code, "it is an IOMMU", ""
	case len(uses) > 0:
		return code, "the node uses it: " + strings.Join(uses, ", "), ", or move what uses it elsewhere first"
	}
	return "", "", ""
}
