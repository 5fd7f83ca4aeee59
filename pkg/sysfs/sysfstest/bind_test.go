package sysfstest_test

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
)

// The rules of binding, on a node with one GPU that the driver nvidia has, and
// vfio-pci and nouveau (which knows the GPU's ids too) beside it.
func TestBindingRules(t *testing.T) {
	const (
		gpu      = "0000:3b:00.0"
		override = devices + gpu + "/driver_override"
		probe    = "sys/bus/pci/drivers_probe"
		unbind   = "sys/bus/pci/drivers/nvidia/unbind"
		bind     = "sys/bus/pci/drivers/nvidia/bind"
	)
	tests := map[string]struct {
		steps    []step
		driver   string
		override string
	}{
		"nothing written": {nil, "nvidia", "(null)"},
		"a missing attribute is not created": {
			[]step{{devices + gpu + "/absent", "1", unix.ENOENT}}, "nvidia", "(null)",
		},
		"a path out of the node": {[]step{{"../x", "1", unix.ENOENT}}, "nvidia", "(null)"},
		"a directory":            {[]step{{devices + gpu, "1", unix.EISDIR}}, "nvidia", "(null)"},
		"a read-only attribute":  {[]step{{devices + gpu + "/vendor", "1", unix.EACCES}}, "nvidia", "(null)"},
		"an empty write does nothing": {
			[]step{{override, "vfio-pci", nil}, {override, "", nil}, {probe, "", nil}}, "nvidia", "vfio-pci",
		},
		"an override rebinds nothing": {[]step{{override, "vfio-pci", nil}}, "nvidia", "vfio-pci"},
		"an override loses its newline and what follows": {
			[]step{{override, "vfio-pci\nxx", nil}}, "nvidia", "vfio-pci",
		},
		"a newline clears the override": {
			[]step{{override, "vfio-pci", nil}, {override, "\n", nil}}, "nvidia", "(null)",
		},
		"NULs clear the override": {
			[]step{{override, "vfio-pci", nil}, {override, "\x00\x00", nil}}, "nvidia", "(null)",
		},
		"an override of 4094 bytes": {
			[]step{{override, strings.Repeat("x", 4094), nil}}, "nvidia", strings.Repeat("x", 4094),
		},
		"an override of 4095 bytes": {
			[]step{{override, strings.Repeat("x", 4095), unix.EINVAL}}, "nvidia", "(null)",
		},
		"unbind": {[]step{{unbind, gpu, nil}}, "", "(null)"},
		"unbind with a newline, as echo writes it": {
			[]step{{unbind, gpu + "\n", nil}}, "", "(null)",
		},
		"unbind twice":                       {[]step{{unbind, gpu, nil}, {unbind, gpu, unix.ENODEV}}, "", "(null)"},
		"unbind from a driver that lacks it": {[]step{{"sys/bus/pci/drivers/nouveau/unbind", gpu, unix.ENODEV}}, "nvidia", "(null)"},
		"unbind from no driver":              {[]step{{"sys/bus/pci/drivers/absent/unbind", gpu, unix.ENOENT}}, "nvidia", "(null)"},
		"unbind an address in capitals":      {[]step{{unbind, "0000:3B:00.0", unix.ENODEV}}, "nvidia", "(null)"},
		"unbind nonsense":                    {[]step{{unbind, "gpu", unix.ENODEV}}, "nvidia", "(null)"},
		"unbind with two newlines":           {[]step{{unbind, gpu + "\n\n", unix.ENODEV}}, "nvidia", "(null)"},
		"probe an unknown address":           {[]step{{probe, "0000:3c:00.0", unix.ENODEV}}, "nvidia", "(null)"},
		"probe a bound function":             {[]step{{override, "vfio-pci", nil}, {probe, gpu, nil}}, "nvidia", "vfio-pci"},
		"probe finds the first driver with the ids": {
			[]step{{unbind, gpu, nil}, {probe, gpu, nil}}, "nvidia", "(null)",
		},
		"probe honors the override": {
			[]step{{override, "vfio-pci", nil}, {unbind, gpu, nil}, {probe, gpu, nil}}, "vfio-pci", "vfio-pci",
		},
		"probe with an override takes no other driver, and succeeds": {
			[]step{{override, "absent", nil}, {unbind, gpu, nil}, {probe, gpu, nil}}, "", "absent",
		},
		"vfio-pci matches nothing without an override": {
			[]step{{unbind, gpu, nil}, {"sys/bus/pci/drivers/vfio-pci/bind", gpu, unix.ENODEV}}, "", "(null)",
		},
		"bind":                           {[]step{{unbind, gpu, nil}, {bind, gpu, nil}}, "nvidia", "(null)"},
		"bind a bound function":          {[]step{{bind, gpu, unix.EBUSY}}, "nvidia", "(null)"},
		"bind against the override":      {[]step{{unbind, gpu, nil}, {override, "vfio-pci", nil}, {bind, gpu, unix.ENODEV}}, "", "vfio-pci"},
		"bind to a driver with the ids":  {[]step{{unbind, gpu, nil}, {"sys/bus/pci/drivers/nouveau/bind", gpu, nil}}, "nouveau", "(null)"},
		"bind an unknown address":        {[]step{{bind, "0000:3c:00.0", unix.ENODEV}}, "nvidia", "(null)"},
		"by the path of the device":      {[]step{{"sys/devices/pci0000:3a/0000:3a:01.0/" + gpu + "/driver_override", "a", nil}}, "nvidia", "a"},
		"by a path that leads elsewhere": {[]step{{"sys/devices/pci0000:3a/" + gpu + "/driver_override", "a", unix.ENOENT}}, "nvidia", "(null)"},
		"there and back": {
			[]step{
				{override, "vfio-pci", nil},
				{unbind, gpu, nil},
				{probe, gpu, nil},
				{override, "\n", nil},
				{"sys/bus/pci/drivers/vfio-pci/unbind", gpu, nil},
				{probe, gpu, nil},
			}, "nvidia", "(null)",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			k := sysfstest.New(t)
			k.AddGPU(0x3b)
			k.AddDriver("nouveau", sysfstest.Driver{IDs: []sysfstest.Match{sysfstest.MatchClass(pci.Class3D)}})
			take(t, k, tt.steps...)
			wantDriver(t, k, addr(t, gpu), tt.driver)
			if got := read(t, k, override); got != tt.override {
				t.Errorf("driver_override reads %.20q, want %.20q", got, tt.override)
			}
		})
	}
}

func TestProbeThatTheDriverRefuses(t *testing.T) {
	k := sysfstest.New(t)
	k.AddRootPort(0x3b)
	refuse := sysfstest.Driver{
		IDs:   []sysfstest.Match{sysfstest.MatchID(0x10de, 0x2330)},
		Probe: func(pci.Address) error { return unix.EIO },
	}
	k.AddDriver("nova", refuse)
	gpu := sysfstest.GPU(addr(t, "0000:3b:00.0"))
	gpu.Driver = ""
	k.Add(gpu)
	a := gpu.Address.String()

	// The kernel keeps the error of a probe to itself, unless it was asked to
	// bind that very driver.
	take(t, k, step{"sys/bus/pci/drivers_probe", a, nil})
	wantDriver(t, k, gpu.Address, "")
	take(t, k, step{"sys/bus/pci/drivers/nova/bind", a, unix.EIO})
	wantDriver(t, k, gpu.Address, "")

	// And it goes on to the next driver.
	k.AddDriver("nouveau", sysfstest.Driver{IDs: refuse.IDs})
	wantDriver(t, k, gpu.Address, "nouveau")
}

func TestLateDriverTakesUnboundFunctions(t *testing.T) {
	k := sysfstest.New(t)
	gpu := k.AddGPU(0x3b)
	other := k.AddGPU(0x41)
	take(t, k, step{"sys/bus/pci/drivers/nvidia/unbind", gpu.String(), nil})
	take(t, k, step{"sys/bus/pci/drivers/nvidia/unbind", other.String(), nil})
	take(t, k, step{devices + other.String() + "/driver_override", "vfio-pci", nil})
	k.AddDriver("nouveau", sysfstest.Driver{IDs: []sysfstest.Match{sysfstest.MatchClass(pci.Class3D)}})
	wantDriver(t, k, gpu, "nouveau")
	wantDriver(t, k, other, "") // its override keeps nouveau away
}

func TestUdevTakesAFunctionBack(t *testing.T) {
	k := sysfstest.New(t)
	gpu := k.AddGPU(0x3b)
	k.AfterWrite(func(path, value string) {
		if strings.HasSuffix(path, "/unbind") {
			take(t, k, step{"sys/bus/pci/drivers_probe", value, nil})
		}
	})
	take(t, k, step{"sys/bus/pci/drivers/nvidia/unbind", gpu.String(), nil})
	wantDriver(t, k, gpu, "nvidia")
}

func TestModules(t *testing.T) {
	k := sysfstest.New(t)
	k.RemoveDriver("vfio-pci")
	k.AddModule("vfio-pci", sysfstest.Driver{VFIO: true})
	gpu := k.AddGPU(0x3b)
	take(t, k, toVFIO(gpu, "nvidia")...)
	wantDriver(t, k, gpu, "") // nobody of that name yet, and no error

	if err := k.Load(t.Context(), "vfio_pci"); err != nil {
		t.Fatal(err)
	}
	wantDriver(t, k, gpu, "vfio-pci")
	if err := k.Load(t.Context(), "vfio-pci"); err != nil {
		t.Errorf("loading it again: %v", err)
	}
	if err := k.Load(t.Context(), "absent"); err == nil {
		t.Error("loaded a module that does not exist")
	}
}

func TestFunctionVanishes(t *testing.T) {
	k := sysfstest.New(t)
	gpu, audio := k.AddGPUWithAudio(0x3b, 15)
	k.OnWrite(func(path, _ string) error {
		if path == "sys/bus/pci/drivers_probe" {
			k.Remove(gpu)
		}
		return nil
	})
	steps := toVFIO(gpu, "nvidia")
	take(t, k, steps[:2]...)
	// The probe was under way: it finds nothing to do.
	take(t, k, steps[2])
	take(t, k, step{steps[0].path, "\n", unix.ENOENT}, step{steps[1].path, gpu.String(), unix.ENODEV})
	wantFiles(t, k, false, devices+gpu.String(), "sys/kernel/iommu_groups/15/devices/"+gpu.String())
	wantFiles(t, k, true, devices+audio.String(), "sys/kernel/iommu_groups/15/devices/"+audio.String())

	k.Remove(audio)
	wantFiles(t, k, false, "sys/kernel/iommu_groups/15")
}

func TestRemoveAttribute(t *testing.T) {
	k := sysfstest.New(t)
	gpu := k.AddGPU(0x3b)
	take(t, k, step{devices + gpu.String() + "/remove", "x", unix.EINVAL})
	take(t, k, step{devices + gpu.String() + "/remove", "0", nil})
	wantDriver(t, k, gpu, "nvidia")
	take(t, k, step{devices + "0000:3a:01.0/remove", "1", nil})
	wantFiles(t, k, false, devices+gpu.String(), devices+"0000:3a:01.0")
}

func TestRefusedWrites(t *testing.T) {
	for _, errno := range []unix.Errno{unix.EROFS, unix.EACCES} {
		k := sysfstest.New(t)
		gpu := k.AddGPU(0x3b)
		k.Refuse(errno)
		unbind := step{"sys/bus/pci/drivers/nvidia/unbind", gpu.String(), errno}
		take(t, k, unbind, step{devices + gpu.String() + "/absent", "1", unix.ENOENT})
		wantDriver(t, k, gpu, "nvidia")
		k.Refuse(nil)
		unbind.want = nil
		take(t, k, unbind)
	}
}
