// Package largenode does what the plugin does first on a node: it scans the node, judges its functions, and makes its ResourceSlices.
package largenode

import (
	"encoding/json"
	"fmt"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/nodeconfig"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/publish"
)

// Publish decides what is published of a node, and returns the size of its slices in JSON, in bytes.
func Publish(snap *device.Snapshot) (int, error) {
	n := &publish.Node{
		Name: "node", Snapshot: snap, Selection: nodeconfig.Select(nil, snap), Assessments: map[pci.Address]plan.Assessment{},
	}
	assessor := plan.NewAssessor(plan.Node{Snapshot: snap, Selection: n.Selection})
	for _, f := range n.Selection.Ours() {
		n.Assessments[f.Address] = assessor.Assess(f)
	}
	size := 0
	for _, pool := range publish.Pools(n) {
		for _, slice := range pool.Slices { // as the client writes them, one by one
			text, err := json.Marshal(slice)
			if err != nil {
				return 0, fmt.Errorf("encode a slice: %w", err)
			}
			size += len(text)
		}
	}
	return size, nil
}
