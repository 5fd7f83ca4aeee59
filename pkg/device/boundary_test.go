package device_test

import (
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// sliced is a node with one PF of the ids at 0000:13:00.1 that has so many VFs, of which the first is at 0000:13:02.0.
func sliced(t *testing.T, vendor, id pci.ID, class pci.Class, vfs int) (s *device.Snapshot, pf, vf *device.Function) {
	t.Helper()
	s = &device.Snapshot{Functions: []device.Function{
		{
			Address: addr(t, "0000:13:00.1"), Vendor: vendor, Device: id, Class: class, Type: device.Classify(class, "", true, false),
			PF: &device.PF{TotalVFs: 16, NumVFs: vfs},
		},
		{Address: addr(t, "0000:13:02.0"), Vendor: vendor, Class: class, Type: device.Classify(class, "", false, true), VF: &device.VF{PF: addr(t, "0000:13:00.1")}},
	}}
	if vendor == 0x1002 {
		s.Functions[0].Driver = "gim"
	}
	return s, &s.Functions[0], &s.Functions[1]
}

// TestBoundaryWithoutGIM: only gim divides the GPU before it makes VFs.
func TestBoundaryWithoutGIM(t *testing.T) {
	for _, driver := range []string{"", "vfio-pci", "amdgpu"} {
		s, pf, vf := sliced(t, 0x1002, 0x74a1, 0x120000, 8)
		pf.Driver = driver
		if got := s.Boundary(vf); got != device.BoundaryScheduler {
			t.Errorf("PF on driver %q: got %q, want %q", driver, got, device.BoundaryScheduler)
		}
	}
}

func TestBoundary(t *testing.T) {
	const amd, intel, nvidia pci.ID = 0x1002, 0x8086, 0x10de
	for name, c := range map[string]struct {
		vendor, id pci.ID
		class      pci.Class
		vfs        int
		want       device.Boundary
		memory     uint64 // GiB
	}{
		"MI300X, 8 VFs":      {amd, 0x74a1, 0x120000, 8, device.BoundaryHardware, 24},
		"MI300X, 1 VF":       {amd, 0x74a1, 0x120000, 1, device.BoundaryHardware, 192},
		"MI300X, 4 VFs":      {amd, 0x74a1, 0x120000, 4, device.BoundaryHardware, 0},
		"MI355X, 8 VFs":      {amd, 0x75a3, 0x120000, 8, device.BoundaryHardware, 36},
		"V710, 12 VFs":       {amd, 0x7460, 0x038000, 12, device.BoundaryScheduler, 0},
		"Flex 170, 8 VFs":    {intel, 0x56c0, 0x038000, 8, device.BoundaryScheduler, 0},
		"H100, 4 VFs":        {nvidia, 0x2330, 0x030200, 4, device.BoundaryScheduler, 0},
		"QuickAssist":        {intel, 0x4940, 0x0b4000, 16, device.BoundaryScheduler, 0},
		"NIC":                {intel, 0x158b, 0x020000, 16, device.BoundaryScheduler, 0},
		"NIC with AMD's ids": {amd, 0x74a1, 0x020000, 8, device.BoundaryScheduler, 0},
	} {
		s, pf, vf := sliced(t, c.vendor, c.id, c.class, c.vfs)
		if got := s.Boundary(vf); got != c.want {
			t.Errorf("%s: boundary of the VF is %q, want %q", name, got, c.want)
		}
		if got := s.Boundary(pf); got != device.BoundaryDevice {
			t.Errorf("%s: boundary of the PF is %q, want %q", name, got, device.BoundaryDevice)
		}
		size, known := s.GPUMemory(vf)
		if size != c.memory<<30 || known != (c.memory > 0) {
			t.Errorf("%s: the VF has %d bytes of memory, known: %t, want %d GiB", name, size, known, c.memory)
		}
	}
}

// TestBoundaryOfPartitions: gim's word counts more than the model's. VFs that share a partition share its dies in time.
func TestBoundaryOfPartitions(t *testing.T) {
	for _, c := range []struct {
		partition string
		vfs       int
		want      device.Boundary
	}{
		{"", 8, device.BoundaryHardware},
		{"CPX/NPS4", 8, device.BoundaryHardware},
		{"SPX/NPS1", 1, device.BoundaryHardware},
		{"DPX/NPS2", 2, device.BoundaryHardware},
		{"SPX/NPS1", 8, device.BoundaryScheduler},
		{"DPX/NPS2", 8, device.BoundaryScheduler},
		{"QPX/NPS4", 8, device.BoundaryScheduler},
	} {
		s, pf, vf := sliced(t, 0x1002, 0x74a1, 0x120000, c.vfs)
		pf.PF.Partition = c.partition
		if got := s.Boundary(vf); got != c.want || s.Partition(vf) != c.partition {
			t.Errorf("%d VFs of a GPU divided as %q: boundary %q, partition %q; want %q", c.vfs, c.partition, got, s.Partition(vf), c.want)
		}
	}
}

// TestVFOfAnAbsentPF: a snapshot may lack the PF, and then nothing is known of its card but the address.
func TestVFOfAnAbsentPF(t *testing.T) {
	s, pf, vf := sliced(t, 0x1002, 0x74a1, 0x120000, 8)
	if card, want := s.Card(vf), addr(t, "0000:13:00.0"); card != want || s.Card(pf) != want {
		t.Errorf("cards of VF and PF are %v and %v, want %v", card, s.Card(pf), want)
	}
	alone := &device.Snapshot{Functions: []device.Function{*vf}}
	size, _ := alone.GPUMemory(&alone.Functions[0])
	if got := alone.Boundary(&alone.Functions[0]); got != device.BoundaryScheduler || size != 0 {
		t.Errorf("without its PF the VF has boundary %q and %d bytes, want %q and none", got, size, device.BoundaryScheduler)
	}
	if card, want := alone.Card(&alone.Functions[0]), addr(t, "0000:13:00.0"); card != want {
		t.Errorf("without its PF the VF has card %v, want %v", card, want)
	}
}
