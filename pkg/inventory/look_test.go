package inventory

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"testing/synctest"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
)

// TestLookFindsWhatNoUeventTells: a device that fell off the bus, one that lost its link, fatal errors, and what somebody
// has switched in its registers.
func TestLookFindsWhatNoUeventTells(t *testing.T) {
	lose := func(k *sysfstest.Kernel, a pci.Address) {
		k.PutFile(filepath.Join(sysfs.FunctionPath(a), "current_link_width"), "0\n")
	}
	for name, tt := range map[string]struct {
		change func(k *sysfstest.Kernel, a pci.Address)
		found  func(f *device.Function) bool
	}{
		"off the bus":      {(*sysfstest.Kernel).FallOff, func(f *device.Function) bool { return f.ConfigDead }},
		"without its link": {lose, (*device.Function).LinkDown},
		"fatal errors": {
			func(k *sysfstest.Kernel, a pci.Address) { k.CountFatalErrors(a, 2) },
			func(f *device.Function) bool { return f.FatalErrors == 2 },
		},
		"ACS switched off": {
			func(k *sysfstest.Kernel, a pci.Address) { k.SetACS(a, 0) },
			func(f *device.Function) bool { return f.Capabilities.ACS.Control == 0 },
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := sysfstest.New(t)
				k.AddRootPort(0x3b)
				gpu, asleep := sysfstest.GPU(pci.Address{Bus: 0x3b}), pci.Address{Bus: 0x3c}
				gpu.Link = &device.Link{Speed: "32.0 GT/s PCIe", MaxSpeed: "32.0 GT/s PCIe", Width: 16, MaxWidth: 16}
				gpu.Capabilities.ACS = sysfstest.FullACS()
				k.Add(gpu)
				k.AddRootPort(0x3c)
				gpu.Address = asleep
				k.Add(gpu)
				gpu.Address = pci.Address{Bus: 0x3b}
				k.PutFile(filepath.Join(sysfs.FunctionPath(asleep), "power_state"), "D3cold\n")
				w, stop := follow(t, k)
				defer stop()
				before := w.latest.Load()
				look(t, w)
				if w.latest.Load() != before {
					t.Error("a look at a node that is as it was made a new snapshot")
				}
				tt.change(k, gpu.Address)
				tt.change(k, asleep)
				synctest.Wait()
				if w.latest.Load() != before {
					t.Fatal("something told of the change: the test shows nothing")
				}
				look(t, w)
				if f, _ := w.latest.Load().Function(gpu.Address); !tt.found(f) {
					t.Errorf("not found: %+v", f)
				}
				if f, _ := w.latest.Load().Function(asleep); tt.found(f) {
					t.Error("a function in D3cold was woken")
				}
			})
		})
	}
}

// follow runs a watcher on a scripted node, which tells it nothing.
func follow(t *testing.T, k *sysfstest.Kernel) (*Watcher, func()) {
	t.Helper()
	fs, err := sysfs.Open(k.Root())
	if err != nil {
		t.Fatal(err)
	}
	closing(t, fs)
	events := newFakeEvents()
	w, err := WatchBy(t.Context(), fs, events)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- w.Run(t.Context()) }()
	synctest.Wait()
	return w, func() {
		events.next <- os.ErrClosed
		if err := <-done; !errors.Is(err, os.ErrClosed) {
			t.Error(err)
		}
	}
}

// look looks at all functions, and waits for what comes of it.
func look(t *testing.T, w *Watcher) {
	t.Helper()
	if err := w.Look(t.Context(), func(f *device.Function) bool { return !f.IsBridge() }); err != nil {
		t.Fatal(err)
	}
	pause(t.Context(), 2*settle)
	synctest.Wait()
}

// TestLookFindsUsesThatBeginAndEnd: a Prepare that saw an address on a NIC has withdrawn it from tenants. Nothing but
// a look finds that the address is gone.
func TestLookFindsUsesThatBeginAndEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := sysfstest.New(t)
		nic, _ := k.AddNIC(0x45, 0)
		k.AddNIC(0x51, 0)
		w, stop := follow(t, k)
		defer stop()
		before := w.latest.Load()
		f, _ := before.Function(nic)
		netdev := f.Children.Net[0]
		lookForUses(t, w, before, 0)
		k.AddAddress(netdev, "10.0.0.5/24")
		lookForUses(t, w, before, 1)
		if f, _ := w.latest.Load().Function(nic); len(f.Uses) == 0 || f.Uses[0].Kind != device.UseAddress {
			t.Errorf("uses of a NIC with an address: %v", f.Uses)
		}
		k.PutFile(filepath.Join(sysfs.FunctionPath(nic), "power_state"), "D3cold\n")
		k.RemoveAddresses(netdev)
		lookForUses(t, w, before, 1) // a look would wake it
		k.PutFile(filepath.Join(sysfs.FunctionPath(nic), "power_state"), "D0\n")
		lookForUses(t, w, before, 0)
	})
}

// lookForUses looks, and checks how many functions are in use. With none the snapshot says the
// same as before.
func lookForUses(t *testing.T, w *Watcher, before *device.Snapshot, want int) {
	t.Helper()
	if err := w.Look(t.Context(), func(*device.Function) bool { return false }); err != nil {
		t.Fatal(err)
	}
	pause(t.Context(), 2*settle)
	synctest.Wait()
	var used []pci.Address
	for _, f := range w.latest.Load().Functions {
		if len(f.Uses) > 0 {
			used = append(used, f.Address)
		}
	}
	if len(used) != want {
		t.Errorf("%v are in use, want %d", used, want)
	}
	if now := w.latest.Load(); want == 0 && !reflect.DeepEqual(now, before) {
		t.Errorf("with no use the snapshot is\n%+v\nand was\n%+v", now, before)
	}
}

// TestLookMindsFunctionsThatGo: a NIC that is unplugged between the snapshot and the look is not an error.
func TestLookMindsFunctionsThatGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := sysfstest.New(t)
		nic, _ := k.AddNIC(0x45, 0)
		w, stop := follow(t, k)
		defer stop()
		k.Remove(nic)
		look(t, w)
		if _, ok := w.latest.Load().Function(nic); ok {
			t.Error("the NIC is there still")
		}
	})
}
