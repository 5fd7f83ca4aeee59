package sysfstest_test

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
)

// onVFIO binds functions to vfio-pci.
func onVFIO(t *testing.T, k *sysfstest.Kernel, driver string, a pci.Address) {
	t.Helper()
	for _, write := range [][2]string{
		{"sys/bus/pci/devices/" + a.String() + "/driver_override", "vfio-pci"},
		{"sys/bus/pci/drivers/" + driver + "/unbind", a.String()},
		{"sys/bus/pci/drivers_probe", a.String()},
	} {
		if err := k.Write(write[0], []byte(write[1])); err != nil {
			t.Fatalf("write %q: %v", write, err)
		}
	}
}

// A hot reset reaches all that is below the bridge. The kernel refuses it unless the
// caller has shown that all of that is its own, and free.
func TestHotResetByBusMembership(t *testing.T) {
	k := sysfstest.New(t)
	gpu, audio := k.AddGPUWithAudio(0x3b, 15)
	both := []pci.Address{audio, gpu}
	wantErrno := func(set []pci.Address, want error) {
		t.Helper()
		if err := k.HotReset(t.Context(), set); !errors.Is(err, want) {
			t.Errorf("hot reset of %v: %v, want %v", set, err, want)
		}
	}
	wantErrno(both, unix.EPERM) // on host drivers
	onVFIO(t, k, "nvidia", gpu)
	onVFIO(t, k, "snd_hda_intel", audio)
	wantErrno([]pci.Address{gpu}, unix.EINVAL)
	other := k.AddGPU(0x41)
	onVFIO(t, k, "nvidia", other)
	wantErrno([]pci.Address{gpu, audio, other}, unix.EINVAL)
	h := k.Hold("/dev/vfio/15", 4711, "qemu", "")
	wantErrno(both, unix.EBUSY)
	h.Release()
	if n := len(k.Resets()); n > 0 {
		t.Errorf("%d functions were reset", n)
	}
	wantErrno(both, nil)
	if n := len(k.Resets()); n != 2 {
		t.Errorf("%d functions were reset, want 2", n)
	}
}
