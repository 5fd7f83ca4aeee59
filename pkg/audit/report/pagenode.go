package report

import (
	"cmp"
	"fmt"
	"html/template"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// node has the node's functions, in a drawing and each separately.
type node struct {
	Drawing template.HTML
	// Narrow is the same for a phone.
	Narrow template.HTML
	// Roots are the node's root buses, each with its own drawing, if one drawing would be too tall: the worst first.
	// Rest are the others.
	Roots, Rest []rootBus
	// Undrawn is the number of functions that the drawing leaves out. Broken is whether it marks a broken boundary.
	Undrawn int
	Broken  bool
	// Functions are the functions that have their own part of the page: GPUs, PFs and drives, functions of other kinds that a tenant
	// has or had, and VFs without their PF.
	Functions []function
	// Others are bridges and the rest, in a table.
	Others []function
	// Fabric has the partitions of the node's NVLink fabric; nil if the node config has none.
	Fabric *fabricView
}

// function is one function as the page shows it.
type function struct {
	*audit.Device
	Holders  []namedTenancy
	Findings []reference
	// Path leads from the root to the function's bridge.
	Path []hop
	VFs  []function
	// History is the record of the function and its VFs; nil if it has only the present tenancy.
	History *tenancyTable
}

// reference is an item that names a function.
type reference struct {
	Item *item
	// Direct is set if a finding is about the function itself, rather than has
	// it in reach.
	Direct bool
	// Counts is set if the finding fails with a severity that makes the run fail.
	Counts bool
}

// hop is a bridge on the way to a function.
type hop struct {
	Address pci.Address
	Kind    string
	ACS     isolation.ACSState
	// Words are the registers behind it.
	Words string
	// Known is unset for a bridge that the node did not show.
	Known bool
}

// rootBus is a root bus that is drawn on demand.
type rootBus struct {
	Drawing audit.RootDrawing
	Picture template.HTML
}

const (
	// tall is the height in pixels from which a drawing is split into its root buses.
	tall = 4000
	// maxRoots is the number of root buses that are listed at once.
	maxRoots = 60
)

// draw draws the node's functions, or each root bus separately if that would be too tall.
func (n *node) draw(inv *audit.Inventory, marks *audit.Marks) {
	drawing, undrawn := audit.ArrangeMarked(inv, marks)
	n.Undrawn, n.Broken = undrawn, len(marks.Broken) > 0
	if drawing.Height <= tall {
		n.Drawing, n.Narrow = picture(drawing), picture(audit.ArrangeNarrow(inv, marks))
		return
	}
	for _, r := range audit.ArrangeRoots(inv, marks) {
		n.Roots = append(n.Roots, rootBus{r, picture(r.Drawing)})
	}
	most := min(len(n.Roots), maxRoots)
	n.Roots, n.Rest = n.Roots[:most], n.Roots[most:]
}

func picture(d *audit.Drawing) template.HTML {
	return template.HTML(audit.Inline(d)) //nolint:gosec // it escapes what comes from the node
}

func newNode(p *Page, items []item, who *tenants, past record) *node {
	inv := p.Inventory
	refs := newReferences(p.Report.Findings, items)
	weigh(refs, p.FailOn)
	n := &node{Fabric: newFabricView(inv.Fabric)}
	n.draw(inv, newMarks(p.Report.Findings, refs, who))
	bridges := map[pci.Address]*audit.Device{}
	for i := range inv.Devices {
		bridges[inv.Devices[i].Address] = &inv.Devices[i]
	}
	vfs := map[pci.Address][]function{}
	for i := range inv.Devices {
		d := &inv.Devices[i]
		f := newFunction(d, refs[d.Address], who)
		f.Path = newPath(d, bridges)
		switch {
		case d.PFAddress != nil && bridges[*d.PFAddress] != nil:
			vfs[*d.PFAddress] = append(vfs[*d.PFAddress], f)
		case d.Assignable() || len(who.ever[d.Address]) > 0:
			n.Functions = append(n.Functions, f)
		default:
			n.Others = append(n.Others, f)
		}
	}
	for i := range n.Functions {
		f := &n.Functions[i]
		f.VFs = vfs[f.Address]
		slices.SortFunc(f.VFs, func(a, b function) int { return cmp.Compare(*a.VFIndex, *b.VFIndex) })
		addrs := []pci.Address{f.Address}
		for j := range f.VFs {
			addrs = append(addrs, f.VFs[j].Address)
		}
		f.History = newHistory(past, who, addrs...)
	}
	return n
}

func newFunction(d *audit.Device, refs []reference, who *tenants) function {
	f := function{Device: d, Findings: refs}
	for _, t := range who.now[d.Address] {
		f.Holders = append(f.Holders, namedTenancy{t, who.named(t.Tenant)})
	}
	return f
}

// Bad reports whether the function itself has a failure, or a failure puts it in reach of another tenant.
func (f *function) Bad() bool {
	return f.failing() || slices.ContainsFunc(f.Findings, func(r reference) bool {
		return r.Item.State == finding.Fail && r.Item.Exposure == finding.CrossTenant
	})
}

// grade returns the function's grade. It is Bad if the function has a failure.
func (f *function) grade() audit.Grade {
	if f.failing() {
		return audit.Bad
	}
	return f.Grade()
}

// failing reports whether a finding about the function itself fails, with a severity that makes the run fail.
func (f *function) failing() bool {
	return slices.ContainsFunc(f.Findings, func(r reference) bool { return r.Direct && r.Counts })
}

// BridgeKind names the kind of a bridge.
func (f *function) BridgeKind() string {
	if f.IsBridge() {
		return audit.Kind(f.Device)
	}
	return f.Product()
}

// HeldVFs counts the VFs that a claim has.
func (f *function) HeldVFs() int {
	n := 0
	for i := range f.VFs {
		if len(f.VFs[i].Holders) > 0 {
			n++
		}
	}
	return n
}

// BadVFs counts the VFs that are not isolated.
func (f *function) BadVFs() int {
	n := 0
	for i := range f.VFs {
		if !f.VFs[i].Isolated {
			n++
		}
	}
	return n
}

func newPath(d *audit.Device, known map[pci.Address]*audit.Device) []hop {
	path := make([]hop, len(d.Upstream))
	for i, a := range d.Upstream {
		path[i] = hop{Address: a}
		if b := known[a]; b != nil {
			path[i] = hop{Address: a, Kind: audit.Kind(b), ACS: b.ACS, Words: acsWords(b), Known: true}
		}
	}
	return path
}

// acsWords returns the ACS registers as lspci has them beside each other.
func acsWords(d *audit.Device) string {
	acs := d.Capabilities.ACS
	switch {
	case acs == nil && d.ACS == isolation.ACSOn: // the kernel's pci_acs_enabled: the port above it decides
		return "single function"
	case acs == nil:
		return "no ACS capability"
	}
	return fmt.Sprintf("ACSCap %#04x, ACSCtl %#04x", acs.Capability, acs.Control)
}

// newReferences returns the items that name each function. Items that pass or do not apply are left out.
func newReferences(findings []finding.Finding, items []item) map[pci.Address][]reference {
	byAnchor := map[string]*item{}
	for i := range items {
		byAnchor[items[i].Anchor] = &items[i]
	}
	refs := map[pci.Address][]reference{}
	for i := range findings {
		f := &findings[i]
		if f.State == finding.Pass || f.State == finding.NotApplicable {
			continue
		}
		about, ok := aboutDevice(f)
		if ok {
			refer(refs, about, reference{Item: byAnchor[makeAnchor(f)], Direct: true})
		}
		for _, a := range f.Devices {
			if !ok || a != about {
				refer(refs, a, reference{Item: byAnchor[makeAnchor(f)]})
			}
		}
	}
	return refs
}

// weigh marks the references to findings that fail at the severity.
func weigh(refs map[pci.Address][]reference, failOn rule.Severity) {
	for _, list := range refs {
		for i := range list {
			list[i].Counts = list[i].Item.failsAt(failOn)
		}
	}
}

func refer(refs map[pci.Address][]reference, a pci.Address, r reference) {
	list := refs[a]
	for i := range list {
		if list[i].Item == r.Item {
			list[i].Direct = list[i].Direct || r.Direct
			return
		}
	}
	refs[a] = append(list, r)
}

// deviceAnchor is the id of a function's part of the page.
func deviceAnchor(a pci.Address) string { return "d-" + a.Label() }

// newMarks returns the marks of the drawing.
func newMarks(findings []finding.Finding, refs map[pci.Address][]reference, who *tenants) *audit.Marks {
	m := &audit.Marks{
		Holders: who.holders(), Failing: map[pci.Address]string{},
		Page: func(a pci.Address) string { return "#" + deviceAnchor(a) },
	}
	for a, list := range refs {
		var ids []string
		for _, r := range list {
			if r.Direct && r.Counts {
				ids = append(ids, r.Item.Rule.ID)
			}
		}
		if len(ids) > 0 {
			m.Failing[a] = "fails " + strings.Join(slices.Compact(ids), ", ")
		}
	}
	for i := range findings {
		if set := brokenBy(&findings[i], who); len(set) > 0 {
			m.Broken = append(m.Broken, set)
		}
	}
	return m
}

// brokenBy returns the functions of different tenants that can reach each other by a finding. A waiver does not
// change that.
func brokenBy(f *finding.Finding, who *tenants) []pci.Address {
	if f.State != finding.Fail && f.State != finding.Waived || len(who.names(f.Devices...)) < 2 {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(f.Devices), func(a pci.Address) bool { return len(who.now[a]) == 0 })
}
