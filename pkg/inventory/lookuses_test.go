package inventory

import (
	"path/filepath"
	"reflect"
	"testing"
	"testing/synctest"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
)

// TestALookFindsUsesThatBeginAndEnd: a Prepare that saw an address on a NIC has withdrawn it from tenants. Nothing but
// a look finds that the address is gone.
func TestALookFindsUsesThatBeginAndEnd(t *testing.T) {
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

// TestALookMindsFunctionsThatGo: a NIC that is unplugged between the snapshot and the look is no error.
func TestALookMindsFunctionsThatGo(t *testing.T) {
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
