package device_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

func addr(tb testing.TB, text string) pci.Address {
	tb.Helper()
	a, err := pci.ParseAddress(text)
	if err != nil {
		tb.Fatal(err)
	}
	return a
}

func TestClassify(t *testing.T) {
	tests := []struct {
		name       string
		class      pci.Class
		header     pci.HeaderType
		isPF, isVF bool
		want       device.Type
	}{
		{"VGA adapter", 0x030000, "", false, false, device.GPU},
		{"3D controller", 0x030200, "", false, false, device.GPU},
		{"display controller", 0x038000, "", false, false, device.GPU},
		{"processing accelerator", 0x120000, "", false, false, device.GPU},
		{"GPU with SR-IOV", 0x030200, "", true, false, device.GPU},
		{"VF of a GPU", 0x030200, "", false, true, device.GPUVF},
		{"VF of a processing accelerator", 0x120000, "", false, true, device.GPUVF},
		{"NIC with SR-IOV", 0x020000, "", true, false, device.PFType},
		{"NIC without", 0x020000, "", false, false, device.PFType},
		{"InfiniBand controller", 0x020700, "", true, false, device.PFType},
		{"VF of a NIC", 0x020000, "", false, true, device.VFType},
		{"NVMe controller", 0x010802, "", false, false, device.NVMe},
		{"NVMe controller with SR-IOV", 0x010802, "", true, false, device.NVMe},
		{"VF of an NVMe controller", 0x010802, "", false, true, device.NVMe},
		{"VF of a crypto accelerator", 0x0b4000, "", false, true, device.Accelerator},
		{"VF of an InfiniBand controller", 0x020700, "", false, true, device.VFType},
		{"SATA controller", 0x010601, "", false, false, device.Other},
		{"crypto accelerator with SR-IOV", 0x0b4000, "", true, false, device.Accelerator},
		{"crypto accelerator", 0x0b4000, "", false, false, device.Accelerator},
		{"security processor", 0x108000, "", false, false, device.Other},
		{"storage adapter with SR-IOV", 0x010700, "", true, false, device.PFType},
		{"NVSwitch", 0x068000, pci.HeaderNormal, false, false, device.Other},
		{"NVSwitch in a capture without configuration space", 0x068000, "", false, false, device.Other},
		{"switch port of the class of other bridges", 0x068000, pci.HeaderBridge, false, false, device.Bridge},
		{"root port in a capture without configuration space", 0x060400, "", false, false, device.Bridge},
		{"root port", 0x060400, pci.HeaderBridge, false, false, device.Bridge},
		{"endpoint of the class of PCI bridges", 0x060400, pci.HeaderNormal, false, false, device.Other},
		{"semi-transparent bridge, transparent side", 0x060940, pci.HeaderBridge, false, false, device.Bridge},
		{"semi-transparent bridge, endpoint side", 0x060980, pci.HeaderNormal, false, false, device.Other},
		{"bridge from InfiniBand in a capture without configuration space", 0x060a00, "", false, false, device.Bridge},
		{"CardBus bridge", 0x060700, pci.HeaderCardBus, false, false, device.Bridge},
		{"host bridge", 0x060000, pci.HeaderNormal, false, false, device.Bridge},
		{"ISA bridge", 0x060100, pci.HeaderNormal, false, false, device.Bridge},
		{"switch management function", 0x058000, pci.HeaderNormal, false, false, device.Other},
		{"audio function", 0x040300, "", false, false, device.Other},
	}
	for _, tt := range tests {
		if got := device.Classify(tt.class, tt.header, tt.isPF, tt.isVF); got != tt.want {
			t.Errorf("%s (%v): %q, want %q", tt.name, tt.class, got, tt.want)
		}
	}
}

func TestNames(t *testing.T) {
	for name, f := range map[string]device.Function{
		"gpu-0000-3b-00-0":         {Type: device.GPU, Address: addr(t, "0000:3b:00.0")},
		"vf-0000-5e-10-7":          {Type: device.VFType, Address: addr(t, "0000:5e:10.7")},
		"pf-10000-e1-00-0":         {Type: device.PFType, Address: addr(t, "10000:e1:00.0")},
		"accelerator-0000-b1-01-0": {Type: device.Accelerator, Address: addr(t, "0000:b1:01.0")},
	} {
		if got := f.Name(); got != name {
			t.Errorf("name of %s %v is %q, want %q", f.Type, f.Address, got, name)
		}
		typ, a, err := device.ParseName(name)
		if err != nil || typ != f.Type || a != f.Address {
			t.Errorf("ParseName(%q) = %q, %v, %v", name, typ, a, err)
		}
	}
	for _, name := range []string{"", "gpu", "gpu-", "gpu-0000-3b-00", "0000-3b-00-0", "tpu-0000-3b-00-0", "bridge-0000-3b-00-0", "gpu-0000:3b:00.0"} {
		if typ, a, err := device.ParseName(name); err == nil {
			t.Errorf("ParseName(%q) = %q, %v; want an error", name, typ, a)
		}
	}
}

// TestFormerNames keeps the names under which earlier versions published a function, and takes no other.
func TestFormerNames(t *testing.T) {
	at := addr(t, "0000:b1:00.0")
	for name, c := range map[string]struct {
		f    device.Function
		want []string
	}{
		"accelerator": {device.Function{Type: device.Accelerator, Address: at}, []string{"accelerator", "other"}},
		"its VF":      {device.Function{Type: device.Accelerator, Address: at, VF: &device.VF{}}, []string{"accelerator", "other", "vf"}},
		"its PF":      {device.Function{Type: device.Accelerator, Address: at, PF: &device.PF{}}, []string{"accelerator", "pf"}},
		"NIC's VF":    {device.Function{Type: device.VFType, Address: at, VF: &device.VF{}}, []string{"vf"}},
		"GPU's VF":    {device.Function{Type: device.GPUVF, Address: at, VF: &device.VF{}}, []string{"gpuvf", "vf"}},
		"GPU":         {device.Function{Type: device.GPU, Address: at, PF: &device.PF{}}, []string{"gpu"}},
		"NVMe":        {device.Function{Type: device.NVMe, Address: at}, []string{"nvme"}},
		"NVMe's VF":   {device.Function{Type: device.NVMe, Address: at, VF: &device.VF{}}, []string{"nvme", "vf"}},
		"NVMe's PF":   {device.Function{Type: device.NVMe, Address: at, PF: &device.PF{}}, []string{"nvme", "pf"}},
		"other's VF":  {device.Function{Type: device.Other, Address: at, VF: &device.VF{}}, []string{"other", "vf"}},
		"other":       {device.Function{Type: device.Other, Address: at}, []string{"other"}},
	} {
		var got []string
		for _, kind := range device.Types() {
			if c.f.HasName(string(kind) + "-" + at.Label()) {
				got = append(got, string(kind))
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s has the names of the types %q, want %q", name, got, c.want)
		}
		if c.f.HasName(c.f.Name() + "0") {
			t.Errorf("%s has the name of another address", name)
		}
	}
}

func TestDrivers(t *testing.T) {
	for driver, want := range map[string]bool{
		"vfio-pci": true, "vfio_pci": true, "mlx5_vfio_pci": true, "nvgrace_gpu_vfio_pci": true, "hisi-acc-vfio-pci": true,
		"": false, "nvidia": false, "pci-stub": false, "vfio": false, "vfio-pci-core": false,
	} {
		if got := device.IsVFIO(driver); got != want {
			t.Errorf("IsVFIO(%q) = %v, want %v", driver, got, want)
		}
	}
	h := device.Host{Drivers: []string{"igb", "vfio-pci", "mlx5_vfio_pci"}}
	tests := []struct {
		module, name string
		loaded       bool
	}{
		{"vfio_pci", "vfio-pci", true},
		{"mlx5_vfio_pci", "mlx5_vfio_pci", true},
		{"nvgrace_gpu_vfio_pci", "nvgrace_gpu_vfio_pci", false},
	}
	for _, tt := range tests {
		if name, loaded := h.Driver(tt.module); name != tt.name || loaded != tt.loaded {
			t.Errorf("driver of %s is %q, loaded %v; want %q, %v", tt.module, name, loaded, tt.name, tt.loaded)
		}
	}
	none := device.Host{}
	if name, loaded := none.Driver("vfio_pci"); name != device.GenericVFIO || loaded {
		t.Errorf("driver of vfio_pci before it is loaded is %q, loaded %v", name, loaded)
	}
}

func TestUseStrings(t *testing.T) {
	var got []string
	for _, u := range []device.Use{
		{Kind: device.UseAddress, Name: "eth0", Detail: "10.0.0.5/24 on bond0"},
		{Kind: device.UseRoute, Name: "eth0", Detail: "default via 10.0.0.1"},
		{Kind: device.UseMaster, Name: "eth0", Detail: "bond0"},
		{Kind: device.UseNamespace},
		{Kind: device.UseMount, Name: "nvme0n1p2", Detail: "/var"},
		{Kind: device.UseSwap, Name: "nvme0n1p3"},
		{Kind: device.UseStack, Name: "nvme0n1", Detail: "dm-0"},
		{Kind: device.UseConsole, Name: "card0"},
		{Kind: "future", Name: "x0", Detail: "y"},
	} {
		got = append(got, u.String())
	}
	want := []string{
		"netdev eth0 has address 10.0.0.5/24 on bond0",
		"netdev eth0 carries the route default via 10.0.0.1",
		"netdev eth0 is part of bond0",
		"its netdev is in another network namespace",
		"block device nvme0n1p2 is mounted on /var",
		"block device nvme0n1p3 is used as swap",
		"block device nvme0n1 backs dm-0",
		"it drives the boot console",
		"future x0 y",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("phrases (-want +got):\n%s", diff)
	}
}
