package plan

import (
	"fmt"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/claim"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// wholeBoard refuses an NVSwitch in a claim that lacks a GPU or another NVSwitch of the board: it routes to the memory of
// all GPUs. No attribute shows which board a GPU is of, so all of the node count. An [Assessor] has no claim and does not ask.
func (c *candidate) wholeBoard() *Refusal {
	if !c.f.IsNVSwitch() || c.asked == nil || c.tolerated(isolation.PeerToPeer) {
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
	return c.mate(first, NotIsolated,
		fmt.Sprintf("NVSwitch %s reaches the memory of all GPUs of its board, and the claim does not have %s", c.f.Address, strings.Join(lacking, ", ")),
		"request all GPUs and NVSwitches of the node in one claim")
}

// askedOf returns the functions that a claim asks for.
func askedOf(devices []claim.Device) map[pci.Address]bool {
	asked := make(map[pci.Address]bool, len(devices))
	for i := range devices {
		asked[devices[i].Address] = true
	}
	return asked
}
