package sysfstest_test

import (
	"os"
	"strconv"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
)

const shadow = "3f2c1e0d9b8a7f6e5d4c3b2a19080706f5e4d3c2b1a0f9e8d7c6b5a493827160"

func TestGroupNodeLivesFromFirstToLastMember(t *testing.T) {
	k := sysfstest.New(t)
	gpu, audio := k.AddGPUWithAudio(0x3b, 15)
	node := []string{"dev/vfio/15", "sys/class/vfio/15/dev", "sys/dev/char/235:15"}

	wantFiles(t, k, false, node...)
	take(t, k, toVFIO(gpu, "nvidia")...)
	wantFiles(t, k, true, node...)
	take(t, k, toVFIO(audio, "snd_hda_intel")...)
	take(t, k, step{"sys/bus/pci/drivers/vfio-pci/unbind", gpu.String(), nil})
	wantFiles(t, k, true, node...)
	take(t, k, step{"sys/bus/pci/drivers/vfio-pci/unbind", audio.String(), nil})
	wantFiles(t, k, false, node...)

	take(t, k, step{"sys/bus/pci/drivers_probe", audio.String(), nil})
	n, ok := k.Node("/dev/vfio/15")
	if want := (sysfstest.Number{Major: 235, Minor: 15}); !ok || n != want || read(t, k, "sys/class/vfio/15/dev") != n.String() {
		t.Errorf("node has number %v, %t; want %v", n, ok, want)
	}
}

func TestDeviceNodesComeWithIOMMUFD(t *testing.T) {
	for _, iommufd := range []bool{false, true} {
		k := sysfstest.New(t)
		if iommufd {
			k.WithIOMMUFD()
		}
		gpu := k.AddGPU(0x3b)
		take(t, k, toVFIO(gpu, "nvidia")...)
		dir := devices + gpu.String() + "/vfio-dev/vfio0"
		wantFiles(t, k, true, dir, "sys/class/vfio-dev/vfio0")
		wantFiles(t, k, iommufd, dir+"/dev", "dev/vfio/devices/vfio0", "dev/iommu")
		take(t, k, step{"sys/bus/pci/drivers/vfio-pci/unbind", gpu.String(), nil})
		wantFiles(t, k, false, dir, "sys/class/vfio-dev/vfio0", "dev/vfio/devices/vfio0")
	}
}

func TestChildrenComeAndGoWithTheDriver(t *testing.T) {
	k := sysfstest.New(t)
	gpu, nvme := k.AddGPU(0x3b), k.AddNVMe(0x41)
	pf, vfs := k.AddNIC(0x45, 1)
	// The PF comes last: its VFs go when it leaves its driver.
	for _, tt := range []struct {
		name     string
		function pci.Address
		driver   string
		files    []string
	}{
		{"display", gpu, "nvidia", []string{
			devices + gpu.String() + "/drm/card0", "sys/class/drm/renderD128/dev", "dev/dri/card0",
			"sys/dev/char/226:128", "dev/nvidia0", "proc/driver/nvidia/gpus/0000:3b:00.0/information",
		}},
		{"NVMe", nvme, "nvme", []string{
			devices + nvme.String() + "/nvme/nvme0/nvme0n1/nvme0n1p1/partition", "sys/class/nvme/nvme0",
			"sys/block/nvme0n1", "sys/class/block/nvme0n1p1/dev", "sys/dev/block/259:1", "dev/nvme0n1p1", "dev/nvme0",
		}},
		{"network", vfs[0], "igbvf", []string{devices + vfs[0].String() + "/net/eth1/address", "sys/class/net/eth1"}},
		{"PF", pf, "igb", []string{"sys/class/net/eth0/device/vendor"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			wantFiles(t, k, true, tt.files...)
			steps := toVFIO(tt.function, tt.driver)
			take(t, k, steps...)
			wantDriver(t, k, tt.function, "vfio-pci")
			wantFiles(t, k, false, tt.files...)
			take(t, k, step{steps[0].path, "\n", nil},
				step{"sys/bus/pci/drivers/vfio-pci/unbind", tt.function.String(), nil}, steps[2])
			wantFiles(t, k, true, tt.files...)
		})
	}
}

func TestVFIORefusals(t *testing.T) {
	bridge := pci.Address{Bus: 0x3a, Device: 1}
	gpu := pci.Address{Bus: 0x3b}
	nic := pci.Address{Bus: 0x3b}
	tests := map[string]struct {
		build    func(k *sysfstest.Kernel)
		function pci.Address
		want     error
	}{
		"a bridge": {func(k *sysfstest.Kernel) { k.AddGPU(0x3b) }, bridge, unix.EINVAL},
		"a PF with VFs": {func(k *sysfstest.Kernel) {
			k.AddDriver("mlx4_core", sysfstest.Driver{SRIOV: true, KeepsVFs: true})
			k.AddRootPort(0x3b)
			f := sysfstest.NIC(nic)
			f.Driver, f.SRIOV.VFs = "mlx4_core", 2
			k.Add(f)
		}, nic, unix.EBUSY},
		"no group": {func(k *sysfstest.Kernel) {
			k.WithoutIOMMU()
			k.AddGPU(0x3b)
		}, gpu, unix.EINVAL},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			k := sysfstest.New(t)
			tt.build(k)
			a := tt.function
			// drivers_probe says nothing of the refusal, bind does.
			take(t, k, toVFIO(a, driver(t, k, a))...)
			wantDriver(t, k, a, "")
			take(t, k, step{"sys/bus/pci/drivers/vfio-pci/bind", a.String(), tt.want})
			wantDriver(t, k, a, "")
		})
	}
}

func TestNoIOMMUModeInventsGroup(t *testing.T) {
	k := sysfstest.New(t)
	k.WithoutIOMMU()
	k.SetParameter("vfio", "enable_unsafe_noiommu_mode", "Y")
	gpu := k.AddGPU(0x3b)
	if _, ok := k.Group(gpu); ok {
		t.Error("has a group without an IOMMU")
	}
	take(t, k, toVFIO(gpu, "nvidia")...)
	n, _ := k.Group(gpu)
	group := "sys/kernel/iommu_groups/" + strconv.Itoa(n)
	if name := read(t, k, group+"/name"); name != "vfio-noiommu" {
		t.Errorf("group is called %q", name)
	}
	wantFiles(t, k, true, "dev/vfio/noiommu-"+strconv.Itoa(n))
	take(t, k, step{"sys/bus/pci/drivers/vfio-pci/unbind", gpu.String(), nil})
	wantFiles(t, k, false, group, "dev/vfio/noiommu-"+strconv.Itoa(n), devices+gpu.String()+"/iommu_group")
}

func TestHolderInProc(t *testing.T) {
	k := sysfstest.New(t)
	gpu, audio := k.AddGPUWithAudio(0x3b, 15)
	take(t, k, toVFIO(gpu, "nvidia")...)
	take(t, k, toVFIO(audio, "snd_hda_intel")...)
	h := k.Hold("/dev/vfio/15", 4711, "qemu-system-x86", shadow)

	got := map[string]string{}
	for _, name := range []string{"comm", "cgroup"} {
		got[name] = read(t, k, "proc/4711/"+name)
	}
	got["fd"], _ = os.Readlink(k.Path("proc/4711/fd/17"))
	want := map[string]string{
		"comm":   "qemu-system-x86",
		"cgroup": "0::/kubepods.slice/kubepods-besteffort.slice/cri-containerd-" + shadow + ".scope",
		"fd":     "/dev/vfio/15",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("process (-want +got):\n%s", diff)
	}
	h.Release()
	h.Release()
	wantFiles(t, k, false, "proc/4711")
	if left := k.Holders(); len(left) > 0 {
		t.Errorf("holders left: %v", left)
	}
}

// While a function is held its unbind is in the kernel: the links and its own
// device are gone already, the driver and the group's node are not.
func TestUnbindWaitsForTheHolder(t *testing.T) {
	for _, node := range []string{"/dev/vfio/15", "/dev/vfio/devices/vfio0"} {
		t.Run(node, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := sysfstest.New(t)
				k.WithIOMMUFD()
				gpu, audio := k.AddGPUWithAudio(0x3b, 15)
				take(t, k, toVFIO(gpu, "nvidia")...)
				take(t, k, toVFIO(audio, "snd_hda_intel")...)
				h := k.Hold(node, 4711, "qemu", "")

				done := make(chan error, 1)
				go func() { done <- k.Write("sys/bus/pci/drivers/vfio-pci/unbind", []byte(gpu.String())) }()
				synctest.Wait()
				select {
				case err := <-done:
					t.Fatalf("unbind came back: %v", err)
				default:
				}
				wantDriver(t, k, gpu, "")
				wantFiles(t, k, false, "dev/vfio/devices/vfio0", devices+gpu.String()+"/vfio-dev")
				wantFiles(t, k, true, "dev/vfio/15")
				// Others are not affected.
				take(t, k, step{devices + audio.String() + "/driver_override", "vfio-pci", nil})

				h.Release()
				if err := <-done; err != nil {
					t.Errorf("unbind: %v", err)
				}
				take(t, k, step{devices + gpu.String() + "/driver_override", "\n", nil},
					step{"sys/bus/pci/drivers_probe", gpu.String(), nil})
				wantDriver(t, k, gpu, "nvidia")
			})
		})
	}
}

func TestRemovedNodeStaysOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := sysfstest.New(t)
		k.WithIOMMUFD()
		gpu := k.AddGPU(0x3b)
		take(t, k, toVFIO(gpu, "nvidia")...)
		k.Hold("/dev/vfio/devices/vfio0", 4711, "qemu", "")
		go func() { _ = k.Write("sys/bus/pci/drivers/vfio-pci/unbind", []byte(gpu.String())) }()
		synctest.Wait()
		got, err := os.Readlink(k.Path("proc/4711/fd/17"))
		if want := "/dev/vfio/devices/vfio0 (deleted)"; err != nil || got != want {
			t.Errorf("open file is %q, %v; want %q", got, err, want)
		}
	})
}

func TestHostDriverCantJoinAHeldGroup(t *testing.T) {
	k := sysfstest.New(t)
	gpu, audio := k.AddGPUWithAudio(0x3b, 15)
	take(t, k, toVFIO(gpu, "nvidia")...)
	take(t, k, step{"sys/bus/pci/drivers/snd_hda_intel/unbind", audio.String(), nil})
	h := k.Hold("/dev/vfio/15", 4711, "qemu", "")

	probe := step{"sys/bus/pci/drivers_probe", audio.String(), unix.EINVAL}
	bind := step{"sys/bus/pci/drivers/snd_hda_intel/bind", audio.String(), unix.EBUSY}
	take(t, k, probe, bind)
	wantDriver(t, k, audio, "")

	h.Release()
	probe.want = nil
	take(t, k, probe)
	wantDriver(t, k, audio, "snd_hda_intel")
}

// fatal keeps what ends a test, so that a test can be about it.
type fatal struct {
	sysfstest.TB
	said string
}

func (f *fatal) Fatalf(format string, _ ...any) { f.said = format }

func TestGroupIsHeldOnlyIfViable(t *testing.T) {
	tb := &fatal{TB: t}
	k := sysfstest.New(tb)
	gpu, bridge := k.AddBehindBridge(0x3b, 15)
	take(t, k, toVFIO(gpu, "nvidia")...)
	if tb.said != "" {
		t.Fatal(k.Err())
	}
	wantDriver(t, k, bridge, "shpchp")
	k.Hold("/dev/vfio/15", 4711, "qemu", "")
	if err := k.Err(); err == nil || tb.said == "" {
		t.Error("a group with a bridge on shpchp was held")
	}
}

func TestBridgeLeavesTheGroupViable(t *testing.T) {
	k := sysfstest.New(t)
	gpu, bridge := k.AddBehindBridge(0x3b, 15)
	take(t, k, toVFIO(gpu, "nvidia")...)
	take(t, k, step{"sys/bus/pci/drivers/shpchp/unbind", bridge.String(), nil})
	k.Hold("/dev/vfio/15", 4711, "qemu", "").Release()
}
