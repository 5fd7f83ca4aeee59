// Package audit shows a node to people and to machines: its functions with their isolation verdicts, as data and as text. It only
// reads; no code that it links can write to the kernel. It draws a node's PCIe tree as an SVG for people and as a Graphviz graph
// for machines: [Arrange] places each box and text, [WriteSVG] writes the result. It also judges a node before bootstrap
// ([JudgeCandidate]).
package audit

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/check"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// Inventory is a node's functions with the verdict on each. Its JSON form is
// stable for machines: names are added, never changed.
type Inventory struct {
	Host device.Host `json:"host"`
	// Basis is the config that decides which functions the plugin publishes; nil if no node was read.
	Basis *finding.Basis `json:"basis,omitempty"`
	// Unread names the facts of the node that could not be read, so that the verdicts ignore them, one sentence each.
	Unread []string `json:"unread,omitempty"`
	// Devices are all functions, bridges included, by address.
	Devices []Device `json:"devices"`
	// ExclusiveDomains are the parts of the hardware that a rule of the node config gives to one tenant at a time.
	ExclusiveDomains []plan.DomainState `json:"exclusiveDomains,omitempty"`
	// Fabric is the NVLink fabric of the node config, with its partitions.
	Fabric *plan.FabricState `json:"fabric,omitempty"`
}

// Device is one function and the verdict on it.
//
// Lists are never null in JSON, so that `jq '.devices[].reasons[].code'` works for an isolated function too. Fields that do
// not apply are left out: numaNode if the kernel says -1, iommuGroup without an IOMMU, pf and vfIndex except for VFs.
type Device struct {
	*device.Function
	// GroupMembers are the members of the function's IOMMU group by address,
	// itself and bridges included.
	GroupMembers []pci.Address `json:"groupMembers"`
	// PFAddress and VFIndex are the PF of a VF and its index; nil for other functions.
	PFAddress *pci.Address `json:"pf,omitempty"`
	VFIndex   *int         `json:"vfIndex,omitempty"`

	// Boundary is what separates the function from the other tenants of its card, empty for a bridge; see [device.Boundary].
	Boundary device.Boundary `json:"boundary,omitempty"`

	Isolated bool `json:"isolated"`
	// Reasons say why the function is not isolated, worst first: objects with
	// code, severity, text, fix and evidence.
	Reasons []rule.Verdict `json:"reasons"`
	// Notes have the same form as Reasons, and don't break isolation.
	Notes []rule.Verdict `json:"notes"`
	// Evidence is the evidence of the verdict.
	Evidence []rule.Evidence `json:"evidence"`
	// Refusals are Prepare's reasons against a claim for the function that sets no parameters. They are empty if it accepts the claim.
	// The plugin publishes taints for the same reasons.
	Refusals []rule.Verdict `json:"refusals"`
	// Sanitizing is set if the function only waits for its sanitizing stage, or is in it. Claims are refused until it ends.
	Sanitizing bool `json:"sanitizing,omitempty"`
	// KeptFor is set if the function is free for one tenant only, which has another function of an exclusive domain: the
	// tenant's ID. See [plan.DomainState.Tenant].
	KeptFor string `json:"keptFor,omitempty"`
	// Reset is how the function would be cleaned between tenants.
	Reset *isolation.Reset `json:"reset,omitempty"`
	// ACS is the state of a PCIe port's registers; see [isolation.ReadACS].
	ACS isolation.ACSState `json:"acs,omitempty"`
	// Near has the nearest PFs of NICs for a GPU, and the GPUs for a NIC's PF; nil if there are none.
	Near *Neighbors `json:"near,omitempty"`
	// CompanionOf is the GPU of which the function is a companion, so that it needs no reset of its own. It is nil if a rule
	// of the node config selects the function for itself.
	CompanionOf *pci.Address `json:"companionOf,omitempty"`
	// serves is the GPU that the function is assigned with, because the node config selects the GPU; nil if there is none.
	serves *pci.Address
	// FabricModule is a GPU's place on the board of an NVLink fabric, and FabricPartition the active partition that it is in.
	FabricModule    *int `json:"fabricModule,omitempty"`
	FabricPartition *int `json:"fabricPartition,omitempty"`
	// exclusive are the states of the exclusive domains that begin at the function.
	exclusive []string
	// severities are those of the audit's checks, by ID.
	severities map[string]rule.Severity
}

// NewInventory judges every function of a node in the same way as Prepare and the node's ResourceSlices. rules are the rules of the
// checks, which have the severities of failed checks. The result points into the node's snapshot.
func NewInventory(n plan.Node, rules []rule.Rule) *Inventory {
	s, assessor := n.Snapshot, plan.NewAssessor(n)
	inv := &Inventory{Host: s.Host, Devices: make([]Device, len(s.Functions))}
	severities := listSeverities(rules)
	for i := range s.Functions {
		inv.Devices[i] = view(s, &s.Functions[i], assessor)
		inv.Devices[i].severities = severities
	}
	inv.pairUp()
	inv.joinCompanions(n)
	inv.ExclusiveDomains, inv.Fabric = n.Domains(), n.Fabric()
	inv.joinFabric()
	for i := range inv.Devices {
		d := &inv.Devices[i]
		d.Sanitizing, d.KeptFor, d.exclusive = d.isSanitizing(), d.keptFor(), inv.exclusiveAt(d)
	}
	return inv
}

func listSeverities(rules []rule.Rule) map[string]rule.Severity {
	all := map[string]rule.Severity{}
	for i := range rules {
		all[rules[i].ID] = rules[i].Severity
	}
	return all
}

// NewNodeInventory judges every function of a node by its own config, the records and marks of its journal, its plugin's records,
// and the checks that keep a function from claims. A function that the plugin publishes is shown as in its ResourceSlice. On a node
// without a plugin, a function is shown as a plugin would publish it. today is the day that waivers are compared with,
// "2026-11-22".
func NewNodeInventory(n *facts.Node, all []check.Check, today string) *Inventory {
	planned, unread := check.Planned(n, all, today)
	inv := NewInventory(planned, finding.Rules(all))
	inv.Basis, inv.Unread = new(n.Basis()), unread
	return inv
}

func view(s *device.Snapshot, f *device.Function, assessor *plan.Assessor) Device {
	as := assessor.Assess(f)
	v := as.Isolation
	d := Device{
		Function: f, GroupMembers: []pci.Address{}, Refusals: list(as.Faults()),
		Isolated: v.Isolated, Reasons: list(v.Reasons), Notes: list(v.Notes), Evidence: list(v.Evidence.List()), Reset: v.Reset,
	}
	if g, ok := s.GroupWith(f); ok {
		d.GroupMembers = list(g.Members)
	}
	if !f.IsBridge() {
		d.Boundary = s.Boundary(f)
	}
	if f.IsBridge() && f.Capabilities.Express != nil {
		d.ACS = isolation.ReadACS(s, f)
	}
	if f.VF != nil {
		d.PFAddress, d.VFIndex = &f.VF.PF, &f.VF.Index
	}
	return d
}

// list turns nil into an empty list.
func list[T any](items []T) []T {
	if items == nil {
		return []T{}
	}
	return items
}

// Grade summarizes a verdict for a symbol or a color.
type Grade int

// The grades of a function:
//   - None: a bridge, which can't be assigned, or an isolated function that is in use, that the node config does not select,
//     that waits for its sanitizing stage, or that is kept for the tenant of its exclusive domain.
//   - Good: Prepare accepts a claim for the function, or for the GPU that it goes with.
//   - Concern: as Good, and a note of the function is of high severity.
//   - Bad: the function is not isolated.
const (
	None Grade = iota
	Good
	Concern
	Bad
)

// Grade returns the function's grade.
func (d *Device) Grade() Grade {
	switch {
	case d.IsBridge():
		return None
	case !d.Isolated:
		return Bad
	case d.InUse(), d.Waits() != "":
		return None
	case len(d.Against()) > 0:
		return Bad
	case d.LeftOut() != "":
		return None
	}
	for i := range d.Notes {
		if d.Notes[i].Severity.Compare(rule.High) <= 0 {
			return Concern
		}
	}
	return Good
}

// Assignable reports whether the function is of a kind that is given to VMs: a
// GPU, PF, VF, NVMe drive or accelerator.
func (d *Device) Assignable() bool {
	return d.Type != device.Other && d.Type != device.Bridge
}

// Product returns the best known name of the function: the model from pci.ids, or vendor and device id. For a function that manages
// NVSwitches but looks like a NIC, it says so.
func (d *Device) Product() string {
	if d.ManagesSwitches() {
		return d.name() + ", manages NVSwitches"
	}
	return d.name()
}

func (d *Device) name() string {
	switch {
	case d.Model != "":
		return d.Model
	case d.VendorName != "":
		return d.VendorName + " " + d.Device.String()
	}
	return d.Vendor.String() + ":" + d.Device.String()
}

// Against returns all reasons against assigning the function to a VM, worst first: those of the isolation verdict, and all other
// reasons for which Prepare refuses a claim, with the severity of the failed check or else with severity high. That the node config
// leaves a function out is not among these reasons.
func (d *Device) Against() []rule.Verdict {
	all := slices.Clone(d.Reasons)
	for i := range d.Refusals {
		if r := &d.Refusals[i]; !d.explained(r) {
			all = append(all, rule.Verdict{
				Code: r.Code, Severity: cmp.Or(d.severities[r.Check], rule.High), Text: r.Text, Culprit: r.Culprit, Fix: r.Fix,
			})
		}
	}
	slices.SortStableFunc(all, func(a, b rule.Verdict) int { return a.Severity.Compare(b.Severity) })
	return all
}

// explained reports whether the isolation verdict or the node config already explains a refusal. A function whose assignment would
// include a function in use by the host is refused only once the config names it.
func (d *Device) explained(r *rule.Verdict) bool {
	switch r.Code {
	case rule.NotIsolated, rule.GroupNotViable, rule.NoReset, rule.ConfigSpaceDead:
		return len(d.Reasons) > 0
	case rule.NotOurs, rule.GPUNotSliced:
		return true
	case rule.GroupMateNotSelected:
		return d.isLeftOut() && len(d.Reasons) > 0
	case rule.OtherOfIOMMUGroup: // counts only if a claim could otherwise have the function
		return d.isLeftOut() || d.has(rule.Forbidden) || d.has(rule.PFStaysOnHost) || d.has(rule.GroupNotViable)
	default:
		return false
	}
}

// InUse reports whether the function must not be taken, regardless of the node config: the node uses it, or it has VFs, or
// its PF may be a tenant's, or it is a PF that stays on its host driver.
func (d *Device) InUse() bool {
	return slices.ContainsFunc(d.Refusals, func(r rule.Verdict) bool {
		return (r.Code == rule.Forbidden || r.Code == rule.PFStaysOnHost) && r.Culprit == nil
	})
}

// isSanitizing reports whether only the sanitizing stage, perhaps together with an exclusive domain, keeps the function from claims.
func (d *Device) isSanitizing() bool {
	against := d.Against()
	return slices.ContainsFunc(against, func(r rule.Verdict) bool { return r.Code == rule.NotSanitized }) &&
		!slices.ContainsFunc(against, func(r rule.Verdict) bool { return r.Code != rule.NotSanitized && r.Code != rule.DomainOfOtherTenant })
}

// Unclaimable returns the functions that the node config selects and that no claim can get, for a reason of the given severity or a
// worse one. Three reasons are ignored: a drain is on purpose, a sanitizing stage ends by itself, and the tenant of an exclusive
// domain can get the free functions in it.
func (inv *Inventory) Unclaimable(at rule.Severity) []*Device {
	var all []*Device
	for i := range inv.Devices {
		d := &inv.Devices[i]
		if d.IsBridge() || d.InUse() || d.isLeftOut() {
			continue
		}
		if slices.ContainsFunc(d.Against(), func(r rule.Verdict) bool {
			return !isMeant(r.Code) && r.Severity.Compare(at) <= 0
		}) {
			all = append(all, d)
		}
	}
	return all
}

// isMeant reports whether the code is a reason for which a function is kept from claims as intended.
func isMeant(code rule.Code) bool {
	return code == rule.Drained || code == rule.NotSanitized || code == rule.DomainOfOtherTenant
}

func (d *Device) has(code rule.Code) bool {
	return slices.ContainsFunc(d.Refusals, func(r rule.Verdict) bool { return r.Code == code })
}

// Neighbors are the functions that belong together with a GPU or a NIC.
type Neighbors struct {
	// Nearness is the part that they have in common: switch, root, numa.
	Nearness string `json:"nearness"`
	// Addresses are, for a GPU, the nearest PFs. For a PF, they are the nearest GPUs among those that have no nearer PF.
	Addresses []pci.Address `json:"addresses"`
}

// Words returns the neighbors in one line: "0000:3d:00.0, same switch".
func (n *Neighbors) Words() string {
	texts := make([]string, len(n.Addresses))
	for i, a := range n.Addresses {
		texts[i] = a.String()
	}
	return strings.Join(texts, " ") + ", " + n.common()
}

// Brief names the first neighbor and the number of the others, if Words would be too long: "0000:3d:00.0 +1, same switch".
func (n *Neighbors) Brief() string {
	text := n.Addresses[0].String()
	if more := len(n.Addresses) - 1; more > 0 {
		text += fmt.Sprintf(" +%d", more)
	}
	return text + ", " + n.common()
}

// common names the part that the neighbors have in common, in words.
func (n *Neighbors) common() string {
	return map[string]string{
		device.SameSwitch.String(): "same switch", device.SameRoot.String(): "same root", device.SameNUMANode.String(): "same NUMA node",
	}[n.Nearness]
}

// pairUp sets the neighbors of each GPU and each NIC.
func (inv *Inventory) pairUp() {
	var gpus, nics []*Device
	for i := range inv.Devices {
		switch d := &inv.Devices[i]; {
		case d.Type == device.GPU:
			gpus = append(gpus, d)
		case d.Type == device.PFType && d.Class.Base() == pci.BaseNetwork:
			nics = append(nics, d)
		}
	}
	nearest := map[*Device]device.Nearness{}
	for _, gpu := range gpus {
		nearest[gpu] = device.Far
		for _, nic := range nics {
			// The lesser of two values is the nearer one.
			nearest[gpu] = min(nearest[gpu], device.Near(gpu.Function, nic.Function))
		}
		gpu.Near = neighbors(nearest[gpu], nics, func(nic *Device) bool { return device.Near(gpu.Function, nic.Function) == nearest[gpu] })
	}
	for _, nic := range nics {
		serves := func(gpu *Device) bool { return device.Near(gpu.Function, nic.Function) == nearest[gpu] }
		closest := device.Far
		for _, gpu := range gpus {
			if serves(gpu) {
				closest = min(closest, nearest[gpu])
			}
		}
		nic.Near = neighbors(closest, gpus, func(gpu *Device) bool { return serves(gpu) && nearest[gpu] == closest })
	}
}

// neighbors returns the devices that are near; nil if the nearness is Far.
func neighbors(n device.Nearness, devices []*Device, near func(*Device) bool) *Neighbors {
	if n == device.Far {
		return nil
	}
	all := &Neighbors{Nearness: n.String()}
	for _, d := range devices {
		if near(d) {
			all.Addresses = append(all.Addresses, d.Address)
		}
	}
	return all
}

// WriteJSON writes the inventory as one indented JSON document.
func (inv *Inventory) WriteJSON(w io.Writer) error { return output.JSON(w, "inventory", inv) }

// WriteYAML writes the inventory as YAML with the names of the JSON form.
func (inv *Inventory) WriteYAML(w io.Writer) error { return output.YAML(w, "inventory", inv) }
