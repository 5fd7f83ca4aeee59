package inventory_test

import (
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/inventory"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
)

const (
	managerData = "\x82\x10\x00Nvidia ConnectX-7\x90\x20\x00VA\x06SW_MNG\x00"
	nicData     = "\x82\x10\x00Nvidia ConnectX-7\x90\x20\x00"
)

// connectX adds a ConnectX function with these vital product data; none if they are empty.
func connectX(k *sysfstest.Kernel, bus uint8, data string) pci.Address {
	f := sysfstest.NIC(pci.Address{Bus: bus})
	f.Vendor, f.Device, f.SRIOV, f.Capabilities.SRIOV = pci.VendorMellanox, 0x1021, nil, nil
	k.AddRootPort(bus)
	k.Add(f)
	if data != "" {
		k.PutFile("sys/bus/pci/devices/"+f.Address.String()+"/vpd", data)
	}
	return f.Address
}

// addGPU adds a GPU of a model.
func addGPU(k *sysfstest.Kernel, id pci.ID) {
	f := sysfstest.GPU(pci.Address{Bus: 0x50})
	f.Device = id
	k.AddRootPort(0x50)
	k.Add(f)
}

// tapped returns the tree with a count of the reads of vital product data.
func tapped(t *testing.T, k *sysfstest.Kernel) (*sysfs.FS, *atomic.Int64) {
	t.Helper()
	fs, err := sysfs.Open(k.Root())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = fs.Close() })
	reads := new(atomic.Int64)
	return fs.WithTap(func(a sysfs.Access) {
		if a.Op == sysfs.OpRead && strings.HasSuffix(a.Path, "/vpd") {
			reads.Add(1)
		}
	}), reads
}

// managers returns what a snapshot has of each ConnectX function.
func managers(s *device.Snapshot) map[pci.Address]*device.SwitchManager {
	all := map[pci.Address]*device.SwitchManager{}
	for i := range s.Functions {
		if f := &s.Functions[i]; f.Vendor == pci.VendorMellanox {
			all[f.Address] = f.Manager
		}
	}
	return all
}

// TestSwitchManagers are known by their vital product data, on the boards that have such functions. Elsewhere none is asked.
func TestSwitchManagers(t *testing.T) {
	for _, c := range []struct {
		name  string
		gpu   pci.ID
		asked bool
	}{{"B200", 0x2901, true}, {"B300", 0x3182, true}, {"H100", 0x2330, false}} {
		t.Run(c.name, func(t *testing.T) {
			k := sysfstest.New(t)
			addGPU(k, c.gpu)
			manager, nic, without := connectX(k, 0x58, managerData), connectX(k, 0x59, nicData), connectX(k, 0x5a, "")
			fs, reads := tapped(t, k)
			s, err := inventory.Scan(t.Context(), fs)
			if err != nil {
				t.Fatal(err)
			}
			want := map[pci.Address]*device.SwitchManager{manager: nil, nic: nil, without: nil}
			if c.asked {
				want = map[pci.Address]*device.SwitchManager{manager: {Manages: true}, nic: {}, without: {}}
			}
			if diff := cmp.Diff(want, managers(s)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if f, _ := s.Function(manager); f.IsNVSwitch() != c.asked || f.IsOnNVLink() != c.asked || f.IsSwitchPart() != c.asked {
				t.Errorf("%s is an NVSwitch: %t, want %t", manager, f.IsNVSwitch(), c.asked)
			}
			first := reads.Load()
			if !c.asked && first != 0 {
				t.Errorf("%d reads of vital product data, want none", first)
			}
			if s, err = inventory.Rescan(t.Context(), fs, s, []pci.Address{manager, nic}); err != nil || reads.Load() != first {
				t.Errorf("%v; %d reads, and %d after another look at the same devices", err, first, reads.Load())
			}
			k.Remove(manager)
			k.Add(func() sysfstest.Function {
				f := sysfstest.NIC(manager)
				f.Vendor, f.Device = pci.VendorMellanox, 0x1021
				return f
			}())
			k.PutFile("sys/bus/pci/devices/"+manager.String()+"/vpd", nicData)
			if s, err = inventory.Rescan(t.Context(), fs, s, []pci.Address{manager}); err != nil || managers(s)[manager] != nil && managers(s)[manager].Manages {
				t.Errorf("%v; another device at the address: %+v", err, managers(s)[manager])
			}
		})
	}
}

// TestSwitchManagersBeforeTheGPU: the GPU that makes the question necessary comes after them.
func TestSwitchManagersBeforeTheGPU(t *testing.T) {
	k := sysfstest.New(t)
	manager := connectX(k, 0x58, managerData)
	fs, _ := tapped(t, k)
	s, err := inventory.Scan(t.Context(), fs)
	if err != nil || managers(s)[manager] != nil {
		t.Fatalf("%v, %+v; want nothing asked", err, managers(s)[manager])
	}
	addGPU(k, 0x2901)
	s, err = inventory.Rescan(t.Context(), fs, s, []pci.Address{{Bus: 0x4f}, {Bus: 0x50}})
	if f, _ := s.Function(manager); err != nil || !f.ManagesSwitches() {
		t.Errorf("%v, %+v; want it known", err, f.Manager)
	}
}

// TestSwitchManagerThatDoesNotAnswer reads all ones, as a function does in a reset. It may be one, until it answers.
func TestSwitchManagerThatDoesNotAnswer(t *testing.T) {
	k := sysfstest.New(t)
	addGPU(k, 0x2901)
	nic := connectX(k, 0x58, strings.Repeat("\xff", 64))
	fs, _ := tapped(t, k)
	s, err := inventory.Scan(t.Context(), fs)
	if f, _ := s.Function(nic); err != nil || f.MayManageSwitches() == "" || f.ManagesSwitches() {
		t.Errorf("%v, %+v; want that nobody knows", err, f.Manager)
	}
	k.PutFile("sys/bus/pci/devices/"+nic.String()+"/vpd", nicData)
	s, err = inventory.Rescan(t.Context(), fs, s, []pci.Address{nic})
	if f, _ := s.Function(nic); err != nil || f.MayManageSwitches() != "" || f.ManagesSwitches() {
		t.Errorf("%v, %+v; want that it is none", err, f.Manager)
	}
}

// noProductData answers as a device does whose vital product data can't be read.
type noProductData struct{ *sysfs.FS }

func (noProductData) Answer(op sysfs.Op, path string) error {
	if op == sysfs.OpRead && strings.HasSuffix(path, "/vpd") {
		return syscall.EIO
	}
	return nil
}

func (n noProductData) Names(path string) ([]string, error) { return n.ReadDir(path) }

// TestSwitchManagerThatIsNotReadable may be one, until it is read.
func TestSwitchManagerThatIsNotReadable(t *testing.T) {
	k := sysfstest.New(t)
	addGPU(k, 0x2901)
	nic := connectX(k, 0x58, nicData)
	fs, _ := tapped(t, k)
	s, err := inventory.Scan(t.Context(), fs.WithCopy(noProductData{fs}))
	if err != nil {
		t.Fatal(err)
	}
	f, _ := s.Function(nic)
	if why := f.MayManageSwitches(); f.IsNVSwitch() || !strings.Contains(why, "input/output error") {
		t.Errorf("%+v: %q; want it unknown", f.Manager, why)
	}
	s, err = inventory.Rescan(t.Context(), fs, s, []pci.Address{nic}, inventory.Lightly())
	if f, _ := s.Function(nic); err != nil || f.Manager == nil || f.MayManageSwitches() != "" {
		t.Errorf("%v, %+v; want it known when it is readable", err, f.Manager)
	}
}
