package inventory_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/inventory"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
)

func open(t *testing.T, k *sysfstest.Kernel) *sysfs.FS {
	t.Helper()
	node, err := sysfs.Open(k.Root())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = node.Close() })
	return node
}

func scan(t *testing.T, node *sysfs.FS, opts ...inventory.Option) *device.Snapshot {
	t.Helper()
	snap, err := inventory.Scan(t.Context(), node, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return snap
}

func function(t *testing.T, snap *device.Snapshot, a pci.Address) *device.Function {
	t.Helper()
	f, ok := snap.Function(a)
	if !ok {
		t.Fatalf("the snapshot has no %v", a)
	}
	return f
}

// A GPU behind a switch, with everything that a function can have.
func TestScanFunction(t *testing.T) {
	k := sysfstest.New(t)
	k.AddRoot(sysfstest.Root{Bus: 0x3a, NUMA: 1})
	k.AddPort(sysfstest.Port{Address: addr(t, "0000:3a:00.0"), Secondary: 0x3b, Subordinate: 0x3f})
	k.AddSwitch(sysfstest.Switch{Upstream: addr(t, "0000:3b:00.0"), Secondary: 0x3c, Ports: []sysfstest.Port{
		{Address: addr(t, "0000:3c:00.0"), Secondary: 0x3d},
	}})
	want := device.Function{
		Address: addr(t, "0000:3d:00.0"), Type: device.GPU,
		Vendor: 0x10de, Device: 0x2684, SubVendor: 0x10de, SubDevice: 0x16f4, Class: 0x030000, Revision: 0xa1,
		Modalias: "pci:v000010DEd00002684sv000010DEsd000016F4bc03sc00i00",
		Driver:   "nouveau", NUMANode: new(1), Root: "pci0000:3a",
		Switch:   new(addr(t, "0000:3b:00.0")),
		Upstream: []pci.Address{addr(t, "0000:3a:00.0"), addr(t, "0000:3b:00.0"), addr(t, "0000:3c:00.0")},
		Group:    new(15),
		BARs: []device.BAR{
			{Index: 0, Start: 0x8000_0000, Size: 16 << 20},
			{Index: 1, Start: 0x3d28_0000_0000, Size: 32 << 30, Prefetchable: true, Is64: true},
			{Index: 5, Start: 0x1000, Size: 128, IO: true},
		},
		Link:         &device.Link{Speed: "2.5 GT/s PCIe", Width: 8, MaxSpeed: "16.0 GT/s PCIe", MaxWidth: 16},
		ResetMethods: []string{"flr", "bus"},
		Capabilities: pci.Capabilities{
			Header:  pci.HeaderNormal,
			Express: &pci.Express{Type: pci.LegacyEndpoint, FLR: true}, Power: &pci.Power{NoSoftReset: true},
			MSI: true, AER: true, ATS: &pci.Switchable{},
			Switches: []pci.Capability{{ID: 0x0f, Extended: true, Offset: 0x148}},
		},
		Children: device.Children{DRM: []string{"card0", "renderD128"}, Nodes: []string{"dri/card0", "dri/renderD128"}},
	}
	k.Add(sysfstest.Function{
		Address: want.Address, Vendor: want.Vendor, Device: want.Device, SubVendor: want.SubVendor, SubDevice: want.SubDevice,
		Class: want.Class, Revision: want.Revision, Driver: want.Driver, Group: 15, ResetMethods: want.ResetMethods,
		BARs: want.BARs, Link: want.Link, Capabilities: want.Capabilities,
	})
	snap := scan(t, open(t, k))
	want.Inode = function(t, snap, want.Address).Inode
	if want.Inode == 0 {
		t.Error("the function's directory has no inode number")
	}
	if diff := cmp.Diff(&want, function(t, snap, want.Address)); diff != "" {
		t.Errorf("GPU (-want +got):\n%s", diff)
	}
	port := function(t, snap, addr(t, "0000:3a:00.0"))
	if port.Type != device.Bridge || port.Driver != "pcieport" || port.Switch != nil || port.Upstream != nil || port.Root != "pci0000:3a" {
		t.Errorf("root port: %+v", port)
	}
	down := function(t, snap, addr(t, "0000:3c:00.0"))
	if down.Switch == nil || *down.Switch != addr(t, "0000:3b:00.0") {
		t.Errorf("switch above the downstream port is %v, want 0000:3b:00.0", down.Switch)
	}
	if up := function(t, snap, addr(t, "0000:3b:00.0")); up.Switch != nil {
		t.Errorf("the switch's upstream port has switch %v above it", up.Switch)
	}
}

// TestScanFunctionsOfABridgesClass: by their header some are bridges and some are endpoints.
func TestScanFunctionsOfABridgesClass(t *testing.T) {
	k := sysfstest.New(t)
	k.AddRootPort(0x08)
	nvSwitch := sysfstest.GPU(addr(t, "0000:08:00.0"))
	nvSwitch.Device, nvSwitch.Class, nvSwitch.Driver = 0x22a3, 0x068000, "nvidia-nvswitch"
	k.Add(nvSwitch)
	node := open(t, k)
	full := scan(t, node)
	for when, snap := range map[string]*device.Snapshot{"read in full": full, "read lightly": rescanLightly(t, node, full, nvSwitch.Address)} {
		f := function(t, snap, nvSwitch.Address)
		if f.Type != device.Other || f.IsBridge() || !f.IsNVSwitch() || f.Capabilities.Header != pci.HeaderNormal {
			t.Errorf("%s: %s, bridge %t, header %q", when, f.Type, f.IsBridge(), f.Capabilities.Header)
		}
		port := function(t, snap, f.Upstream[0])
		if port.Type != device.Bridge || !port.IsBridge() || port.Capabilities.Header != pci.HeaderBridge {
			t.Errorf("%s: the port is %s, header %q", when, port.Type, port.Capabilities.Header)
		}
	}
}

func TestScanSRIOV(t *testing.T) {
	k := sysfstest.New(t)
	pf, vfs := k.AddNIC(0x5e, 4)
	speed := k.Path("sys/bus/pci/devices/" + pf.String() + "/net/eth0/speed")
	if err := os.WriteFile(speed, []byte("25000\n"), 0o444); err != nil {
		t.Fatal(err)
	}
	snap := scan(t, open(t, k))
	f := function(t, snap, pf)
	want := &device.PF{TotalVFs: 8, NumVFs: 4, Autoprobe: true, VFs: vfs}
	if diff := cmp.Diff(want, f.PF); diff != "" || f.Type != device.PFType || f.VF != nil {
		t.Errorf("PF is a %s (-want +got):\n%s", f.Type, diff)
	}
	if len(f.Children.Net) != 1 {
		t.Errorf("the PF has netdevs %v", f.Children.Net)
	}
	if f.PortSpeed != 25000 {
		t.Errorf("the PF's port has %d Mbit/s", f.PortSpeed)
	}
	for i, a := range vfs {
		vf := function(t, snap, a)
		if vf.Type != device.VFType || vf.VF == nil || vf.VF.PF != pf || vf.VF.Index != i || vf.PF != nil || vf.ConfigDead {
			t.Errorf("VF %d at %v: %+v", i, a, vf)
		}
	}
}

func TestScanGroups(t *testing.T) {
	k := sysfstest.New(t)
	gpu, audio := k.AddGPUWithAudio(0x3b, 15)
	k.SetGroupType(15, "DMA-FQ")
	k.SetReserved(15, "0x00000000fee00000 0x00000000feefffff msi", "0x00000000000a0000 0x00000000000fffff direct-relaxable")
	k.PutFile("sys/kernel/iommu_groups/15/devices/30000000.soc", "")
	snap := scan(t, open(t, k))
	g, ok := snap.Group(15)
	if !ok {
		t.Fatalf("no group 15 in %+v", snap.Groups)
	}
	want := &device.Group{
		Number: 15, Type: "DMA-FQ", Members: []pci.Address{gpu, audio}, Others: []string{"30000000.soc"},
		Reserved: []device.Region{
			{Start: 0xfee00000, End: 0xfeefffff, Type: "msi"},
			{Start: 0xa0000, End: 0xfffff, Type: "direct-relaxable"},
		},
	}
	if diff := cmp.Diff(want, g); diff != "" {
		t.Errorf("group 15 (-want +got):\n%s", diff)
	}
	if !slices.IsSortedFunc(snap.Groups, func(a, b device.Group) int { return a.Number - b.Number }) {
		t.Error("groups are not in order")
	}
}

func TestScanWithoutIOMMU(t *testing.T) {
	k := sysfstest.New(t)
	k.WithoutIOMMU()
	gpu := k.AddGPU(0x3b)
	k.SetParameter("vfio", "enable_unsafe_noiommu_mode", "Y")
	snap := scan(t, open(t, k))
	if f := function(t, snap, gpu); f.Group != nil {
		t.Errorf("group is %d without an IOMMU", *f.Group)
	}
	if len(snap.Groups) != 0 || len(snap.Host.IOMMUs) != 0 || !snap.Host.NoIOMMUMode {
		t.Errorf("groups %v, host %+v", snap.Groups, snap.Host)
	}
}

// Once VFIO has made up a group without an IOMMU, it says so.
func TestScanNoIOMMUGroup(t *testing.T) {
	tr := newTree(t)
	where := tr.function("pci0000:00/0000:00:03.0", nil)
	tr.put("sys/kernel/iommu_groups/0/name", "vfio-noiommu\n")
	tr.link("sys/kernel/iommu_groups/0/devices/0000:00:03.0", where)
	tr.link(where+"/iommu_group", "sys/kernel/iommu_groups/0")
	snap := scan(t, tr.open())
	if g, ok := snap.Group(0); !ok || !g.NoIOMMU || g.Type != "" {
		t.Errorf("group 0: %+v, %v", g, ok)
	}
}

func TestScanVFIO(t *testing.T) {
	for _, iommufd := range []bool{true, false} {
		k := sysfstest.New(t)
		if iommufd {
			k.WithIOMMUFD()
		}
		gpu := k.AddGPU(0x3b)
		for _, w := range [][2]string{
			{"sys/bus/pci/devices/" + gpu.String() + "/driver_override", "vfio-pci"},
			{"sys/bus/pci/drivers/nvidia/unbind", gpu.String()},
			{"sys/bus/pci/drivers_probe", gpu.String()},
		} {
			if err := k.Write(w[0], []byte(w[1])); err != nil {
				t.Fatal(err)
			}
		}
		snap := scan(t, open(t, k))
		f := function(t, snap, gpu)
		want := device.Children{Served: true}
		if iommufd {
			want = device.Children{Served: true, VFIO: "vfio0", Nodes: []string{"vfio/devices/vfio0"}}
		}
		if diff := cmp.Diff(want, f.Children); diff != "" || f.Driver != "vfio-pci" || f.DriverOverride != "vfio-pci" {
			t.Errorf("iommufd %v: driver %q, override %q, children (-want +got):\n%s", iommufd, f.Driver, f.DriverOverride, diff)
		}
		if snap.Host.IOMMUFD != iommufd {
			t.Errorf("IOMMUFD is %v, want %v", snap.Host.IOMMUFD, iommufd)
		}
	}
}

// TestScanMachine: a scan says what the kernel runs on, and a rescan keeps it.
func TestScanMachine(t *testing.T) {
	k := sysfstest.New(t)
	gpu := k.AddGPU(0x3b)
	k.PutFile("proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu vmx hypervisor\n"+strings.Repeat("processor\t: 1\n", 10000))
	want := device.Machine{Arch: device.X86, Hypervisor: device.VM}
	snap := scan(t, open(t, k))
	if snap.Host.Machine != want {
		t.Errorf("the machine is %+v, want %+v", snap.Host.Machine, want)
	}
	again, err := inventory.Rescan(t.Context(), open(t, k), snap, []pci.Address{gpu})
	if err != nil || again.Host.Machine != want {
		t.Errorf("after a rescan the machine is %+v (error %v), want %+v", again.Host.Machine, err, want)
	}
}

func TestScanNVIDIA(t *testing.T) {
	k := sysfstest.New(t)
	k.AddGPU(0x3b)
	gpu := k.AddGPU(0x5e)
	nodes := function(t, scan(t, open(t, k)), gpu).Children.Nodes
	if !slices.Contains(nodes, "nvidia1") || slices.Contains(nodes, "nvidia0") {
		t.Errorf("nodes of the second GPU are %v, want nvidia1 among them", nodes)
	}
}

func TestScanHost(t *testing.T) {
	k := sysfstest.New(t)
	k.SetIRQChips("IR-IO-APIC", "IR-PCI-MSIX-0000:3b:00.0", "IR-PCI-MSIX-0000:3b:00.1", "DMAR-MSI", "IR-PCI-MSI-0000:00:1f.2")
	k.SetParameter("vfio_iommu_type1", "allow_unsafe_interrupts", "Y")
	k.SetParameter("iommufd", "allow_unsafe_interrupts", "N")
	k.SetAliases("alias pci:v*d* igb\nalias vfio_pci:v000015B3d* mlx5_vfio_pci\n")
	h := scan(t, open(t, k)).Host
	if diff := cmp.Diff([]string{"IR-PCI-MSI", "IR-PCI-MSIX"}, h.IRQChips); diff != "" {
		t.Errorf("chips (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"module/vfio_iommu_type1/parameters/allow_unsafe_interrupts"}, h.UnsafeInterrupts); diff != "" {
		t.Errorf("unsafe interrupts (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]device.Alias{{Pattern: "vfio_pci:v000015B3d*", Module: "mlx5_vfio_pci"}}, h.VFIOAliases); diff != "" {
		t.Errorf("aliases (-want +got):\n%s", diff)
	}
	if h.BootID == "" || h.Kernel == "" || len(h.IOMMUs) == 0 || !slices.Contains(h.Drivers, "vfio-pci") {
		t.Errorf("host: %+v", h)
	}
}

// Without the interrupts' own directory, proc has the names too.
func TestScanHostInterrupts(t *testing.T) {
	tr := newTree(t)
	tr.put("proc/interrupts", "            CPU0\n   0:         11   IR-IO-APIC    2-edge      timer\n"+
		"  24:          0   DMAR-MSI    0-edge      dmar0\n  25:          3   IR-PCI-MSIX-0000:00:03.0    0-edge      eth0\n")
	if diff := cmp.Diff([]string{"IR-PCI-MSIX"}, scan(t, tr.open()).Host.IRQChips); diff != "" {
		t.Errorf("chips (-want +got):\n%s", diff)
	}
}

func TestScanPlaces(t *testing.T) {
	tests := []struct {
		place, root string
		upstream    []string
	}{
		{"pci0000:00/0000:00:02.0", "pci0000:00", nil},
		{"pci0000:3a/0000:3a:00.0/0000:3b:00.0", "pci0000:3a", []string{"0000:3a:00.0"}},
		{"platform/bus@0/30000000.pcie/pci0002:00/0002:00:00.0/0002:01:00.0", "pci0002:00", []string{"0002:00:00.0"}},
		{"pci0000:00/0000:00:0e.0/pci10000:e0/10000:e0:06.0/10000:e1:00.0", "pci10000:e0", []string{"10000:e0:06.0"}},
		{"LNXSYSTM:00/acpi/pciffff0:00/ffff0:00:01.0", "pciffff0:00", nil},
	}
	tr := newTree(t)
	for _, tt := range tests {
		tr.function(tt.place, nil)
	}
	snap := scan(t, tr.open())
	for _, tt := range tests {
		f := function(t, snap, addr(t, tt.place[strings.LastIndexByte(tt.place, '/')+1:]))
		var upstream []string
		for _, a := range f.Upstream {
			upstream = append(upstream, a.String())
		}
		if f.Root != tt.root || !slices.Equal(upstream, tt.upstream) {
			t.Errorf("%v: root %q, upstream %v; want %q, %v", f.Address, f.Root, upstream, tt.root, tt.upstream)
		}
	}
	if snap.Functions[len(snap.Functions)-1].Address != addr(t, "ffff0:00:01.0") {
		t.Errorf("functions are not in the order of their addresses: the last is %v", snap.Functions[len(snap.Functions)-1].Address)
	}
}

// What the kernel does not say is absent: nil, empty, and never zero.
func TestScanAbsent(t *testing.T) {
	tr := newTree(t)
	tr.function("pci0000:00/0000:00:03.0", map[string]string{
		"current_link_speed": "Unknown\n", "max_link_speed": "Unknown\n", "current_link_width": "0\n", "max_link_width": "255\n",
	})
	f := function(t, scan(t, tr.open()), addr(t, "0000:00:03.0"))
	if f.NUMANode != nil || f.Group != nil || f.Switch != nil || f.PF != nil || f.VF != nil || f.Link != nil ||
		f.BARs != nil || len(f.ResetMethods) != 0 || f.Driver != "" || f.DriverOverride != "" || f.Uses != nil {
		t.Errorf("function: %+v", f)
	}
	if !f.Capabilities.Truncated || f.ConfigDead {
		t.Errorf("without configuration space: dead %v, capabilities %+v", f.ConfigDead, f.Capabilities)
	}
}

// The nearest switch is unknown where a bridge on the way can't be read.
func TestScanSwitchUnknown(t *testing.T) {
	config := func(portType byte) string {
		c := make([]byte, 4096)
		c[0], c[1], c[6], c[0x34], c[0x40], c[0x42] = 0x86, 0x80, 0x10, 0x40, 0x10, portType<<4
		return string(c)
	}
	tests := []struct {
		name        string
		top, bottom string
		want        *pci.Address
	}{
		{"both known", config(5), config(6), new(addr(t, "0000:00:01.0"))},
		{"the nearest can't be read", config(5), config(6)[:64], nil},
		{"one further up can't be read", config(5)[:64], config(5), new(addr(t, "0000:01:00.0"))},
		{"no switch", config(4), config(7), nil},
	}
	for _, tt := range tests {
		tr := newTree(t)
		bridge := map[string]string{"class": "0x060400\n", "config": tt.top}
		tr.function("pci0000:00/0000:00:01.0", bridge)
		bridge["config"] = tt.bottom
		tr.function("pci0000:00/0000:00:01.0/0000:01:00.0", bridge)
		tr.function("pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:00.0", nil)
		got := function(t, scan(t, tr.open()), addr(t, "0000:02:00.0")).Switch
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

func TestScanDead(t *testing.T) {
	ones := strings.Repeat("\xff", 4096)
	vf := "\xff\xff\xff\xff\x06\x04\x10\x00" + strings.Repeat("\x00", 248)
	tr := newTree(t)
	pf := tr.function("pci0000:00/0000:00:03.0", map[string]string{"config": ones})
	for i, config := range []string{vf, ones} {
		name := "0000:00:04." + string(rune('0'+i))
		where := tr.function("pci0000:00/"+name, map[string]string{"config": config})
		tr.link(where+"/physfn", pf)
	}
	snap := scan(t, tr.open())
	for a, want := range map[string]bool{"0000:00:03.0": true, "0000:00:04.0": false, "0000:00:04.1": true} {
		if f := function(t, snap, addr(t, a)); f.ConfigDead != want {
			t.Errorf("%s is dead: %v, want %v", a, f.ConfigDead, want)
		}
	}
	// Between a VF's appearance and its PF's link to it, its index is its place
	// among the VFs.
	if f := function(t, snap, addr(t, "0000:00:04.1")); f.VF == nil || f.VF.Index != 1 {
		t.Errorf("VF without a link: %+v", f.VF)
	}
}

func TestScanFails(t *testing.T) {
	base := func(t *testing.T) tree {
		tr := newTree(t)
		tr.function("pci0000:00/0000:00:03.0", nil)
		return tr
	}
	const where = "sys/devices/pci0000:00/0000:00:03.0"
	tests := []struct {
		name, path string
		spoil      func(tree)
	}{
		{"no list of functions", sysfs.Devices, func(tr tree) { tr.remove("sys") }},
		{"a name that is not an address", sysfs.Devices, func(tr tree) { tr.link(sysfs.Devices+"/virtio0", where) }},
		{"a number that is none", "vendor", func(tr tree) { tr.put(where+"/vendor", "Intel\n") }},
		{"no vendor", "vendor", func(tr tree) { tr.remove(where + "/vendor") }},
		{"a class too long", "class", func(tr tree) { tr.put(where+"/class", "0x01020000\n") }},
		{"an odd NUMA node", "numa_node", func(tr tree) { tr.put(where+"/numa_node", "one\n") }},
		{"a directory for an attribute", "modalias", func(tr tree) { tr.mkdir(where + "/modalias") }},
		{"an odd resource", "resource", func(tr tree) { tr.put(where+"/resource", "0x0\n") }},
		{"an odd group", "iommu_group", func(tr tree) { tr.link(where+"/iommu_group", "sys/kernel/iommu_groups/x") }},
		{"an odd PF", "physfn", func(tr tree) { tr.link(where+"/physfn", "sys/devices/pci0000:00") }},
		{"an odd list of groups", "iommu_groups", func(tr tree) { tr.put("sys/kernel/iommu_groups/x/type", "DMA\n") }},
		{"an odd region", "reserved_regions", func(tr tree) { tr.put("sys/kernel/iommu_groups/1/reserved_regions", "0 msi\n") }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tr := base(t)
			tt.spoil(tr)
			snap, err := inventory.Scan(t.Context(), tr.open())
			if err == nil || snap != nil {
				t.Fatalf("snapshot %+v, error %v; want an error and nothing else", snap, err)
			}
			if !strings.Contains(err.Error(), tt.path) {
				t.Errorf("error %q does not name %s", err, tt.path)
			}
		})
	}
}

func TestScanCanceled(t *testing.T) {
	tr := newTree(t)
	tr.function("pci0000:00/0000:00:03.0", nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if snap, err := inventory.Scan(ctx, tr.open()); !errors.Is(err, context.Canceled) || snap != nil {
		t.Errorf("snapshot %v, error %v; want context.Canceled", snap, err)
	}
}

// A function that goes while it is read is left out: its link is still listed,
// its directory is gone.
func TestScanVanished(t *testing.T) {
	tr := newTree(t)
	tr.function("pci0000:00/0000:00:03.0", nil)
	tr.remove(tr.function("pci0000:00/0000:00:04.0", nil))
	snap := scan(t, tr.open())
	if len(snap.Functions) != 1 || snap.Functions[0].Address != addr(t, "0000:00:03.0") {
		t.Errorf("functions: %+v", snap.Functions)
	}
}

func TestScanEmptyNode(t *testing.T) {
	snap := scan(t, newTree(t).open())
	if len(snap.Functions) != 0 || len(snap.Groups) != 0 {
		t.Errorf("snapshot: %+v", snap)
	}
	empty, err := sysfs.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = empty.Close() }()
	if snap, err := inventory.Scan(t.Context(), empty); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a directory that is not a node: %v, %v; want ErrNotExist", snap, err)
	}
}

// TestScanOfAFunctionThatIsBeingReset: a reset that hangs keeps everybody from a
// bridge's configuration space. The rest of the node is read all the same.
func TestScanOfAFunctionThatIsBeingReset(t *testing.T) {
	k := sysfstest.New(t)
	gpu, bridge := k.AddBehindBridge(0x70, 16)
	before := scan(t, open(t, k))
	config := k.Path(sysfs.FunctionPath(bridge) + "/config")
	if err := os.Remove(config); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(config, 0o600); err != nil { // reads like it: not at all
		t.Fatal(err)
	}
	lock, err := os.OpenFile(config, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = lock.Write(make([]byte, 64)); _ = lock.Close() })
	node := open(t, k)
	snap := scan(t, node)
	if f := function(t, snap, bridge); !f.Locked || !f.Capabilities.Truncated {
		t.Errorf("the bridge is %+v; want it locked, and nothing known of its capabilities", f)
	}
	if f := function(t, snap, gpu); f.Locked || f.Capabilities.Truncated {
		t.Errorf("the GPU is %+v", f)
	}
	again, err := inventory.Rescan(t.Context(), node, before, []pci.Address{bridge})
	if err != nil {
		t.Fatal(err)
	}
	if f := function(t, again, bridge); !f.Locked || f.Capabilities.Truncated {
		t.Errorf("read again the bridge is %+v; want it locked, with what was known before", f)
	}
}
