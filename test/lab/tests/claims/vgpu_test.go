//go:build lab

package claims_test

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/prepare"
	"github.com/kata-vfio/kata-vfio/pkg/prepare/effects"
	"github.com/kata-vfio/kata-vfio/test/lab/image"
	"github.com/kata-vfio/kata-vfio/test/lab/nested"
	"github.com/kata-vfio/kata-vfio/test/lab/nested/protocol"
	kernel "github.com/kata-vfio/kata-vfio/test/lab/tests/node"
	"github.com/kata-vfio/kata-vfio/test/lab/tests/stage"
	"github.com/kata-vfio/kata-vfio/test/lab/topology"
)

// vGPU types of labvgpu.
const (
	type35 = stage.VGPUType
	id35   = "1428"
	id70   = "1429"
	mig    = "NVIDIA H200X-1-18C"
)

// fault turns a fault of labvgpu on, and returns what turns it off.
func fault(t *testing.T, name string) (mend func()) {
	t.Helper()
	path := "/sys/module/labvgpu/parameters/" + name
	kernel.Write(t, path, "Y")
	mend = func() {
		if err := os.WriteFile(path, []byte("N"), 0o644); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(mend)
	return mend
}

func vgpuOf(index int) string { return topology.VF(topology.PF1, index) }

func vgpuType(index int) string { return kernel.Path(vgpuOf(index), "nvidia/current_vgpu_type") }

// withVGPUs is a node config by which the VFs of NVIDIA's GPUs are vGPUs of the type.
func withVGPUs(kind string) *v1alpha1.NodeConfig {
	cfg := stage.Everything("gpuvf")
	cfg.GPUSlices = stage.VGPUs(kind)
	return cfg
}

// TestVGPU: a VF becomes a vGPU for its claim, a VM gets it, and it is no vGPU afterwards. It stays on its driver throughout.
func TestVGPU(t *testing.T) {
	kernel.VGPUs(t, topology.PF1, "4")
	n := open(t, withVGPUs(type35))
	snap := stage.Scan(t)
	if f := stage.Function(t, snap, vgpuOf(1)); f.Type != device.GPUVF || snap.Boundary(f) != device.BoundaryScheduler || f.VGPUType != "0" {
		t.Errorf("%s is of type %s with boundary %s and vGPU type %q; want a slice without a type", f.Address, f.Type, snap.Boundary(f), f.VGPUType)
	}
	nodes := kernel.Variant(t) == image.IOMMUFD
	if nodes {
		if err := openVGPU(t, vgpuOf(1)); !errors.Is(err, unix.ENODEV) {
			t.Errorf("open a VF without a type: %v, want %v", err, unix.ENODEV)
		}
	}
	before := stage.Bindings(t)
	mustPrepare(t, n, stage.Request(t, "vgpu", vgpuOf(1)))
	if diff := cmp.Diff(before, stage.Bindings(t)); diff != "" {
		t.Errorf("prepared (-before +after):\n%s", diff)
	}
	if got := kernel.Read(t, vgpuType(1)); got != id35 {
		t.Errorf("prepared: type %s, want %s", got, id35)
	}
	if diff := cmp.Diff([]string{stage.WantNode(t, vgpuOf(1))}, stage.Nodes(t, "vgpu")); diff != "" {
		t.Errorf("CDI nodes (-want +got):\n%s", diff)
	}
	if !nodes { // by groups, VMs boot faster
		vgpuReachesVM(t, n.Preparer)
	} else if err := openVGPU(t, vgpuOf(1)); err != nil {
		t.Errorf("open the claim's device: %v", err)
	}
	mustUnprepare(t, n, "vgpu")
	if got := kernel.Read(t, vgpuType(1)); got != "0" {
		t.Errorf("unprepared: type %s, want none", got)
	}
	if diff := cmp.Diff(before, stage.Bindings(t)); diff != "" {
		t.Errorf("unprepared (-before +after):\n%s", diff)
	}
}

// vgpuReachesVM starts a VM with the claim's vGPU, which keeps it until the VM's end.
func vgpuReachesVM(t *testing.T, p *prepare.Preparer) {
	t.Helper()
	vm, err := nested.Start(t.Context(), nested.Config{Nodes: stage.Nodes(t, "vgpu")})
	if err != nil {
		t.Fatal(err)
	}
	report, err := vm.Report(t.Context())
	isVGPU := func(f protocol.Function) bool { return f.Vendor == "10de" && f.Device == "2335" && f.Class == "030200" }
	if err != nil || !slices.ContainsFunc(report.Functions, isVGPU) {
		t.Errorf("the VM has no 3D controller 10de:2335: %+v, %v", report, err)
	}
	if _, err := p.Unprepare(t.Context(), "vgpu"); !effects.IsUse(err) {
		t.Errorf("Unprepare while the VM runs = %v, want it in use", err)
	}
	if got := kernel.Read(t, vgpuType(1)); got != id35 {
		t.Errorf("while the VM runs: type %s, want %s", got, id35)
	}
	if err := vm.Stop(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
}

// openVGPU opens a function's VFIO device by its node, and closes it again.
func openVGPU(t *testing.T, address string) error {
	t.Helper()
	iommu, err := unix.Open("/dev/iommu", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(iommu)
	fd, err := unix.Open(filepath.Join("/dev/vfio/devices", kernel.CDev(t, address)), unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	const bind = 0x3b76 // VFIO_DEVICE_BIND_IOMMUFD of include/uapi/linux/vfio.h
	arg := make([]byte, 16)
	binary.NativeEndian.PutUint32(arg, uint32(len(arg)))
	binary.NativeEndian.PutUint32(arg[8:], uint32(iommu))
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), bind, uintptr(unsafe.Pointer(&arg[0]))); errno != 0 {
		return errno
	}
	return nil
}

// TestVGPUThatCannotBe is refused or fails, and nothing is left of it.
func TestVGPUThatCannotBe(t *testing.T) {
	kernel.VGPUs(t, topology.PF1, "4")
	for name, tt := range map[string]struct {
		kind  string
		spoil func(*testing.T)
		says  []string
	}{
		"the type reverts": {type35, func(t *testing.T) { fault(t, "reverts") }, []string{vgpuOf(0), "current_vgpu_type"}},
		"another size on the GPU": {type35, func(t *testing.T) {
			kernel.Write(t, vgpuType(3), id70)
			t.Cleanup(func() { kernel.Write(t, vgpuType(3), "0") })
		}, []string{`can't be a vGPU of type "` + type35 + `" now`, `"NVIDIA H200X-70C"`}},
		"no GPU instance": {mig, func(*testing.T) {}, []string{"input/output error", "needs a GPU instance"}},
	} {
		t.Run(name, func(t *testing.T) {
			n := open(t, withVGPUs(tt.kind))
			tt.spoil(t)
			before := stage.Bindings(t)
			_, err := n.Preparer.Prepare(t.Context(), stage.Request(t, "vgpu", vgpuOf(0)))
			stage.Says(t, err, tt.says...)
			if got := kernel.Read(t, vgpuType(0)); got != "0" {
				t.Errorf("type %s is left, want none", got)
			}
			stage.Unchanged(t, before)
		})
	}
}

// TestVGPUWhoseWriteHangs is given up in time, and is free once the kernel has answered.
func TestVGPUWhoseWriteHangs(t *testing.T) {
	kernel.VGPUs(t, topology.PF1, "4")
	c := stage.Config()
	c.Node, c.WriteLimit = withVGPUs(type35), time.Second
	n := stage.Open(t, c)
	answer := fault(t, "blocks")
	time.AfterFunc(3*time.Second, answer) // while the undo waits for it
	_, err := n.Preparer.Prepare(t.Context(), stage.Request(t, "vgpu", vgpuOf(0)))
	stage.Says(t, err, "the kernel has not answered", vgpuOf(0))
	if got := kernel.Read(t, vgpuType(0)); got != "0" {
		t.Errorf("type %s is left of the late write, want none", got)
	}
	mustPrepare(t, n, stage.Request(t, "vgpu", vgpuOf(0)))
	mustUnprepare(t, n, "vgpu")
}

// TestVGPUThatSticks: a VF whose vGPU the driver does not end is not reset below it, and no other claim gets it, until the driver does.
func TestVGPUThatSticks(t *testing.T) {
	kernel.VGPUs(t, topology.PF1, "4")
	n := open(t, withVGPUs(type35))
	mustPrepare(t, n, stage.Request(t, "vgpu", vgpuOf(0)))
	mend := fault(t, "sticks")
	release, err := n.Preparer.Unprepare(context.WithoutCancel(t.Context()), "vgpu")
	if _, quarantined := errors.AsType[*prepare.QuarantinedError](err); !quarantined || len(release.Proofs) > 0 {
		t.Errorf("Unprepare = %d resets, %v; want a quarantine without a reset", len(release.Proofs), err)
	}
	if _, err := n.Preparer.Prepare(t.Context(), stage.Request(t, "next", vgpuOf(0))); err == nil {
		t.Error("another claim got the VF")
	}
	mend()
	mustUnprepare(t, n, "vgpu")
	if got := kernel.Read(t, vgpuType(0)); got != "0" {
		t.Errorf("type %s is left, want none", got)
	}
}
