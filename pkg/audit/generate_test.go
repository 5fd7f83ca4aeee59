package audit_test

import (
	"math/rand/v2"
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/nodeconfig"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// generator makes one node of random hardware in random trouble.
type generator struct {
	*rand.Rand
	functions []device.Function
	group     int
}

// generate returns the node of a seed, the same each time.
func generate(seed uint64) plan.Node {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 13))}
	for slot := range 3 + g.IntN(6) {
		g.slot(uint8(slot))
	}
	s := g.snapshot()
	n := plan.Node{
		Snapshot: s, Owners: map[pci.Address]plan.Owner{}, Drained: map[pci.Address]string{}, FatalErrors: map[pci.Address]bool{},
	}
	if g.rarely() {
		n.Damaged = "/var/lib/kata-vfio/journal/uid-9.json"
	}
	failing := map[pci.Address]bool{}
	for i := range s.Functions {
		g.know(&n, s.Functions[i].Address, failing)
	}
	wide := g.nodeWide(&n)
	n.Failing = func(a pci.Address) []string {
		if failing[a] {
			return append([]string{"ACS-001"}, wide...)
		}
		return wide
	}
	n.Selection = nodeconfig.Select(g.config(), s)
	return n
}

// nodeWide gives a node faults that concern all its devices: what Prepare can't write or serve, and checks that fail for the node,
// because of kernel arguments, no-IOMMU mode or ATS.
func (g *generator) nodeWide(n *plan.Node) (failing []string) {
	obstacles := []rule.Code{rule.DiskFull, rule.NoEvidence, rule.StateNotWritable, rule.CDINotWritable, rule.PodResourcesNotServed}
	if g.rarely() {
		n.NotReady = &plan.NotReady{Obstacle: obstacles[g.IntN(len(obstacles))], Text: "something can't be written"}
	}
	checks := []string{"IOM-003", "IOM-008", "IOM-019", "ACS-006", "ACS-007"}
	if g.rarely() {
		failing = append(failing, checks[g.IntN(len(checks))])
	}
	return failing
}

// rarely is true once in 30 times, so that most devices have one fault or none.
func (g *generator) rarely() bool { return g.IntN(30) == 0 }

func (g *generator) know(n *plan.Node, a pci.Address, failing map[pci.Address]bool) {
	holder := plan.Ref{UID: "uid-other", Namespace: "tenant", Name: "other"}
	switch g.IntN(30) { // most have none of it
	case 0:
		n.Owners[a] = plan.Owner{Claim: holder}
	case 1:
		n.Owners[a] = plan.Owner{Claim: holder, Quarantined: "the reset failed"}
	case 2:
		n.Owners[a] = plan.Owner{Bound: true}
	case 3:
		n.Drained[a] = "fan"
	case 4:
		n.FatalErrors[a] = true
	case 5:
		failing[a] = true
	}
}

func (g *generator) config() *v1alpha1.NodeConfig {
	of := func(types ...string) v1alpha1.DeviceRule {
		return v1alpha1.DeviceRule{Match: v1alpha1.DeviceMatch{Types: types}}
	}
	excluded := v1alpha1.DeviceRule{Match: v1alpha1.DeviceMatch{Classes: []string{"0403"}}, Exclude: true}
	switch g.IntN(4) {
	case 0:
		return nil
	case 1:
		return &v1alpha1.NodeConfig{Devices: []v1alpha1.DeviceRule{excluded, of("gpu", "vf")}}
	case 2:
		return &v1alpha1.NodeConfig{Devices: []v1alpha1.DeviceRule{of("gpu", "vf", "pf", "nvme")}, Pairing: v1alpha1.PairingSwitch}
	}
	return everything()
}

// slot adds a root port and the device below it.
func (g *generator) slot(i uint8) {
	up := pci.Address{Device: i}
	root := g.function(up, 0x060400, "pcieport", nil)
	root.Capabilities.Express.Type = pci.RootPort
	root.Capabilities.ACS = &pci.ACS{Capability: 0x1d, Control: 0x1d}
	switch g.IntN(30) {
	case 0:
		root.Capabilities.ACS.Control = 0x01
	case 1:
		root.Capabilities.ACS = nil
	case 2:
		root.Group, root.Driver = new(g.group+1), "shpchp" // that of what is below
	}
	g.functions = append(g.functions, root)
	first := pci.Address{Bus: 0x10 + i}
	switch g.IntN(4) {
	case 0:
		g.functions = append(g.functions, g.function(first, 0x030200, "nvidia", &up))
	case 1:
		g.card(first, &up)
	case 2:
		g.nic(first, &up)
	case 3:
		g.several(first, &up)
	}
}

// function returns a function in a group of its own, in trouble now and then.
func (g *generator) function(a pci.Address, class pci.Class, driver string, up *pci.Address) device.Function {
	g.group++
	f := device.Function{
		Address: a, Class: class, Vendor: 0x10de, Device: 0x2330, Driver: driver, Root: "pci0000:00", Group: new(g.group),
		ResetMethods: []string{"flr", "bus"}, Capabilities: pci.Capabilities{Express: &pci.Express{Type: pci.Endpoint, FLR: true}},
	}
	if up == nil {
		return f
	}
	f.Upstream = []pci.Address{*up}
	f.Link = &device.Link{Width: 16, MaxWidth: 16}
	g.trouble(&f)
	return f
}

func (g *generator) trouble(f *device.Function) {
	switch g.IntN(80) {
	case 0:
		f.Locked = true
	case 1:
		f.ConfigDead = true
	case 2:
		f.ResetMethods = nil
	case 3:
		f.Link.Width = 0
	case 4:
		f.Group = nil
	case 5:
		f.Uses = []device.Use{{Kind: device.UseMount, Name: "nvme0n1", Detail: "/data"}}
	case 6, 7, 8, 9:
		f.Driver = device.GenericVFIO
	case 10:
		f.Driver = ""
	case 11:
		f.ResetMethods = []string{"pm"}
	case 12:
		f.Capabilities.ATS = &pci.Switchable{Enabled: true}
	case 13:
		f.Group = new(g.group - 1) // that of the one before, or of its port
	}
}

// card adds a GPU with companions, in one group or in several.
func (g *generator) card(first pci.Address, up *pci.Address) {
	gpu := g.function(first, 0x030000, "nvidia", up)
	g.functions = append(g.functions, gpu)
	together := g.IntN(2) == 0
	for i, class := range []pci.Class{0x040300, 0x0c0330, 0x0c8000}[:1+g.IntN(3)] {
		a := first
		a.Function = uint8(i + 1)
		f := g.function(a, class, "snd_hda_intel", up)
		f.ResetMethods = nil
		if together {
			f.Group = gpu.Group
		} else {
			f.Capabilities.ACS = &pci.ACS{Capability: 0x1d, Control: 0x1d}
		}
		g.functions = append(g.functions, f)
	}
}

// nic adds a PF with VFs, with one port or two.
func (g *generator) nic(first pci.Address, up *pci.Address) {
	pf := g.function(first, 0x020000, "mlx5_core", up)
	if g.IntN(5) == 0 {
		pf.Class = 0x020700
	}
	vfs := g.IntN(12)
	pf.PF = &device.PF{TotalVFs: 16, NumVFs: vfs}
	if !g.rarely() {
		pf.Children.Net = []string{"eth0"}
	}
	var all []device.Function
	for i := range vfs {
		a := first
		a.Device, a.Function = uint8(0x10+i/8), uint8(i%8)
		vf := g.function(a, pf.Class, "", up)
		vf.VF, vf.Link = &device.VF{PF: first, Index: i}, nil
		if g.rarely() {
			vf.Group = pf.Group
		}
		pf.PF.VFs = append(pf.PF.VFs, a)
		all = append(all, vf)
	}
	g.functions = append(append(g.functions, pf), all...)
}

// several adds functions of any kind to one slot, mostly in one group.
func (g *generator) several(first pci.Address, up *pci.Address) {
	classes := []pci.Class{0x030200, 0x010802, 0x020000, 0x040300, 0x088000, 0x120000}
	lead := 0
	for i := range 1 + g.IntN(3) {
		a := first
		a.Function = uint8(i)
		f := g.function(a, classes[g.IntN(len(classes))], "some", up)
		switch {
		case i == 0 && f.Group != nil:
			lead = *f.Group
		case lead != 0 && g.IntN(4) > 0:
			f.Group = new(lead)
		}
		g.functions = append(g.functions, f)
	}
}

// snapshot sorts the functions and makes their groups.
func (g *generator) snapshot() *device.Snapshot {
	s := &device.Snapshot{Functions: g.functions, Host: device.Host{
		BootID: "boot", Kernel: "6.12", IOMMUs: []string{"dmar0"}, IRQChips: []string{"IR-PCI-MSI"}, Drivers: []string{"vfio-pci"},
		IOMMUFD: g.IntN(2) == 0, NoIOMMUMode: g.rarely(), NVIDIAModeset: g.IntN(4) == 0,
	}}
	if g.rarely() {
		s.Host.IRQChips = []string{"PCI-MSI"}
	}
	slices.SortFunc(s.Functions, func(a, b device.Function) int { return a.Address.Compare(b.Address) })
	members := map[int][]pci.Address{}
	for i := range s.Functions {
		f := &s.Functions[i]
		f.Type = device.Classify(f.Class, f.Capabilities.Header, f.PF != nil, f.VF != nil)
		if f.Group != nil {
			members[*f.Group] = append(members[*f.Group], f.Address)
		}
	}
	for number := range g.group + 2 {
		if len(members[number]) > 0 {
			s.Groups = append(s.Groups, g.iommuGroup(number, members[number]))
		}
	}
	return s
}

func (g *generator) iommuGroup(number int, members []pci.Address) device.Group {
	group := device.Group{Number: number, Type: "DMA", Members: members}
	switch g.IntN(120) {
	case 0:
		group.Others = []string{"fe800000.usb"}
	case 1:
		group.NoIOMMU = true
	case 2:
		group.Reserved = []device.Region{{Start: 0x1000, End: 0x1fff, Type: "direct"}}
	case 3:
		group.Members = append(group.Members, pci.Address{Bus: 0xee}) // half removed
	case 4:
		group.Type = "identity"
	}
	return group
}
