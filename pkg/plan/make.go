package plan

import (
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/claim"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/nodeconfig"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// Node is everything about a node that decides whether a claim gets a device, and how.
type Node struct {
	// Name is the node's name in the cluster, which the names of its pools contain. If it is empty, the claim's pools
	// are not compared with the node's.
	Name      string
	Snapshot  *device.Snapshot
	Selection *nodeconfig.Selection
	// Owners has the journal's entry for each function that a record holds, by address.
	Owners map[pci.Address]Owner
	// NeedsReset has the functions that are not proven clean since an earlier tenant.
	NeedsReset map[pci.Address]bool
	// Sanitizing has the functions that must pass a sanitizing stage before a tenant gets them. Stages says how to
	// recognize the claims of stages.
	Sanitizing map[pci.Address]Sanitizing
	Stages     Stages
	// Sanitized has the functions that a stage sanitized and that no tenant had since then.
	Sanitized map[pci.Address]Sanitized
	// Drained has the drained functions with the reason.
	Drained map[pci.Address]string
	// Failing returns the IDs of the audit's failed checks that count for a function; nil if no audit runs.
	Failing func(pci.Address) []string
	// HotPlug says that Kata plugs devices into running VMs (the plugin's --hot-plug), not into VMs that boot.
	HotPlug bool
	// AddressPools are the address pools of the node config.
	AddressPools []v1alpha1.AddressPool
	// Damaged names a record that can't be read; empty if there is none. If it is set, a function on a VFIO driver that
	// no claim's record explains is refused.
	Damaged string
	// HotPlugWindow is how many bytes of memory space a VM has for the 32-bit BARs of a function that is plugged while
	// the VM runs. It is 0 if VMs boot with their functions: then sizes are not checked. See [FirmwareWindow].
	HotPlugWindow uint64
	// FatalErrors has the functions that reported fatal errors.
	FatalErrors map[pci.Address]bool
	// NotReady says why the node refuses all new claims; nil if it accepts claims, or if that is unknown.
	NotReady *NotReady
	// Provides decides the settings of a function for a provider that this package does not know, or says why the
	// function can't have them; nil if there is no such provider. It must be pure, as this package is.
	Provides func(*device.Function) ([]Setting, *rule.Verdict)
	// Attempted has the functions from which new claims must be kept for a reason that neither the snapshot nor the
	// journal shows: Prepare failed more than once ([rule.InUse], [rule.DiskInUse]), Fabric Manager does not activate a
	// partition with the function ([rule.PartitionNotActivated]), or the claim that has the function on this node no
	// longer has it at the API server ([rule.HeldByLostClaim]). [Assessor.Assess] uses it, [Make] does not.
	Attempted map[pci.Address]rule.Code
}

// Owner is a function's entry in the journal.
type Owner struct {
	Claim Ref
	// Quarantined says why the function can't be reused; empty if it is in ordinary use.
	Quarantined string
	// Bound is set for a function that is bound without a claim, by policy "bound" or to keep a device warm. Such a
	// function is free for claims.
	Bound bool
}

// Make returns the plan for the request, or a [rule.RefusedError] with the first reason against each device that is
// refused.
func Make(req *claim.Request, n Node) (*Plan, error) {
	m := maker{node: n, ref: NewRef(req), taken: map[pci.Address]*Function{}, known: newMemo(n.Snapshot), asked: askedFunctions(req.Devices)}
	for i := range req.Devices {
		m.device(&req.Devices[i])
	}
	if len(m.refusals) > 0 {
		return nil, RefuseClaim(m.ref, m.refusals...)
	}
	return m.plan(), nil
}

// NewRef returns the reference to the claim that a request came from.
func NewRef(req *claim.Request) Ref {
	return Ref{UID: req.UID, Namespace: req.Namespace, Name: req.Name, Pods: req.Pods, Tenant: req.Tenant}
}

// maker gathers one plan.
type maker struct {
	node Node
	ref  Ref
	// asked are the functions that the claim asks for; nil without a claim.
	asked    map[pci.Address]bool
	devices  []Device
	taken    map[pci.Address]*Function
	modules  []string
	refusals []rule.Verdict
	known    *memo
	layout   *device.Layout // nil until it is needed
}

// device adds one device, or the first reason against it.
func (m *maker) device(d *claim.Device) {
	c := newCandidate(m, d)
	for refusal := range c.refused() {
		// Only the first reason is reported, because later checks rely on what earlier ones refuse.
		m.refusals = append(m.refusals, refusal)
		return
	}
	m.add(c)
}

// refuse records a refusal of a device.
func (m *maker) refuse(d *claim.Device, r *rule.Verdict) {
	r.Device, r.Address = d.Name, d.Address
	m.refusals = append(m.refusals, *r)
}

// add adds a candidate that no check refuses to the plan.
func (m *maker) add(c *candidate) {
	lease, refusal := c.lease()
	if refusal != nil {
		m.refuse(c.claimed, refusal)
		return
	}
	var network *v1alpha1.GuestNetwork
	if c.claimed.VF != nil {
		network = c.claimed.VF.Network
	}
	m.devices = append(m.devices, Device{
		Network: network, Lease: lease,
		Request: c.claimed.Request, Pool: c.claimed.Pool, Name: c.claimed.Name, Address: c.f.Address, Pair: c.claimed.Pair,
		Backend: c.backend(), ControlNode: c.claimed.VFIO.ControlNode != nil && *c.claimed.VFIO.ControlNode,
		Give: c.give(), Resets: c.resets(), Policy: c.choice.Policy,
		Stage: c.stage(), Sanitized: c.sanitizedBy(),
	})
	for _, t := range c.members() {
		// Two devices of a claim can share a group or a card. A function of both is bound once, in the closer of its
		// roles.
		if have, ok := m.taken[t.f.Address]; ok {
			have.Role = minRole(have.Role, t.role)
			continue
		}
		m.taken[t.f.Address] = m.function(t)
	}
	own := m.taken[c.f.Address]
	own.VF, own.Settings, own.ServedBy = c.vfChange(), c.providedSettings(), c.servedBy()
	if c.f.VF != nil && len(own.Providers()) > 0 {
		own.VFIndex = c.f.VF.Index
	}
	if c.isEndpoint() {
		m.devices[len(m.devices)-1].Attachment = v1alpha1.AttachPhysicalEndpoint
		own.Endpoint = endpointBinding(c.f)
	}
}

// function decides how one function is bound.
func (m *maker) function(t member) *Function {
	f := t.f
	fn := &Function{
		Address: f.Address, Vendor: f.Vendor, Device: f.Device, Identity: m.node.Snapshot.Identify(f), Group: *f.Group, Role: t.role,
		Original: Binding{Driver: f.Driver, Override: f.DriverOverride}, FirstFunction: f.FirstFunction(),
	}
	if s := m.node.Selection.Choice(f.Address).Sanitize; s != nil {
		fn.Sanitize = s.Profile
	}
	if f.VF != nil {
		fn.PF = &f.VF.PF
	}
	// If the function is on VFIO already, Target equals Original, so that the function stays on VFIO after the claim.
	if f.OnVFIO() {
		fn.Target = fn.Original
		return fn
	}
	driver, load := vfioDriver(&m.node.Snapshot.Host, f)
	if load != "" && !slices.Contains(m.modules, load) {
		m.modules = append(m.modules, load)
	}
	fn.Target = Binding{Driver: driver, Override: driver}
	return fn
}

// plan returns the plan of the collected parts.
func (m *maker) plan() *Plan {
	p := &Plan{Claim: m.ref, Devices: m.devices, Modules: m.modules}
	for _, fn := range m.taken {
		p.Functions = append(p.Functions, *fn)
	}
	// The order of a map is random, but the same claim must give the same plan, byte for byte.
	slices.SortFunc(p.Functions, func(a, b Function) int { return a.Address.Compare(b.Address) })
	p.ResetsBefore = m.resetsBefore(p.Resets())
	p.Steps = p.StepsFor(AtOriginal, Preparation()...)
	return p
}

// resetsBefore returns the resets that are due before the tenant gets the devices. A shared device is always reset: a
// container may have used it since it was last proven clean.
func (m *maker) resetsBefore(resets []isolation.Reset) []isolation.Reset {
	if slices.ContainsFunc(m.devices, Device.IsShared) {
		return resets
	}
	var due []isolation.Reset
	for _, r := range resets {
		if slices.ContainsFunc(r.Set, func(a pci.Address) bool { return m.node.NeedsReset[a] }) {
			due = append(due, r)
		}
	}
	return due
}

// minRole returns the closer of two roles. RoleDevice is the closest, then RoleGroupMate.
func minRole(a, b Role) Role {
	order := []Role{RoleDevice, RoleGroupMate, RoleCompanion}
	return order[min(slices.Index(order, a), slices.Index(order, b))]
}

// candidate is one claimed device. It does not change while it is judged.
type candidate struct {
	*maker
	claimed *claim.Device
	// f is the device's function. It is nil if the node has no such function, or another one at its address: see
	// [candidate.present].
	f      *device.Function
	choice nodeconfig.Choice
	set    *assigned
}

// newCandidate looks up a claimed device on the node. If it is absent, only claimed is set.
func newCandidate(m *maker, d *claim.Device) *candidate {
	c := &candidate{maker: m, claimed: d}
	f, ok := m.node.Snapshot.Function(d.Address)
	// A device's name contains its type. If the function is not of that type, another device has come to the address.
	if !ok || !f.HasName(d.Name) {
		return c
	}
	c.f, c.choice, c.set = f, m.node.Selection.Choice(f.Address), m.known.assignedWith(f)
	return c
}

// give returns the functions whose VFIO nodes the VM gets, the device's own first.
func (c *candidate) give() []pci.Address {
	give := []pci.Address{c.f.Address}
	if c.claimed.VFIO.Companions != v1alpha1.CompanionsGive {
		return give
	}
	for _, t := range c.set.functions {
		if t.Address != c.f.Address {
			give = append(give, t.Address)
		}
	}
	return give
}

// member is a function and the reason why it is in the assignment set.
type member struct {
	f    *device.Function
	role Role
}

// members returns the functions that are assigned with the device, each with its role, in order of address.
func (c *candidate) members() []member {
	all := make([]member, len(c.set.functions))
	for i, t := range c.set.functions {
		all[i] = member{t, roleIn(c.f, t)}
	}
	return all
}

// roleIn returns the role of t in the assignment set of f.
func roleIn(f, t *device.Function) Role {
	switch {
	case t.Address == f.Address:
		return RoleDevice
	case t.Group != nil && f.Group != nil && *t.Group == *f.Group:
		return RoleGroupMate
	default:
		return RoleCompanion
	}
}

// vfioDriver returns the VFIO driver for f: the module whose "vfio_pci:" alias matches most specifically, as `modprobe
// -R` over modules.alias would choose (Documentation/driver-api/vfio-pci-device-specific-driver-acceptance.rst), or
// vfio-pci if none matches. load names the module if it is not loaded.
func vfioDriver(h *device.Host, f *device.Function) (driver, load string) {
	module, best := "vfio_pci", -1
	for _, a := range h.VFIOAliases {
		if score := a.Specificity(); score > best && a.Match(f.Modalias) {
			module, best = a.Module, score
		}
	}
	driver, loaded := h.Driver(module)
	if loaded {
		return driver, ""
	}
	return driver, module
}
