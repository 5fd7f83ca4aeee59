package sysfstest_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
)

// Configuration space reads back as it was given.
func TestConfigSpace(t *testing.T) {
	everything := pci.Capabilities{
		Express: &pci.Express{Type: pci.RCEndpoint, FLR: true}, AFFLR: true,
		Power: &pci.Power{NoSoftReset: true, State: 3},
		MSI:   true, MSIX: true, AER: true,
		ACS:   &pci.ACS{Capability: 0x7f, Control: 0x1d},
		ATS:   &pci.Switchable{Enabled: true, Control: 0x8000},
		PASID: &pci.Switchable{Enabled: true, Control: 1},
		PRI:   &pci.Switchable{Enabled: true, Control: 1},
		SRIOV: &pci.SRIOV{TotalVFs: 64, VFDevice: 0x101e},
	}
	off := pci.Capabilities{
		Express: &pci.Express{Type: pci.Endpoint},
		ATS:     &pci.Switchable{}, PASID: &pci.Switchable{}, PRI: &pci.Switchable{},
	}
	tests := map[string]struct {
		given pci.Capabilities
		size  int
	}{
		"everything":       {everything, 4096},
		"switched off":     {off, 4096},
		"nothing extended": {pci.Capabilities{Express: &pci.Express{Type: pci.LegacyEndpoint}}, 4096},
		"conventional":     {pci.Capabilities{Power: &pci.Power{}, MSI: true}, 256},
		"none":             {pci.Capabilities{}, 256},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			k := sysfstest.New(t)
			k.AddRootPort(0x3b)
			f := sysfstest.Function{Address: addr(t, "0000:3b:00.0"), Vendor: 0x15b3, Device: 1, Capabilities: tt.given}
			k.Add(f)
			config := []byte(read(t, k, devices+"0000:3b:00.0/config"))
			if len(config) != tt.size {
				t.Errorf("%d bytes, want %d", len(config), tt.size)
			}
			got, err := pci.ParseCapabilities(config)
			if err != nil {
				t.Fatal(err)
			}
			want := tt.given
			want.Header = pci.HeaderNormal
			if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(pci.Capabilities{}, "Switches")); diff != "" {
				t.Errorf("capabilities (-want +got):\n%s", diff)
			}
		})
	}
}

func TestResourceTable(t *testing.T) {
	k := sysfstest.New(t)
	k.AddRootPort(0x3b)
	f := sysfstest.NIC(addr(t, "0000:3b:00.0"))
	f.BARs = append(f.BARs, device.BAR{Index: 4, Size: 4 << 30, Is64: true, Prefetchable: true})
	k.Add(f)
	table := read(t, k, devices+"0000:3b:00.0/resource")
	resources, err := pci.ParseResources(table)
	if err != nil {
		t.Fatal(err)
	}
	var got []device.BAR
	for i, r := range resources {
		if r.Size() == 0 {
			continue
		}
		if r.Start%r.Size() != 0 {
			t.Errorf("BAR %d of %#x bytes is at %#x", i, r.Size(), r.Start)
		}
		got = append(got, device.BAR{Index: i, Size: r.Size(), IO: r.IO(), Prefetchable: r.Prefetchable(), Is64: r.Is64()})
	}
	if diff := cmp.Diff(f.BARs, got); diff != "" {
		t.Errorf("BARs (-want +got):\n%s", diff)
	}
	if n := len(strings.Split(table, "\n")); n != 13 {
		t.Errorf("%d lines, want 13", n)
	}
}

func TestMultifunctionBit(t *testing.T) {
	k := sysfstest.New(t)
	gpu, audio := k.AddGPUWithAudio(0x3b, 15)
	alone := k.AddGPU(0x41)
	_, vfs := k.AddNIC(0x45, 2)
	for a, want := range map[pci.Address]byte{gpu: 0x80, audio: 0x80, alone: 0, vfs[0]: 0, vfs[1]: 0} {
		if got := read(t, k, devices+a.String()+"/config")[0x0e]; got != want {
			t.Errorf("header type of %s is %#x, want %#x", a, got, want)
		}
	}
	if got := read(t, k, devices+"0000:3a:01.0/config")[0x0e]; got != 1 {
		t.Errorf("header type of a port is %#x, want 0x1", got)
	}
}

// The tree is laid out as sysfs lays it out: by what is behind what.
func TestTopology(t *testing.T) {
	k := sysfstest.New(t)
	k.AddRoot(sysfstest.Root{Domain: 0x10000, Under: "pci0000:00/0000:00:0e.0", NUMA: -1})
	k.AddRoot(sysfstest.Root{Domain: 4, Under: "platform/30000000.pcie", NUMA: 1})
	k.AddPort(sysfstest.Port{Address: addr(t, "10000:00:01.0"), Secondary: 1})
	k.AddPort(sysfstest.Port{Address: addr(t, "0004:00:00.0"), Secondary: 1, Subordinate: 9})
	k.AddSwitch(sysfstest.Switch{
		Upstream: addr(t, "0004:01:00.0"), Secondary: 2,
		Ports: []sysfstest.Port{{Address: addr(t, "0004:02:00.0"), Secondary: 3}},
	})
	k.Add(sysfstest.GPU(addr(t, "0004:03:00.0")), sysfstest.NVMe(addr(t, "10000:01:00.0")))

	for a, want := range map[string][2]string{
		"0004:03:00.0":  {"sys/devices/platform/30000000.pcie/pci0004:00/0004:00:00.0/0004:01:00.0/0004:02:00.0/0004:03:00.0", "1"},
		"10000:01:00.0": {"sys/devices/pci0000:00/0000:00:0e.0/pci10000:00/10000:00:01.0/10000:01:00.0", "-1"},
	} {
		got, err := filepath.EvalSymlinks(k.Path(devices + a))
		whole, _ := filepath.EvalSymlinks(k.Path(want[0]))
		if err != nil || got != whole {
			t.Errorf("%s is at %s, %v; want %s", a, got, err, want[0])
		}
		if node := read(t, k, devices+a+"/numa_node"); node != want[1] {
			t.Errorf("%s is on node %s, want %s", a, node, want[1])
		}
	}
	port, err := pci.ParseCapabilities([]byte(read(t, k, devices+"0004:02:00.0/config")))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(sysfstest.FullACS(), port.ACS); diff != "" || port.Express.Type != pci.DownstreamPort {
		t.Errorf("port is of type %v, ACS (-want +got):\n%s", port.Express.Type, diff)
	}
}

func TestBuilderErrors(t *testing.T) {
	at := addr(t, "0000:3b:00.0")
	tests := map[string]func(k *sysfstest.Kernel){
		"bus that nothing leads to":   func(k *sysfstest.Kernel) { k.Add(sysfstest.GPU(addr(t, "0000:99:00.0"))) },
		"address twice":               func(k *sysfstest.Kernel) { k.Add(sysfstest.GPU(at)) },
		"root twice":                  func(k *sysfstest.Kernel) { k.AddRoot(sysfstest.Root{Bus: 0x3a}) },
		"remove nothing":              func(k *sysfstest.Kernel) { k.Remove(addr(t, "0000:99:00.0")) },
		"hold a node that is not":     func(k *sysfstest.Kernel) { k.Hold("/dev/vfio/15", 1000, "qemu", "") },
		"two processes of one number": func(k *sysfstest.Kernel) { k.Hold("/dev/dri/card0", 9, "x", ""); k.Hold("/dev/dri/card0", 9, "x", "") },
		"remove a driver in use":      func(k *sysfstest.Kernel) { k.RemoveDriver("nvidia") },
		"group that is not":           func(k *sysfstest.Kernel) { k.SetGroupType(77, "identity") },
		"config space of nothing":     func(k *sysfstest.Kernel) { k.SetConfig(addr(t, "0000:99:00.0"), 0, 1) },
		"config space past the end":   func(k *sysfstest.Kernel) { k.SetConfig(at, 4095, 1, 2) },
		"address of no netdev":        func(k *sysfstest.Kernel) { k.AddAddress("eth9", "10.0.0.1/8") },
		"no address":                  func(k *sysfstest.Kernel) { k.AddAddress("eth9", "10.0.0.1") },
		"mount of nothing":            func(k *sysfstest.Kernel) { k.AddMount("sdz1", "/data") },
		"no IOMMU too late":           func(k *sysfstest.Kernel) { k.WithoutIOMMU() },
		"driver that does not take it": func(k *sysfstest.Kernel) {
			port := sysfstest.Port{Address: addr(t, "0000:3a:02.0"), Secondary: 0x3c, Driver: "vfio-pci"}
			k.AddPort(port)
		},
	}
	for name, build := range tests {
		t.Run(name, func(t *testing.T) {
			tb := &fatal{TB: t}
			k := sysfstest.New(tb)
			k.AddGPU(0x3b)
			if tb.said != "" {
				t.Fatal(k.Err())
			}
			build(k)
			if tb.said == "" || k.Err() == nil {
				t.Error("passed without a word")
			}
		})
	}
}

func TestNewAt(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "node")
	k, err := sysfstest.NewAt(dir)
	if err != nil {
		t.Fatal(err)
	}
	gpu := k.AddGPU(0x3b)
	take(t, k, toVFIO(gpu, "nvidia")...)
	if err := k.Err(); err != nil || k.Root() != dir {
		t.Errorf("node at %s: %v", k.Root(), err)
	}
	k.Add(sysfstest.GPU(gpu))
	if k.Err() == nil {
		t.Error("Err forgets")
	}
	if _, err := sysfstest.NewAt(dir); err == nil {
		t.Error("made a node where there is one")
	}
}
