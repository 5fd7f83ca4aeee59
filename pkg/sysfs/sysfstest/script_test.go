package sysfstest_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/control"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
)

func TestHookRefusesAWrite(t *testing.T) {
	k := sysfstest.New(t)
	gpu := k.AddGPU(0x3b)
	var after []string
	k.OnWrite(func(path, value string) error {
		if strings.HasSuffix(path, "drivers_probe") {
			return unix.EIO
		}
		return nil
	})
	k.AfterWrite(func(path, value string) { after = append(after, path) })
	steps := toVFIO(gpu, "nvidia")
	steps[2].want = unix.EIO
	take(t, k, steps...)
	wantDriver(t, k, gpu, "")
	if diff := cmp.Diff([]string{steps[0].path, steps[1].path}, after); diff != "" {
		t.Errorf("writes that succeeded (-want +got):\n%s", diff)
	}
	want := []sysfstest.Write{
		{Path: steps[0].path, Value: "vfio-pci"},
		{Path: steps[1].path, Value: gpu.String()},
		{Path: steps[2].path, Value: gpu.String(), Err: unix.EIO},
	}
	if diff := cmp.Diff(want, k.Writes(), cmpopts.EquateErrors()); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
}

// Writes take 100 ms each. Those for eight functions run side by side, those
// for one come one after another.
func TestWritesRunInParallelByFunction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := sysfstest.New(t)
		var gpus []pci.Address
		for bus := uint8(0x10); bus < 0x20; bus += 2 {
			gpus = append(gpus, k.AddGPU(bus))
		}
		k.OnWrite(func(string, string) error { time.Sleep(100 * time.Millisecond); return nil })
		var wg sync.WaitGroup
		begun := time.Now()
		for _, gpu := range gpus {
			wg.Go(func() { take(t, k, toVFIO(gpu, "nvidia")...) })
		}
		wg.Wait()
		if took := time.Since(begun); took != 300*time.Millisecond {
			t.Errorf("eight functions with three writes each took %s, want 300ms", took)
		}
		begun = time.Now()
		for range 3 {
			wg.Go(func() { take(t, k, toVFIO(gpus[0], "nvidia")[0]) })
		}
		wg.Wait()
		if took := time.Since(begun); took != 300*time.Millisecond {
			t.Errorf("three writes for one function took %s, want 300ms", took)
		}
	})
}

// An unbind that hangs in the kernel, seen through control: given up at the
// deadline, fenced, over when the holder lets go.
func TestHungUnbindThroughControl(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := sysfstest.New(t)
		gpu, other := k.AddGPU(0x3b), k.AddGPU(0x41)
		c := control.New(k, nil, 5*time.Second)
		for _, a := range []pci.Address{gpu, other} {
			take(t, k, toVFIO(a, "nvidia")...)
		}
		h := k.Hold("/dev/vfio/101", 4711, "qemu", "")

		var stuck *control.StuckError
		if err := c.Write(t.Context(), control.Unbind(gpu, "vfio-pci")); !errors.As(err, &stuck) || stuck.Address != gpu {
			t.Fatalf("unbind of a held function: %v", err)
		}
		if err := c.Write(t.Context(), control.Probe(gpu)); !errors.As(err, &stuck) {
			t.Errorf("probe at the fence: %v", err)
		}
		if err := c.Write(t.Context(), control.Unbind(other, "vfio-pci")); err != nil {
			t.Errorf("another function: %v", err)
		}
		h.Release()
		synctest.Wait()
		if err := c.Write(t.Context(), control.DriverOverride(gpu, "")); err != nil {
			t.Errorf("after the holder let go: %v", err)
		}
		if err := c.Write(t.Context(), control.Probe(gpu)); err != nil {
			t.Errorf("after the holder let go: %v", err)
		}
		wantDriver(t, k, gpu, "nvidia")
	})
}

func TestCloseLetsBlockedWritesReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := sysfstest.New(t)
		gpu := k.AddGPU(0x3b)
		take(t, k, toVFIO(gpu, "nvidia")...)
		k.Hold("/dev/vfio/101", 4711, "qemu", "")
		done := make(chan error, 1)
		go func() { done <- k.Write("sys/bus/pci/drivers/vfio-pci/unbind", []byte(gpu.String())) }()
		synctest.Wait()
		k.Close()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestReboot(t *testing.T) {
	k := sysfstest.New(t)
	gpu, audio := k.AddGPUWithAudio(0x3b, 15)
	stays := sysfstest.NVMe(addr(t, "0000:41:00.0"))
	stays.Driver = "vfio-pci"
	k.AddRootPort(0x41)
	k.Add(stays)
	pf, vfs := k.AddNIC(0x45, 2)
	other, _ := k.AddNIC(0x51, 0)
	take(t, k, step{devices + other.String() + "/sriov_numvfs", "3", nil})
	take(t, k, toVFIO(gpu, "nvidia")...)
	take(t, k, toVFIO(audio, "snd_hda_intel")...)
	k.Hold("/dev/vfio/15", 4711, "qemu", "")
	k.PutFile("run/cdi/x.json", "{}")
	k.PutFile("var/lib/x", "")
	k.SetConfig(gpu, 0x800, 1)
	boot := read(t, k, "proc/sys/kernel/random/boot_id")

	k.Reboot()

	if again := read(t, k, "proc/sys/kernel/random/boot_id"); again == boot {
		t.Error("boot id is the same")
	}
	for a, want := range map[pci.Address]string{
		gpu: "nvidia", audio: "snd_hda_intel", stays.Address: "vfio-pci", pf: "igb", vfs[1]: "igbvf",
	} {
		wantDriver(t, k, a, want)
		if got := read(t, k, devices+a.String()+"/driver_override"); got != "(null)" {
			t.Errorf("driver_override of %s survived: %s", a, got)
		}
	}
	g, _ := k.Group(gpu)
	if mate, _ := k.Group(audio); g == 15 || g != mate {
		t.Errorf("GPU and audio were in group 15, now in %d and %d", g, mate)
	}
	if len(k.VFs(other)) > 0 {
		t.Errorf("VFs from before: %v", k.VFs(other))
	}
	if read(t, k, devices+gpu.String()+"/config")[0x800] != 0 {
		t.Error("configuration space is as it was")
	}
	wantFiles(t, k, false, "proc/4711", "run/cdi", "dev/vfio/15")
	wantFiles(t, k, true, "var/lib/x", "run")
}

func TestScale(t *testing.T) {
	k := sysfstest.New(t)
	all := k.Scale(100)
	if len(all) != 100 {
		t.Fatalf("%d functions, want 100", len(all))
	}
	seen := map[pci.Address]bool{}
	kinds := map[string]int{}
	for _, a := range all {
		seen[a] = true
		kinds[driver(t, k, a)]++
	}
	if len(seen) != 100 {
		t.Errorf("%d different addresses, want 100", len(seen))
	}
	if diff := cmp.Diff(map[string]int{"nvidia": 6, "igb": 12, "igbvf": 82}, kinds); diff != "" {
		t.Errorf("drivers (-want +got):\n%s", diff)
	}
	take(t, k, toVFIO(all[99], driver(t, k, all[99]))...)
	wantDriver(t, k, all[99], "vfio-pci")
}

// BenchmarkScale4096 writes a node of 4,096 functions, of 128 with -short.
func BenchmarkScale4096(b *testing.B) {
	functions := 4096
	if testing.Short() {
		functions = 128
	}
	for b.Loop() {
		sysfstest.New(b).Scale(functions)
	}
}
