//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"

	"github.com/kata-vfio/kata-vfio/test/docs"
	"github.com/kata-vfio/kata-vfio/test/e2e/node"
	"github.com/kata-vfio/kata-vfio/test/lab/nested/protocol"
	"github.com/kata-vfio/kata-vfio/test/lab/topology"
)

// The vGPU type of the module labvgpu that claims get, with its number.
const (
	vgpuType   = "NVIDIA H200X-35C"
	vgpuNumber = "1428"
)

// Both slices are VFs that no other case has: what was published with another type keeps an address for half an hour.
const sliceIndex = 3

// Scripts that take PF1 for a GPU with the vendor's driver, whose VFs are VFIO devices of that driver, and that end it.
const (
	makeVGPUs = `set -e
cd /sys/bus/pci/devices/` + topology.PF1 + `
echo 0 >sriov_numvfs
modprobe labvgpu
echo nvidia >driver_override
echo ` + topology.PF1 + ` >driver/unbind
echo ` + topology.PF1 + ` >/sys/bus/pci/drivers_probe
echo 4 >sriov_numvfs`
	unmakeVGPUs = `set -e
cd /sys/bus/pci/devices/` + topology.PF1 + `
echo 0 >sriov_numvfs
echo >driver_override
modprobe -r labvgpu
[ ! -e driver ] || echo ` + topology.PF1 + ` >driver/unbind
echo ` + topology.PF1 + ` >/sys/bus/pci/drivers_probe
echo 3 >sriov_numvfs`
)

// Scripts that take PF0 for an MI300X with a slice, and that end it. A VF's vendor is its PF's. Its device and its class are the NIC's, until they
// are set: the other VFs stay a NIC's.
const (
	makeAMD = node.SetIDs + `cd /sys/bus/pci/devices/` + topology.PF0 + `
echo 0 >sriov_numvfs
ids ` + topology.PF0 + ` 1002 74a1 120000
echo 4 >sriov_numvfs
ids ` + amdSlice + ` 1002 74b5 120000`
	unmakeAMD = node.SetIDs + `cd /sys/bus/pci/devices/` + topology.PF0 + `
echo 0 >sriov_numvfs
ids ` + topology.PF0 + ` 8086 10c9 020000
echo 3 >sriov_numvfs`
	amdSlice = "0000:21:10.6"
)

// sliceClaim is for a slice by its address.
const sliceClaim = `
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: direct}
spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu-slice.kata-vfio.dev, selectors: [` +
	`{cel: {expression: "device.attributes['resource.kubernetes.io'].?pciBusID.orValue('') == '%s'"}}]}}]}}
`

// vendorVF: a VF on the vendor's driver becomes a vGPU for its claim, a VM has it, and it is no vGPU afterwards.
func vendorVF(ctx context.Context, s *site) error {
	slice := topology.VF(topology.PF1, sliceIndex)
	kind := "cat /sys/bus/pci/devices/" + slice + "/nvidia/current_vgpu_type"
	return s.withSlice(ctx, slice, makeVGPUs, unmakeVGPUs, func(ctx context.Context) error {
		now, err := s.output(ctx, kind)
		if err != nil || now != vgpuNumber {
			return fmt.Errorf("while the pod runs, %s has the vGPU type %q, want %s: %w", slice, now, vgpuNumber, err)
		}
		report, err := s.checkVM(ctx, "slice")
		if err != nil {
			return err
		}
		if !sees(report, "10de", "2335", "030200") {
			return fmt.Errorf("want the 3D controller 10de:2335, the VM sees %+v", report.Functions)
		}
		if err := s.quarantinesSlice(ctx, slice); err != nil {
			return err
		}
		if now, err = s.output(ctx, kind); err != nil || now != "0" {
			err = fmt.Errorf("after the quarantine, %s has the vGPU type %q, want 0: %w", slice, now, err)
		}
		return err
	})
}

// quarantinesSlice deletes the slice's pod while the vendor's driver does not end the vGPU, and follows the runbook: to the quarantine and its
// reason, and to its end, once the driver works again.
func (s *site) quarantinesSlice(ctx context.Context, slice string) error {
	const sticks = " >/sys/module/labvgpu/parameters/sticks"
	if _, err := s.output(ctx, "echo 1"+sticks); err != nil {
		return err
	}
	err := s.deletePods(ctx, "slice")
	if err == nil {
		err = s.awaitQuarantine(ctx, slice)
	}
	steps, documentErr := with(s.documents.quarantined, map[string]string{"DEVICE=0000:3b:00.0": "DEVICE=" + slice})
	if err = errors.Join(err, documentErr); err == nil {
		err = s.pastes(ctx, steps[:1], slice, "vGPU", "clear")
	}
	if _, endErr := s.output(context.WithoutCancel(ctx), "echo 0"+sticks); err != nil || endErr != nil {
		return errors.Join(err, endErr)
	}
	return s.pastes(ctx, steps, "quarantine cleared by 1 reset", "ticket 4711")
}

// awaitQuarantine waits until a function has the taint of a quarantine.
func (s *site) awaitQuarantine(ctx context.Context, address string) error {
	return s.until(ctx, address+" is quarantined", nodeLimit, func(ctx context.Context) error {
		devices, err := s.published(ctx)
		if err != nil {
			return err
		}
		for _, d := range devices {
			if id := d.Attributes["resource.kubernetes.io/pciBusID"].StringValue; id == nil || *id != address {
				continue
			}
			if slices.ContainsFunc(d.Taints, func(t resourcev1.DeviceTaint) bool { return t.Key == "kata-vfio.dev/quarantined" }) {
				return nil
			}
			return fmt.Errorf("it has %v", d.Taints)
		}
		return errors.New("it is not published")
	})
}

// pastes follows steps of the runbook whose output must have all words.
func (s *site) pastes(ctx context.Context, steps []docs.Step, words ...string) error {
	out, err := s.paste(ctx, steps)
	for _, w := range words {
		if err == nil && !strings.Contains(out, w) {
			err = fmt.Errorf("want %q, and\n%s\nprints\n%s", w, commandsOf(steps), out)
		}
	}
	s.log("%s", out)
	return err
}

// amdVF: a VM has a VF of a GPU by vfio-pci. Its vendor and its device come from the kernel, as those of each VF, and its class from the NIC's
// registers.
func amdVF(ctx context.Context, s *site) error {
	return s.withSlice(ctx, amdSlice, makeAMD, unmakeAMD, func(ctx context.Context) error {
		now, err := s.driversNow(ctx)
		if err != nil {
			return err
		}
		report, err := s.checkVM(ctx, "slice")
		if err != nil {
			return err
		}
		if !sees(report, "1002", "74b5", "020000") {
			return fmt.Errorf("want 1002:74b5, the VM sees %+v; the node's drivers are\n%s", report.Functions, now)
		}
		return s.deletePods(ctx, "slice")
	})
}

func sees(report *protocol.Report, vendor, device, class string) bool {
	return slices.ContainsFunc(report.Functions, func(f protocol.Function) bool {
		return f.Vendor == vendor && f.Device == device && f.Class == class
	})
}

// withSlice runs a pod with a slice of the GPU that the script makes, and looks at it.
func (s *site) withSlice(ctx context.Context, address, begin, end string, look func(context.Context) error) error {
	after := context.WithoutCancel(ctx)
	_, err := s.output(ctx, begin)
	if err == nil {
		err = s.awaitSlice(ctx, address)
	}
	if err == nil {
		err = s.apply(ctx, tenant, fmt.Sprintf(sliceClaim, address)+vmPod("slice", gpuDirect))
	}
	if err == nil {
		err = s.awaitRunning(ctx, vmPodLimit, "slice")
	}
	if err == nil {
		err = look(ctx)
	}
	// The pod is gone first: a VF that a VM has can't be removed.
	_, deleteErr := s.plane.Kubectl(after, "delete", "pods", "--all", "--namespace", tenant, "--grace-period=1")
	_, endErr := s.output(after, end)
	return errors.Join(err, deleteErr, endErr)
}

// awaitSlice waits until a slice is published as one that anybody may have.
func (s *site) awaitSlice(ctx context.Context, address string) error {
	return s.until(ctx, address+" is published as a slice", nodeLimit, func(ctx context.Context) error {
		devices, err := s.published(ctx)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(devices, func(d resourcev1.Device) bool {
			return attribute(d, "resource.kubernetes.io/pciBusID") == address
		})
		if i < 0 {
			return fmt.Errorf("it is none of %d devices", len(devices))
		}
		d := devices[i]
		kind, boundary := attribute(d, "type"), attribute(d, "boundary")
		if kind != "gpuvf" || boundary == "device" || len(d.Taints) > 0 {
			return fmt.Errorf("%s has the type %q, the boundary %q and the taints %+v", d.Name, kind, boundary, d.Taints)
		}
		s.log("%s has the boundary %s and the profile %q", d.Name, boundary, attribute(d, "profile"))
		return nil
	})
}

// attribute returns a device's attribute of text; empty if it has none.
func attribute(d resourcev1.Device, name resourcev1.QualifiedName) string {
	if value := d.Attributes[name].StringValue; value != nil {
		return *value
	}
	return ""
}
