package host

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/nodeconfig"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// volumeManagement reports the functions behind Intel's VMD that the blueprint or the node config selects. VMD hides NVMe
// drives behind one function and gives them a PCI domain of its own (drivers/pci/controller/vmd.c). Their DMA and interrupts
// are those of the VMD, so no VM can have one of them.
func (n *node) volumeManagement() {
	for _, a := range n.blueprint.VFIO.KeepOff {
		if isolation.BehindVMD(a) {
			n.behindVMD(a, true, "vfio.keepOff names", "")
		}
	}
	for _, a := range n.offeredBehindVMD() {
		if !slices.Contains(n.blueprint.VFIO.KeepOff, a) {
			n.behindVMD(a, false, "the node config selects", facts.NodeConfigFile)
		}
	}
}

func (n *node) behindVMD(a pci.Address, fatal bool, who, file string) {
	n.problem(state.Problem{
		Part: preflightPart, Code: rule.BehindVMD, Fatal: fatal, Path: file,
		Text: fmt.Sprintf("%s %s, which is behind Intel VMD (Volume Management Device) and can't be assigned to a VM", who, a),
		Fix:  "switch VMD off for the slot in the firmware setup, then use the drive's new address (`kata-vfio-audit devices`). A RAID of VMD (VROC) is lost: back up its data first",
	})
}

// offeredBehindVMD returns the functions behind a VMD that the node config in the node's file selects. It returns none if the
// node config can't be decoded. The plugin reports that. Package host does so only with kernel.earlyBinding and
// fabric.activate.
func (n *node) offeredBehindVMD() []pci.Address {
	text, _ := n.text(preflightPart, facts.NodeConfigFile)
	cfg, err := v1alpha1.DecodeNodeConfig([]byte(text))
	if strings.TrimSpace(text) == "" || err != nil {
		return nil
	}
	names, _ := n.tree.ReadDir("sys/bus/pci/devices") // an image has none
	var found []pci.Address
	for _, name := range names {
		a, err := pci.ParseAddress(name)
		if err != nil || !isolation.BehindVMD(a) {
			continue
		}
		if s, there := n.snapshot(a); there && nodeconfig.Select(cfg, s).Choice(a).Ours {
			found = append(found, a)
		}
	}
	return found
}
