package main

import (
	"context"

	"github.com/kata-vfio/kata-vfio/test/lab/topology"
)

const sliceUID = "3c1b6f0e-2a57-4d58-8d0e-9b1f4a7c5e21"

// slice shows a slice of a GPU: a VF that becomes a vGPU for its claim.
func (d *demo) slice(ctx context.Context) error {
	d.title("A slice of a GPU (a stand-in for NVIDIA's vGPU driver has the NIC " + topology.PF1 + " look like an H200 with two VFs)")
	vf := topology.VF(topology.PF1, 0)
	pf := sysfs(topology.PF1, "")
	if err := d.quiet(ctx, "modprobe labvgpu; echo nvidia > "+pf+"driver_override; echo "+topology.PF1+" > "+pf+"driver/unbind; "+
		"echo "+topology.PF1+" > /sys/bus/pci/drivers_probe; echo 2 > "+pf+"sriov_numvfs; cp /host/slices.yaml /etc/kata-vfio/node.yaml"); err != nil {
		return err
	}
	types := "cd " + sysfs(vf, "nvidia") + "; head -n 9 current_vgpu_type creatable_vgpu_types"
	for _, line := range []string{
		"cat /etc/kata-vfio/node.yaml",
		"kata-vfio-audit devices | grep -E 'VERDICT|0000:61:'",
		"kata-vfio-plugin prepare --audit-taint off -f /host/slice.yaml --config /etc/kata-vfio/node.yaml",
		types,
		"kata-vfio-plugin unprepare " + sliceUID,
		types,
	} {
		if err := d.show(ctx, line); err != nil {
			return err
		}
	}
	return nil
}
