package plan

import (
	"fmt"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/fabric"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// FabricPartition is the setting of ProviderFabric. Its values are those of [fabric.Value], or [fabric.NoPartition].
// Each GPU of a partition has the setting, so that the partition ends even if one of the GPUs is gone. The first
// setting that is made joins all GPUs of the partition.
const FabricPartition = "partition"

// fabric decides the partition of a GPU whose links go to NVSwitches: it is the partition of exactly the GPUs that were
// allocated together. A GPU that was allocated alone needs a partition too, because its driver in the VM waits for
// Fabric Manager.
func (c *candidate) fabric() ([]Setting, *rule.Verdict) {
	f := c.node.Selection.Fabric()
	if !f.Has(c.f) {
		return nil, nil
	}
	switch {
	case f.Board == nil:
		return nil, c.mate(c.f, rule.FabricNotReady, fmt.Sprintf("%s is of an NVLink fabric, and no partition of it is known: %s", c.f.Address, f.Why), f.Fix)
	case f.Away != "":
		return nil, c.mate(c.f, rule.FabricNotReady,
			fmt.Sprintf("%s is of an NVLink fabric, and Fabric Manager can't be asked: %s", c.f.Address, f.Away),
			"`systemctl status nvidia-fabricmanager` says why; after that, the taint is removed within a minute")
	case c.asked == nil: // nobody says which GPUs go together
		return nil, nil
	}
	p := f.Board.Partition(c.together())
	if p == nil {
		return nil, c.mate(c.f, rule.UnsupportedSetting,
			fmt.Sprintf("Fabric Manager has no partition of exactly the GPUs of %s", c.published()),
			"delete the claim, so that a new one is allocated from the current ResourceSlices")
	}
	return []Setting{{
		Provider: ProviderFabric, Name: FabricPartition, Want: fabric.Value(p.ID, p.Modules()), Replaces: new(fabric.NoPartition), Activation: true,
	}}, nil
}

// published returns the name under which the candidate was allocated.
func (c *candidate) published() string {
	if c.claimed.Pair != "" {
		return c.claimed.Pair
	}
	return c.claimed.Name
}

// together returns the GPUs that were allocated as one device with the candidate.
func (c *candidate) together() []pci.Address {
	parts, err := device.ParseParts(c.published())
	if err != nil {
		return nil
	}
	var gpus []pci.Address
	for _, p := range parts {
		if p.Type == device.GPU {
			gpus = append(gpus, p.Address)
		}
	}
	return gpus
}
