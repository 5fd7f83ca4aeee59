package host

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/nodeconfig"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// nodeConfigFile says which functions are the plugin's. Where the chart's ConfigMap does, no file of the node tells.
const nodeConfigFile = "etc/kata-vfio/node.yaml"

// boundByPolicy refuses early binding of functions that the node's config does not have bound: on demand means that the node has them
// until a claim comes, and none of its drivers would ever get them.
func (n *node) boundByPolicy() {
	text, there := n.text(initramfsPart, nodeConfigFile)
	if !there {
		return
	}
	cfg, err := v1alpha1.DecodeNodeConfig([]byte(text))
	if err != nil {
		n.problem(state.Problem{
			Part: initramfsPart, Fatal: true, Path: nodeConfigFile, Text: fmt.Sprintf("kernel.earlyBinding is for functions of policy bound, and the node config does not tell: %v", err),
			Fix: "mend /" + nodeConfigFile,
		})
		return
	}
	for _, a := range n.blueprint.VFIO.KeepOff {
		n.boundBy(cfg, a)
	}
}

func (n *node) boundBy(cfg *v1alpha1.NodeConfig, a pci.Address) {
	snapshot, there := n.snapshot(a)
	choice := nodeconfig.Select(cfg, snapshot).Choice(a)
	switch {
	case choice.Ours && choice.Policy == v1alpha1.PolicyBound:
	case !there: // a rule may go by what it is
		n.problem(state.Problem{
			Part: initramfsPart, Path: nodeConfigFile, Text: fmt.Sprintf("kernel.earlyBinding is for functions of policy bound, and whether the node config has %s so can't be told where it is not seen", a),
			Fix: "name it by its address in a rule of /" + nodeConfigFile + " with policy: bound",
		})
	default:
		is := "not ours: " + choice.Why
		if choice.Ours {
			is = fmt.Sprintf("of policy %s (%s)", choice.Policy, choice.Rule)
		}
		n.problem(state.Problem{
			Part: initramfsPart, Fatal: true, Path: nodeConfigFile, Text: fmt.Sprintf("kernel.earlyBinding is for functions of policy bound, and by /%s %s is %s", nodeConfigFile, a, is),
			Fix: "give it policy: bound there, or leave kernel.earlyBinding out of the blueprint",
		})
	}
}

// snapshot has a function, as far as rules ask, and its PF. Of one that is not there its address is known.
func (n *node) snapshot(a pci.Address) (s *device.Snapshot, there bool) {
	f := device.Function{Address: a}
	class, there := n.number(a, "class")
	if !there {
		return &device.Snapshot{Functions: []device.Function{f}}, false
	}
	vendor, _ := n.number(a, "vendor")
	id, _ := n.number(a, "device")
	f.Class, f.Vendor, f.Device = pci.Class(class), pci.ID(vendor), pci.ID(id)
	all := []device.Function{}
	physical, _ := n.text(initramfsPart, function(a, "physfn/uevent"))
	if pf, err := pci.ParseAddress(line(physical, "PCI_SLOT_NAME=")); err == nil {
		nets, _ := n.tree.ReadDir(function(a, "physfn/net")) // a PF without a driver has none
		f.VF = &device.VF{PF: pf}
		all = append(all, device.Function{Address: pf, Children: device.Children{Net: nets}})
	}
	_, isPF := n.text(initramfsPart, function(a, "sriov_totalvfs"))
	f.Type = device.Classify(f.Class, isPF, f.VF != nil)
	all = append(all, f)
	slices.SortFunc(all, func(a, b device.Function) int { return a.Address.Compare(b.Address) })
	return &device.Snapshot{Functions: all}, true
}

// number is one of a function's attributes in hexadecimal.
func (n *node) number(a pci.Address, attribute string) (uint64, bool) {
	text, there := n.text(initramfsPart, function(a, attribute))
	number, err := strconv.ParseUint(strings.TrimPrefix(text, "0x"), 16, 32)
	return number, there && err == nil
}
