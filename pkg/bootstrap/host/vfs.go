package host

import (
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

const vfPart = "virtualFunctions"

// physicalFunction is a PF of the blueprint with a known address.
type physicalFunction struct {
	address pci.Address
	vfs     int
	// switched is true if the PF's eswitch mode has to be set first, which only the plugin can do.
	switched bool
}

// physicalFunctions returns the PFs that the blueprint names.
func (n *node) physicalFunctions() []physicalFunction {
	var all []physicalFunction
	for i, asked := range n.blueprint.VirtualFunctions {
		address, ok := n.findAddress(asked)
		if asked.Optional && (!ok || n.lacks(address)) {
			continue
		}
		if !ok {
			n.problem(state.Problem{
				Part: vfPart, Code: rule.Absent, Fatal: true, Text: fmt.Sprintf("virtualFunctions[%d]: the node has no interface %s", i, asked.PF),
				Fix: "use the PF's address (`kata-vfio-audit devices` lists addresses); an image has no interfaces",
			})
			continue
		}
		pf := physicalFunction{address, *asked.Count, asked.EswitchMode != ""}
		if n.platform.Live {
			n.judge(&pf, asked.PF)
		}
		all = append(all, pf)
	}
	if len(all) > 0 {
		n.otherWriters(all)
	}
	return all
}

// findAddress returns the address of a PF that the blueprint names by address or interface.
func (n *node) findAddress(asked v1alpha1.VFRule) (pci.Address, bool) {
	if address, err := pci.ParseAddress(asked.PF); err == nil {
		return address, true
	}
	uevent, _ := n.text(vfPart, path.Join("sys/class/net", asked.PF, "device/uevent"))
	address, err := pci.ParseAddress(line(uevent, "PCI_SLOT_NAME="))
	return address, err == nil
}

// lacks reports whether the running node does not have the function. It is false for an image, which shows no functions.
func (n *node) lacks(a pci.Address) bool {
	if !n.platform.Live {
		return false
	}
	_, there, _ := n.attribute(vfPart, function(a, "uevent"))
	return !there
}

// line returns the rest of the first line with a prefix.
func line(text, prefix string) string {
	for l := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(l), prefix); ok {
			return rest
		}
	}
	return ""
}

func function(a pci.Address, attribute string) string {
	return path.Join("sys/bus/pci/devices", a.String(), attribute)
}

// judge refuses a number of VFs that the hardware does not support, and requires the setting from the next boot on. It
// never changes the running number of VFs: only the plugin knows whether a VF is in use (`kata-vfio-plugin
// provision`).
func (n *node) judge(pf *physicalFunction, name string) {
	if n.lacks(pf.address) {
		n.problem(state.Problem{
			Part: vfPart, Code: rule.Absent, Fatal: true, Text: fmt.Sprintf("virtualFunctions names PF %s, but the node has no such function", name),
			Fix: "correct the blueprint (`kata-vfio-audit devices` lists functions); if the function exists, enable its slot in the firmware setup",
		})
		return
	}
	total, there := n.text(vfPart, function(pf.address, "sriov_totalvfs"))
	most, err := strconv.Atoi(total)
	switch {
	case !there || err == nil && most == 0 && pf.vfs > 0:
		n.problem(state.Problem{
			Part: vfPart, Code: rule.TooFewVFs, Fatal: true, Text: fmt.Sprintf("PF %s supports no VFs", name),
			Fix: "enable SR-IOV in the firmware setup (often \"SR-IOV Support\" below PCIe), and in the NIC's own setup if it has one",
		})
		return
	case err != nil:
		n.problem(state.Problem{
			Part: vfPart, Code: rule.TooFewVFs, Fatal: true, Text: fmt.Sprintf("PF %s supports an unknown number of VFs: sriov_totalvfs is %q, which is not a number", name, total),
			Fix: "check the driver of the PF and the kernel's log",
		})
		return
	case most < pf.vfs:
		n.problem(state.Problem{
			Part: vfPart, Code: rule.TooFewVFs, Fatal: true, Text: fmt.Sprintf("the blueprint requires %d VFs of PF %s, which supports %d", pf.vfs, name, most),
			Fix: "raise the number of VFs in the NIC's own setup, or lower virtualFunctions in the blueprint",
		})
		return
	}
	n.setting(state.Setting{
		Part: vfPart, Path: function(pf.address, "sriov_drivers_autoprobe"), Value: "0", Why: "no host driver binds the VFs of " + name,
	})
	if !pf.switched {
		n.setting(state.Setting{
			Part: vfPart, Path: function(pf.address, "sriov_numvfs"), Value: strconv.Itoa(pf.vfs), AtBoot: true,
			Why: fmt.Sprintf("PF %s has its VFs; `kata-vfio-plugin provision` creates them without a reboot", name),
		})
	}
}
