package report_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/audit"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/audit/report"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/nodeconfig"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// machine makes up the functions of a node.
type machine struct {
	s     device.Snapshot
	group int
}

func address(text string) pci.Address {
	a, err := pci.ParseAddress(text)
	if err != nil {
		panic(err)
	}
	return a
}

func (m *machine) add(at, root string, numa int, class pci.Class, model, driver string, up []pci.Address, edit func(*device.Function)) pci.Address {
	f := device.Function{
		Address: address(at), Class: class, Vendor: 0x10de, Device: 0x2330, Model: model, Root: root, Group: new(m.group), NUMANode: &numa,
		Capabilities: pci.Capabilities{Express: &pci.Express{}}, Upstream: up, Driver: driver, ResetMethods: []string{"flr", "bus"},
		Link: &device.Link{Speed: "32.0 GT/s PCIe", Width: 16},
	}
	m.group++
	if edit != nil {
		edit(&f)
	}
	f.Type = device.Classify(f.Class, f.Capabilities.Header, f.PF != nil, f.VF != nil)
	m.s.Functions = append(m.s.Functions, f)
	return f.Address
}

func (m *machine) port(at, root string, numa int, kind pci.PortType, acs *pci.ACS, up ...pci.Address) pci.Address {
	return m.add(at, root, numa, 0x060400, "PEX89144 PCIe Gen 5 switch", "pcieport", up, func(f *device.Function) {
		f.Capabilities.Express.Type, f.Capabilities.ACS, f.ResetMethods, f.Vendor, f.Device = kind, acs, nil, 0x1000, 0xc030
	})
}

func acsOn() *pci.ACS  { return &pci.ACS{Capability: 0x5f, Control: 0x1d} }
func acsOff() *pci.ACS { return &pci.ACS{Capability: 0x5f, Control: 0x00} }

// behindSwitch adds a switch in a root of its own with two GPUs and a NIC with VFs.
func (m *machine) behindSwitch(domain, bus, numa, vfs int, acs func() *pci.ACS) {
	root := fmt.Sprintf("pci%04x:%02x", domain, bus)
	at := func(bus, dev, fn int) string { return fmt.Sprintf("%04x:%02x:%02x.%d", domain, bus, dev, fn) }
	top := m.port(at(bus, 1, 0), root, numa, pci.RootPort, acsOn())
	up := m.port(at(bus+1, 0, 0), root, numa, pci.UpstreamPort, nil, top)
	for i := range 2 {
		down := m.port(at(bus+2, i, 0), root, numa, pci.DownstreamPort, acs(), top, up)
		m.add(at(bus+3+i, 0, 0), root, numa, 0x030200, "GH100 [H100 SXM5 80GB]", "vfio-pci", []pci.Address{top, up, down}, func(f *device.Function) { f.Switch = &up })
	}
	down := m.port(at(bus+2, 2, 0), root, numa, pci.DownstreamPort, acsOn(), top, up)
	path := []pci.Address{top, up, down}
	pf := m.add(at(bus+6, 0, 0), root, numa, 0x020000, "MT2910 Family [ConnectX-7]", "mlx5_core", path, func(f *device.Function) {
		f.PF, f.Switch, f.Vendor = &device.PF{TotalVFs: max(vfs, 16), NumVFs: vfs}, &up, 0x15b3
		f.Children.Net = []string{fmt.Sprintf("ens%df0np0", bus)}
	})
	for v := range vfs {
		at := pci.Address{Domain: uint32(domain), Bus: pf.Bus + 1, Device: uint8(v / 8), Function: uint8(v % 8)}
		m.add(at.String(), root, numa, 0x020000, "ConnectX Family mlx5Gen Virtual Function", "mlx5_vfio_pci", path, func(f *device.Function) {
			f.VF, f.Vendor = &device.VF{PF: pf, Index: v}, 0x15b3
		})
	}
}

// join puts functions into the group of the first.
func (m *machine) join(addrs ...pci.Address) {
	var group *int
	for i := range m.s.Functions {
		f := &m.s.Functions[i]
		if slices.Contains(addrs, f.Address) {
			if group == nil {
				group = f.Group
			}
			f.Group = group
		}
	}
}

func (m *machine) inventory() *audit.Inventory {
	slices.SortFunc(m.s.Functions, func(a, b device.Function) int { return a.Address.Compare(b.Address) })
	groups := map[int][]pci.Address{}
	for i := range m.s.Functions {
		f := &m.s.Functions[i]
		groups[*f.Group] = append(groups[*f.Group], f.Address)
	}
	for n, members := range groups {
		m.s.Groups = append(m.s.Groups, device.Group{Number: n, Type: "DMA-FQ", Members: members})
	}
	slices.SortFunc(m.s.Groups, func(a, b device.Group) int { return a.Number - b.Number })
	return assess(&m.s)
}

// assess judges a snapshot by the default node config, without records of claims.
func assess(s *device.Snapshot) *audit.Inventory {
	return audit.NewInventory(plan.Node{Snapshot: s, Selection: nodeconfig.Select(nil, s)}, nil)
}

// server is a machine of two sockets: one switch does not redirect, so that two
// tenants' GPUs reach each other, and two tenants are in one group.
func server() *audit.Inventory {
	m := &machine{s: device.Snapshot{Host: device.Host{Kernel: "6.12.57", IOMMUs: []string{"dmar0", "dmar1"}, IRQChips: []string{"IR-PCI-MSI"}}}}
	for i := range 6 {
		m.add(fmt.Sprintf("0000:00:08.%d", i), "pci0000:00", 0, 0x088000, "Sky Lake-E Ubox Registers", "", nil, func(f *device.Function) { f.ResetMethods, f.Link = nil, nil })
	}
	m.behindSwitch(0, 0x10, 0, 8, acsOff)
	m.behindSwitch(0, 0x40, 0, 32, acsOn)
	m.behindSwitch(0, 0x80, 1, 8, acsOn)
	m.join(address("0000:83:00.0"), address("0000:84:00.0"))
	return m.inventory()
}

// clock is when the sample's audit was.
func clock(hour, minute int) time.Time { return time.Date(2026, 11, 22, hour, minute, 0, 0, time.UTC) }

func clean() *report.Reset { return &report.Reset{Method: "flr", Proven: true, Note: "104 ms"} }

func tenancies() []report.Tenancy {
	has := func(fn, tenant, name string, from time.Time) report.Tenancy {
		return report.Tenancy{Device: address(fn), Tenant: tenant, Claim: tenant + "/" + name, State: "prepared", From: from, ResetBefore: clean()}
	}
	had := func(fn, tenant, name string, from, to time.Time) report.Tenancy {
		t := has(fn, tenant, name, from)
		t.State, t.To, t.ResetAfter = "", to, clean()
		return t
	}
	list := []report.Tenancy{
		had("0000:13:00.0", "team-green", "nightly", clock(0, 10), clock(2, 45)),
		has("0000:13:00.0", "team-red", "train", clock(3, 0)),
		has("0000:14:00.0", "team-blue", "serve", clock(4, 30)),
		had("0000:43:00.0", "team-red", "probe", clock(1, 0), clock(5, 20)),
		had("0000:43:00.0", "team-green", "render", clock(6, 0), clock(6, 30)),
		has("0000:43:00.0", "team-green", "render", clock(7, 0)),
		has("0000:83:00.0", "team-red", "eval", clock(5, 0)),
		has("0000:84:00.0", "team-green", "batch", clock(6, 40)),
		has("0000:17:00.0", "team-red", "train", clock(3, 0)),
		has("0000:17:00.1", "team-blue", "serve", clock(4, 30)),
		has("0000:47:00.3", "team-green", "render", clock(7, 0)),
		has("0000:47:01.0", "team-blue", "edge", clock(2, 0)),
	}
	list[0].ResetBefore = nil
	list[4].ResetAfter = &report.Reset{Method: "bus", Note: "configuration space of 0000:43:00.0 differs from before the tenant"}
	return list
}

// samplePage is a node with findings of all states.
func samplePage() *report.Page {
	r := &finding.Report{
		Subject: finding.Subject{
			Kind: "node", Name: "gpu-node-07", Root: "/", BootID: "0b0c1c5e-6f8e-4f0a-9f0e-4b1d8a2f7c11", Kernel: "6.12.57",
			Time: clock(8, 15).Format(time.RFC3339), Version: "0.5.0",
		},
		Profile: finding.MultiTenant, Findings: findings(),
	}
	inv := server()
	r.Summary.Devices, r.Summary.Claims = len(inv.Devices), 4
	r.Finish()
	return &report.Page{Report: r, Inventory: inv, Rules: rules(), Tenancies: tenancies()}
}

func rules() []rule.Rule {
	sampleRule := func(id, title string, s rule.Severity, why, fix, verify string, sources ...string) rule.Rule {
		return rule.Rule{ID: id, Title: title, Severity: s, Why: why, Fix: fix, Verify: verify, Sources: sources}
	}
	return []rule.Rule{
		sampleRule("IOM-001", "The node has an IOMMU and its groups", rule.Critical, "without an IOMMU a function reaches all memory of the node by DMA", "switch VT-d or AMD-Vi on in the firmware setup and boot with `intel_iommu=on`", "ls /sys/class/iommu /sys/kernel/iommu_groups", "Linux: Documentation/ABI/testing/sysfs-class-iommu"),
		sampleRule("IOM-003", "VFIO's no-IOMMU mode is off", rule.Critical, "in this mode a process or VM has the device without DMA translation", "`echo N > /sys/module/vfio/parameters/enable_unsafe_noiommu_mode`, and take it out of modprobe.d", "cat /sys/module/vfio/parameters/enable_unsafe_noiommu_mode", "Linux: drivers/vfio/vfio_main.c"),
		sampleRule("IOM-017", "No IOMMU group is shared by tenants", rule.Critical, "functions of one group reach each other and each other's memory", "take one of the claims away; give the whole group to one tenant", "ls /sys/kernel/iommu_groups/*/devices"),
		sampleRule("ACS-009", "A switch keeps the functions of tenants apart, both ways", rule.Critical, "requests from one tenant's function reach the other's without passing the IOMMU", "switch ACS on at the ports of the switch: `pci=config_acs=...@0000:12:00.0`", "lspci -vvv -s 0000:12:00.0 | grep ACSCtl", "Linux: drivers/pci/pci.c pci_acs_enabled"),
		sampleRule("ACS-006", "ACS stays as it was at boot", rule.High, "what was given out as isolated is no longer", "reboot, and find who wrote the register", "setpci -s 0000:12:00.0 ECAP_ACS+6.w"),
		sampleRule("RST-004", "A function is proven clean between tenants", rule.High, "the next tenant may read what the last one left", "take the function out of service, reset it by hand and look at what differs", "cat /var/lib/kata-vfio/journal/*.json | jq .proofs"),
		sampleRule("VFIO-009", "Who holds a VFIO device is the VMM of its claim", rule.High, "a process that is no VM has the tenant's device", "end the process", "fuser -v /dev/vfio/*"),
		sampleRule("NIC-004", "VFs of tenants may not choose their MAC", rule.Medium, "a tenant can pass for another on the wire", "`ip link set ens16f0np0 vf 0 spoofchk on`", "ip link show ens16f0np0"),
		sampleRule("GPU-002", "The GPU's firmware is of a release without known holes", rule.Medium, "", "look at the vendor's bulletins", ""),
		sampleRule("HOST-003", "Kernel lockdown is on", rule.Low, "root of the node could change the kernel that isolates", "boot with `lockdown=integrity`", "cat /sys/kernel/security/lockdown"),
		sampleRule("RT-003", "Pods can't name devices to the runtime", rule.High, "a pod asks for a device that no claim gave it", "set `pod_annotations = []`", ""),
		sampleRule("CDI-002", "Each CDI spec belongs to a claim", rule.Medium, "a stale spec names a device that somebody else has now", "remove the spec", "ls /var/run/cdi"),
		sampleRule("OBS-001", "The ledger is whole", rule.High, "", "", ""),
	}
}

func findings() []finding.Finding {
	sees := func(path, value string) rule.Evidence {
		return rule.Evidence{Path: path, Value: value, How: "read"}
	}
	list := []finding.Finding{
		{
			ID: "ACS-009", State: finding.Fail, Exposure: finding.CrossTenant, Device: new(address("0000:12:00.0")), Devices: addresses("0000:13:00.0", "0000:14:00.0"), Tenants: []string{"team-blue", "team-red"},
			Text:     "switch port 0000:12:00.0 does not redirect: 0000:13:00.0 of team-red and 0000:14:00.0 of team-blue reach each other below 0000:11:00.0",
			Evidence: []rule.Evidence{{Path: "/sys/bus/pci/devices/0000:12:00.0/config", Value: "ACSCap 0x005f ACSCtl 0x0000", How: "config"}},
		},
		{
			ID: "ACS-009", State: finding.Fail, Exposure: finding.CrossTenant, Device: new(address("0000:12:01.0")), Devices: addresses("0000:13:00.0", "0000:14:00.0"), Tenants: []string{"team-blue", "team-red"},
			Text:     "switch port 0000:12:01.0 does not redirect: 0000:14:00.0 of team-blue and 0000:13:00.0 of team-red reach each other below 0000:11:00.0",
			Evidence: []rule.Evidence{{Path: "/sys/bus/pci/devices/0000:12:01.0/config", Value: "ACSCap 0x005f ACSCtl 0x0000", How: "config"}},
		},
		{
			ID: "IOM-017", State: finding.Fail, Exposure: finding.CrossTenant, Object: "group 64", Devices: addresses("0000:83:00.0", "0000:84:00.0"), Tenants: []string{"team-green", "team-red"},
			Text: "team-red has 0000:83:00.0 and team-green has 0000:84:00.0, both of one group", Evidence: []rule.Evidence{{Path: "/sys/kernel/iommu_groups/64/devices", Value: "0000:83:00.0\n0000:84:00.0", How: "list"}},
		},
		{
			ID: "RST-004", State: finding.Fail, Exposure: finding.Allocated, Device: new(address("0000:43:00.0")), Tenants: []string{"team-green"},
			Text: "the reset after claim team-green/render is not proven: configuration space of 0000:43:00.0 differs from before the tenant", Evidence: []rule.Evidence{{Path: "/var/lib/kata-vfio/journal/render.json", Value: "bus, 212 ms", How: "journal"}},
		},
		{
			ID: "IOM-003", State: finding.Fail, Exposure: finding.CrossTenant, Text: "it is in order now, but /etc/modprobe.d/vfio.conf sets vfio.enable_unsafe_noiommu_mode=1 for the next boot", Pending: "comes with the next boot",
			Evidence: []rule.Evidence{sees("/sys/module/vfio/parameters/enable_unsafe_noiommu_mode", "N"), sees("/etc/modprobe.d/vfio.conf", "1")},
		},
		{ID: "HOST-003", State: finding.Fail, Exposure: finding.Published, Text: "lockdown is none", Evidence: []rule.Evidence{sees("/sys/kernel/security/lockdown", "[none] integrity confidentiality")}},
		{ID: "OBS-001", State: finding.Error, Exposure: finding.Unexposed, Text: "the check said nothing"},
		{
			ID: "VFIO-009", State: finding.Unknown, Exposure: finding.CrossTenant, Text: "who holds the devices can't be told: /proc/4711/fd: permission denied",
			Evidence: []rule.Evidence{{Path: "/proc/4711/fd", How: "process", Error: "permission denied", Needs: "root"}},
		},
		{
			ID: "NIC-004", State: finding.Waived, Exposure: finding.Allocated, Device: new(address("0000:17:00.0")), Tenants: []string{"team-red"}, Text: "spoof checking is off on VF 0 of ens16f0np0",
			Evidence: []rule.Evidence{{Path: "netlink: ens16f0np0 vf 0", Value: "spoofchk off", How: "netlink"}},
			Waiver:   &finding.Waiver{Rule: "NIC-004", Scope: "0000:17:00.0", Until: "2027-03-31", Reason: "team-red bonds its VFs and has the PF to itself", Author: "sec@example.org"},
		},
		{ID: "GPU-002", State: finding.Manual, Exposure: finding.Unexposed, Text: "compare the VBIOS of 6 GPUs with the vendor's bulletins"},
		{ID: "IOM-001", State: finding.Pass, Text: "2 IOMMU units, 83 groups", Evidence: []rule.Evidence{{Path: "/sys/class/iommu", Value: "dmar0\ndmar1", How: "list"}}},
		{ID: "ACS-006", State: finding.Pass, Text: "12 ports as at boot"},
		{ID: "RT-003", State: finding.Pass, Text: "no handler takes device annotations"},
		{ID: "CDI-002", State: finding.NotApplicable, Text: "no CDI spec on this node"},
	}
	for i := range list {
		complete(&list[i])
	}
	return list
}

// complete does the same as a run of the checks.
func complete(f *finding.Finding) {
	for _, r := range rules() {
		if r.ID != f.ID {
			continue
		}
		f.Title, f.Severity, f.Verify = r.Title, r.Severity, r.Verify
		if f.State != finding.Pass && f.State != finding.NotApplicable {
			f.Remediation = r.Fix
		}
	}
	if f.Device != nil {
		f.Devices = append([]pci.Address{*f.Device}, f.Devices...)
	}
	if f.Exposure == "" {
		f.Exposure = finding.Unexposed
	}
}

func addresses(texts ...string) []pci.Address {
	list := make([]pci.Address, len(texts))
	for i, t := range texts {
		list[i] = address(t)
	}
	return list
}

func render(tb testing.TB, p *report.Page) string {
	tb.Helper()
	var b bytes.Buffer
	if err := report.WritePage(&b, p); err != nil {
		tb.Fatal(err)
	}
	return b.String()
}

// large is a node of 2,048 functions that can be given away, all of them given to
// one of 23 tenants, every other switch open, and with a finding for each GPU and PF.
func large() *report.Page {
	m := &machine{s: device.Snapshot{Host: device.Host{Kernel: "6.12.57", IOMMUs: []string{"dmar0"}, IRQChips: []string{"IR-PCI-MSI"}}}}
	for domain := 1; m.given() < 2048; domain++ {
		m.behindSwitch(domain, 0x10, domain%2, min(16, 2048-m.given()-3), [2]func() *pci.ACS{acsOn, acsOff}[domain%2])
	}
	p := samplePage()
	p.Inventory, p.Tenancies, p.Report.Findings = m.inventory(), nil, nil
	for i := range p.Inventory.Devices {
		d := &p.Inventory.Devices[i]
		if d.Assignable() {
			tenant := fmt.Sprintf("tenant-%02d", i%23)
			p.Tenancies = append(p.Tenancies, report.Tenancy{Device: d.Address, Tenant: tenant, Claim: fmt.Sprintf("%s/claim-%d", tenant, i), State: "prepared", From: clock(i%8, i%60), ResetBefore: clean()})
		}
		if d.Type == device.GPU || d.Type == device.PFType {
			f := findings()[3]
			f.Device, f.Devices, f.Text = &d.Address, []pci.Address{d.Address}, "the reset of "+d.Address.String()+" is not proven"
			p.Report.Findings = append(p.Report.Findings, f)
		}
	}
	p.Report.Summary.Devices = len(p.Inventory.Devices)
	p.Report.Finish()
	return p
}

func (m *machine) given() int {
	n := 0
	for i := range m.s.Functions {
		if !m.s.Functions[i].IsBridge() {
			n++
		}
	}
	return n
}

// single is a node with one GPU.
func single() *report.Page {
	m := &machine{s: device.Snapshot{Host: device.Host{Kernel: "6.12.57", IOMMUs: []string{"dmar0"}, IRQChips: []string{"IR-PCI-MSI"}}}}
	top := m.port("0000:00:01.0", "pci0000:00", 0, pci.RootPort, acsOn())
	m.add("0000:01:00.0", "pci0000:00", 0, 0x030200, "GH100 [H100 PCIe]", "vfio-pci", []pci.Address{top}, func(*device.Function) {})
	p := samplePage()
	p.Inventory, p.Tenancies = m.inventory(), nil
	p.Report.Findings = slices.DeleteFunc(p.Report.Findings, func(f finding.Finding) bool { return f.Device != nil })
	p.Report.Summary.Devices = 2
	p.Report.Finish()
	return p
}

// worst is a node at which every one of 300 rules fails or can't tell, in many words.
func worst() *report.Page {
	p := samplePage()
	one := p.Report.Findings[0]
	for i := range 300 {
		f := one
		f.ID, f.State = fmt.Sprintf("ACS-%03d", 100+i), []finding.State{finding.Fail, finding.Unknown}[i%2]
		f.Text, f.Remediation = strings.Repeat("long text ", 40), strings.Repeat("`long-command --with=options` ", 20)
		for n := range 20 {
			f.Device, f.Object = nil, fmt.Sprintf("object-%d-%s", n, strings.Repeat("x", 300))
			p.Report.Findings = append(p.Report.Findings, f)
		}
	}
	p.Report.Finish()
	return p
}
