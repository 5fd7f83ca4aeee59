package plan

import (
	"fmt"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/claim"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// wholeBoard refuses an NVSwitch if the claim lacks a GPU or another NVSwitch of its board, because the switch routes
// to the memory of all GPUs. No attribute shows which board a GPU is on, so all GPUs and switches of the node count. An
// [Assessor] assesses without a claim, so it skips this check.
func (c *candidate) wholeBoard() *rule.Verdict {
	if !c.f.IsNVSwitch() || c.asked == nil || c.tolerated(rule.PeerToPeerPossible) {
		return nil
	}
	var lacking []string
	var first *device.Function
	for i := range c.node.Snapshot.Functions {
		f := &c.node.Snapshot.Functions[i]
		if !c.asked[f.Address] && f.IsOnNVLink() {
			lacking = append(lacking, f.Address.String())
			if first == nil {
				first = f
			}
		}
	}
	if first == nil {
		return nil
	}
	return c.mate(first, rule.NotIsolated,
		fmt.Sprintf("%s reaches the memory of all GPUs of its board, and the claim does not have %s", switchWords(c.f), strings.Join(lacking, ", ")),
		c.wholeBoardFix())
}

// switchWords names an NVSwitch, or what manages NVSwitches.
func switchWords(f *device.Function) string {
	if f.ManagesSwitches() {
		return fmt.Sprintf("%s manages the NVSwitches, and so", f.Address)
	}
	return fmt.Sprintf("NVSwitch %s", f.Address)
}

// wholeBoardFix says how a claim gets a whole board. Members that share an IOMMU group must be separated first, unless
// Kata plugs whole groups: see [candidate.pluggableTogether].
func (c *candidate) wholeBoardFix() string {
	const together = "request all GPUs and NVSwitches of the node in one claim"
	shared := c.sharingBoard()
	if shared == nil || c.plugsWholeGroups() {
		return together
	}
	return fmt.Sprintf("%s; then %s. Kata plugs one function of a group into a VM, and %s shares group %d with another of the board",
		isolation.Separate(c.node.Snapshot, shared), together, shared.Address, *shared.Group)
}

// sharingBoard returns a GPU or NVSwitch that shares an IOMMU group with another one; nil if there is none.
func (c *candidate) sharingBoard() *device.Function {
	first := map[int]*device.Function{} // of each group
	for i := range c.node.Snapshot.Functions {
		f := &c.node.Snapshot.Functions[i]
		if f.Group == nil || !f.IsOnNVLink() {
			continue
		}
		if other, ok := first[*f.Group]; ok {
			return other
		}
		first[*f.Group] = f
	}
	return nil
}

// askedFunctions returns the functions that a claim asks for.
func askedFunctions(devices []claim.Device) map[pci.Address]bool {
	asked := make(map[pci.Address]bool, len(devices))
	for i := range devices {
		asked[devices[i].Address] = true
	}
	return asked
}
