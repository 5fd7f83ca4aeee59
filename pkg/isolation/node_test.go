package isolation_test

import (
	"slices"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// fullACS is what a port with all four required switches shows; SV, RR, CR
// and UF make 0x1d.
const fullACS = 0x1d

// edit changes a function under construction.
type edit func(*device.Function)

func addr(t *testing.T, text string) pci.Address {
	t.Helper()
	a, err := pci.ParseAddress(text)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// function builds a function of a class below the bridges named, in group
// (none when negative).
func function(text string, class pci.Class, group int, edits ...edit) device.Function {
	a, err := pci.ParseAddress(text)
	if err != nil {
		panic(err)
	}
	f := device.Function{
		Address: a, Class: class, Vendor: 0x10de, Device: 0x2330, Root: "pci0000:00",
		Capabilities: pci.Capabilities{Express: &pci.Express{Type: pci.Endpoint, FLR: true}},
	}
	if group >= 0 {
		f.Group = &group
	}
	for _, e := range edits {
		e(&f)
	}
	f.Type = device.Classify(f.Class, f.Capabilities.Header, f.PF != nil, f.VF != nil)
	return f
}

// gpu is a 3D controller with FLR.
func gpu(text string, group int, edits ...edit) device.Function {
	return function(text, 0x030200, group, slices.Concat([]edit{resets("flr", "bus"), driver("nvidia")}, edits)...)
}

// audio is a GPU's companion without a reset of its own.
func audio(text string, group int, edits ...edit) device.Function {
	return function(text, 0x040300, group, slices.Concat([]edit{driver("snd_hda_intel")}, edits)...)
}

func nic(text string, group int, edits ...edit) device.Function {
	return function(text, 0x020000, group, slices.Concat([]edit{resets("flr"), driver("ice")}, edits)...)
}

// port is a root port with full ACS.
func port(text string, group int, edits ...edit) device.Function {
	return function(text, 0x060400, group, slices.Concat([]edit{express(pci.RootPort), acs(fullACS, fullACS), driver("pcieport")}, edits)...)
}

// switchPort is a port of a switch; downstream ports have full ACS.
func switchPort(text string, group int, kind pci.PortType, edits ...edit) device.Function {
	return port(text, group, slices.Concat([]edit{express(kind)}, edits)...)
}

func under(bridges ...string) edit {
	return func(f *device.Function) {
		for _, b := range bridges {
			a, err := pci.ParseAddress(b)
			if err != nil {
				panic(err)
			}
			f.Upstream = append(f.Upstream, a)
		}
	}
}

func driver(name string) edit { return func(f *device.Function) { f.Driver = name } }

func ids(vendor, dev pci.ID) edit {
	return func(f *device.Function) { f.Vendor, f.Device = vendor, dev }
}

func resets(methods ...string) edit {
	return func(f *device.Function) { f.ResetMethods = methods }
}

func express(kind pci.PortType) edit {
	return func(f *device.Function) { f.Capabilities.Express = &pci.Express{Type: kind} }
}

func conventional(f *device.Function) { f.Capabilities.Express = nil }

func acs(capability, control uint16) edit {
	return func(f *device.Function) { f.Capabilities.ACS = &pci.ACS{Capability: capability, Control: control} }
}

func noACS(f *device.Function) { f.Capabilities.ACS = nil }

func truncated(f *device.Function) {
	f.Capabilities.ACS, f.Capabilities.Truncated = nil, true
}

func ats(on bool) edit {
	return func(f *device.Function) { f.Capabilities.ATS = &pci.Switchable{Enabled: on} }
}

func busy(f *device.Function) {
	f.Uses = append(f.Uses, device.Use{Kind: device.UseAddress, Name: "eth0", Detail: "10.0.0.5/24"})
}

func dead(f *device.Function) { f.ConfigDead = true }

// vfOf21 makes the function the first VF of 0000:21:00.0.
func vfOf21(f *device.Function) { f.VF = &device.VF{PF: pci.Address{Bus: 0x21}} }

func pfOf(vfs ...string) edit {
	return func(f *device.Function) {
		f.PF = &device.PF{TotalVFs: 8, NumVFs: len(vfs)}
		for _, v := range vfs {
			a, err := pci.ParseAddress(v)
			if err != nil {
				panic(err)
			}
			f.PF.VFs = append(f.PF.VFs, a)
		}
	}
}

// node builds a snapshot of a host with working interrupt remapping; groups
// follow from the functions.
func node(fns ...device.Function) *device.Snapshot {
	s := &device.Snapshot{
		Functions: slices.Clone(fns),
		Host:      device.Host{IOMMUs: []string{"dmar0"}, IRQChips: []string{"IR-PCI-MSI", "IR-PCI-MSIX"}},
	}
	slices.SortFunc(s.Functions, func(a, b device.Function) int { return a.Address.Compare(b.Address) })
	members := map[int][]pci.Address{}
	for i := range s.Functions {
		if g := s.Functions[i].Group; g != nil {
			members[*g] = append(members[*g], s.Functions[i].Address)
		}
	}
	for number, m := range members {
		s.Groups = append(s.Groups, device.Group{Number: number, Type: "DMA", Members: m})
	}
	slices.SortFunc(s.Groups, func(a, b device.Group) int { return a.Number - b.Number })
	return s
}

// host changes the host's facts; group changes group 2, the one judged.
func host(s *device.Snapshot, change func(*device.Host)) *device.Snapshot {
	change(&s.Host)
	return s
}

func group(s *device.Snapshot, change func(*device.Group)) *device.Snapshot {
	for i := range s.Groups {
		if s.Groups[i].Number == 2 {
			change(&s.Groups[i])
		}
	}
	return s
}

func chips(names ...string) func(*device.Host) {
	return func(h *device.Host) { h.IRQChips = names }
}
