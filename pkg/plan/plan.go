// Package plan decides what a claim changes on the node. The result is a [Plan] of steps for whole IOMMU groups and
// companion functions, or a [rule.RefusedError] that names the function that prevents the plan, and the fix. The
// package is pure: the same request and the same node give the same plan, byte for byte, whether it is executed, shown
// as a dry run or audited.
package plan

import (
	"cmp"
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/claim"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// Plan says which functions a claim gets and how.
type Plan struct {
	Claim Ref `json:"claim"`
	// Devices are the claim's devices, in the claim's order. A pair is two consecutive devices. A partition is one
	// device for each of its GPUs, all consecutive.
	Devices []Device `json:"devices"`
	// Functions are all functions that are bound for the devices: the devices' own functions, their group mates and
	// their companions. Each is listed once, by address.
	Functions []Function `json:"functions"`
	// Modules are the kernel modules to load first.
	Modules []string `json:"modules,omitempty"`
	// ResetsBefore are the resets that Prepare makes, of functions that are not proven clean since an earlier tenant.
	ResetsBefore []isolation.Reset `json:"cleanse,omitempty"`
	// Steps are the steps of [Preparation], in order.
	Steps []Step `json:"steps"`
}

// Ref names a claim.
type Ref struct {
	UID       string      `json:"uid"`
	Namespace string      `json:"namespace,omitempty"`
	Name      string      `json:"name,omitempty"`
	Pods      []claim.Pod `json:"pods,omitempty"`
	// Tenant is the ID of the claim's tenant; empty if the node had no exclusive domains when the claim was prepared.
	Tenant string `json:"tenant,omitempty"`
}

// String returns "namespace/name (uid)", without the parts that are empty.
func (r Ref) String() string {
	if r.Name == "" {
		return r.UID
	}
	return r.Namespace + "/" + r.Name + " (" + r.UID + ")"
}

// Device is one allocated function and how its VM gets it.
type Device struct {
	Request string      `json:"request"`
	Pool    string      `json:"pool"`
	Name    string      `json:"name"`
	Address pci.Address `json:"address"`
	// Pair is the name of the pair or the partition in the ResourceSlice; empty for a function that was allocated by itself.
	Pair string `json:"pair,omitempty"`
	// Backend is Group or IOMMUFD, never Auto.
	Backend     v1alpha1.Backend `json:"backend"`
	ControlNode bool             `json:"controlNode,omitempty"`
	// Give are the functions whose VFIO nodes are in the CDI device, the device's own function first. With the Group
	// backend, all of them share the node of their group.
	Give []pci.Address `json:"give"`
	// Resets reset every function that the VM can reach, during Unprepare; empty if the class waives resets.
	Resets []isolation.Reset `json:"resets,omitempty"`
	// Policy says whether the functions return to their driver.
	Policy v1alpha1.BindPolicy `json:"policy"`
	// Attachment is PhysicalEndpoint for a VF that its VM gets as a network
	// interface; empty for VFIO.
	Attachment v1alpha1.Attachment `json:"attachment,omitempty"`
	// Network is the guest's configuration of a VF's interface; nil if there is none. Before the pool has assigned
	// addresses and routes, it contains the pool's name in their place.
	Network *v1alpha1.GuestNetwork `json:"network,omitempty"`
	// Lease says how the VF's addresses are taken from a pool; nil if they come from no pool.
	Lease *Lease `json:"lease,omitempty"`
	// Stage is the profile of the sanitizing stage that the claim is; empty for a tenant's claim.
	Stage string `json:"stage,omitempty"`
	// Sanitized says how the device was sanitized before the claim; nil if it was not.
	Sanitized *Sanitized `json:"sanitized,omitempty"`
}

// Function is one function that the plan takes.
type Function struct {
	Address pci.Address `json:"address"`
	Vendor  pci.ID      `json:"vendor"`
	Device  pci.ID      `json:"device"`
	// Identity identifies the function for which the plan was made; see [Function.In].
	Identity device.Identity `json:"identity,omitzero"`
	// Group is the IOMMU group in this boot.
	Group int `json:"group"`
	// PF is the physical function of a VF.
	PF *pci.Address `json:"pf,omitempty"`
	// FirstFunction is function 0 of the physical device if function 0 has another device number (ARI); nil otherwise.
	// See [Function.Card].
	FirstFunction *pci.Address `json:"firstFunction,omitempty"`
	// Role says why the function is in the plan: it is the device, a group mate or a companion.
	Role Role `json:"role"`
	// Original is the binding that Prepare found and that is restored. Target is the binding while the claim is
	// prepared.
	Original Binding `json:"original"`
	Target   Binding `json:"target"`
	// Endpoint is the binding to a kernel driver on which a physical endpoint waits for its VM, after the VF was reset
	// on Target. While a sandbox has the VF, Kata binds it. Endpoint is nil for all other functions. If its driver is
	// [FindDriver], the driver is not known yet.
	Endpoint *Binding `json:"endpoint,omitempty"`
	// VF has the settings that the claim changes on a VF; nil if there are none.
	VF *VFChange `json:"vf,omitempty"`
	// Settings are the values that providers set for the function; see [Setting]. VFIndex is the VF's index if the
	// function is a VF that a provider serves.
	Settings []Setting `json:"settings,omitempty"`
	VFIndex  int       `json:"vfIndex,omitempty"`
	// ServedBy are the names of providers that end what the function executes between two tenants, even if they have no
	// setting for it.
	ServedBy []string `json:"servedBy,omitempty"`
	// Sanitize is the profile of the sanitizing stage that the function passes before another tenant gets it; empty if there
	// is none.
	Sanitize string `json:"sanitize,omitempty"`
}

// Card returns the address of function 0 of the physical device.
func (fn *Function) Card() pci.Address {
	if fn.FirstFunction != nil {
		return *fn.FirstFunction
	}
	card := fn.Address
	card.Function = 0
	return card
}

// FindDriver stands for the kernel driver of a VF that has no kernel driver now. The driver is found before the first
// effect.
const FindDriver = "its kernel driver"

// Role is a function's part in a plan.
type Role string

// Roles. A companion shares the device's slot but not its group.
const (
	RoleDevice    Role = "device"
	RoleGroupMate Role = "groupMate"
	RoleCompanion Role = "companion"
)

// Published returns the name under which the device is published in a ResourceSlice: the name of its pair or partition,
// or its own.
func (d *Device) Published() string { return cmp.Or(d.Pair, d.Name) }

// Allocated returns the devices grouped as they were allocated. The two devices of a pair are together, the GPU first.
// The GPUs of a partition are together, by address. Each other device is alone.
func (p *Plan) Allocated() [][]Device {
	var all [][]Device
	for rest := p.Devices; len(rest) > 0; {
		n := 1
		for rest[0].Pair != "" && n < len(rest) && rest[n].Pair == rest[0].Pair {
			n++
		}
		// The capacity is limited, so that an append to one group can't overwrite the next device.
		all, rest = append(all, rest[:n:n]), rest[n:]
	}
	return all
}

// Addresses returns the addresses of all functions that p takes, in order.
func (p *Plan) Addresses() []pci.Address {
	addrs := make([]pci.Address, len(p.Functions))
	for i, f := range p.Functions {
		addrs[i] = f.Address
	}
	return addrs
}

// Reachable returns the addresses of the functions that the claim's VM can reach, in order: all functions of the
// devices' groups, since a group's node gives access to every member, and the companions that are assigned.
func (p *Plan) Reachable() []pci.Address {
	var addrs []pci.Address
	for _, f := range p.Functions {
		given := func(d Device) bool { return slices.Contains(d.Give, f.Address) }
		if f.Role != RoleCompanion || slices.ContainsFunc(p.Devices, given) {
			addrs = append(addrs, f.Address)
		}
	}
	return addrs
}

// IsStage reports whether the claim is that of a sanitizing stage.
func (p *Plan) IsStage() bool {
	return slices.ContainsFunc(p.Devices, func(d Device) bool { return d.Stage != "" })
}

// ReturnsToHost reports whether a function returns to a host driver. A function that policy "bound" keeps on VFIO, or
// that had no driver, does not.
func (p *Plan) ReturnsToHost() bool {
	return slices.ContainsFunc(p.Functions, func(f Function) bool {
		return f.Original.Driver != "" && f.Original.Driver != f.Target.Driver && !device.IsVFIO(f.Original.Driver)
	})
}

// Function returns the function at addr.
func (p *Plan) Function(addr pci.Address) (*Function, bool) {
	for i := range p.Functions {
		if p.Functions[i].Address == addr {
			return &p.Functions[i], true
		}
	}
	return nil, false
}

// In returns the function in a snapshot, or false if the function is gone. A function also counts as gone if another
// function is at its address, or if the kernel removed it and found it again.
func (fn *Function) In(s *device.Snapshot) (*device.Function, bool) {
	f, ok := s.Function(fn.Address)
	if !ok || !fn.Identity.Is(device.Identity{BootID: s.Host.BootID, Inode: f.Inode}) {
		return nil, false
	}
	return f, true
}

// AddressesIn returns the addresses of the functions that are in a snapshot, by [Function.In].
func (p *Plan) AddressesIn(s *device.Snapshot) []pci.Address {
	var addrs []pci.Address
	for i := range p.Functions {
		if _, ok := p.Functions[i].In(s); ok {
			addrs = append(addrs, p.Functions[i].Address)
		}
	}
	return addrs
}

// Follow returns p with the addresses that its functions have in a later boot, by [device.Snapshot.Find]. If a function
// is missing or can't be told from others, it counts as gone from then on; see [Function.In].
func (p *Plan) Follow(s *device.Snapshot) Plan {
	moved := map[pci.Address]pci.Address{}
	next := *p
	next.Functions = slices.Clone(p.Functions)
	for i, now := range p.present(s) {
		fn := &next.Functions[i]
		if now == nil {
			// Inode 0 means unknown, so that [device.Identity.Is] is false from now on.
			fn.Identity.Inode = 0
			continue
		}
		moved[fn.Address] = now.Address
		fn.Identity, fn.Address = s.Identify(now), now.Address
		fn.FirstFunction = now.FirstFunction()
		if now.Group != nil {
			fn.Group = *now.Group
		}
		if now.VF != nil {
			fn.PF = &now.VF.PF
		}
	}
	// Devices are changed after all functions, because a device can refer to any of them.
	next.readdress(moved)
	return next
}

// present returns for each function of p the function that it is in s, nil if it is gone. No function moves to an
// address that another function of p keeps or gets. Functions may move to addresses that others leave: firmware
// renumbers all buses behind a card that was added.
func (p *Plan) present(s *device.Snapshot) []*device.Function {
	now := make([]*device.Function, len(p.Functions))
	for i := range p.Functions {
		if found := s.Find(p.Functions[i].Identity); found.Sure {
			now[i] = found.Function
		}
	}
	// A function that can't move keeps its address, which may be in the way of another one.
	for again := true; again; {
		again = false
		users := p.users(now)
		for i, f := range now {
			if f != nil && f.Address != p.Functions[i].Address && users[f.Address] > 1 {
				now[i], again = nil, true
			}
		}
	}
	return now
}

// users returns how many functions of p have each address if they are where now says. A function that is gone keeps
// its address in p.
func (p *Plan) users(now []*device.Function) map[pci.Address]int {
	users := map[pci.Address]int{}
	for i, f := range now {
		if f == nil {
			users[p.Functions[i].Address]++
			continue
		}
		users[f.Address]++
	}
	return users
}

// readdress changes the devices, resets and steps of p to the new addresses.
func (p *Plan) readdress(moved map[pci.Address]pci.Address) {
	now := func(a pci.Address) pci.Address { return cmp.Or(moved[a], a) }
	all := func(addrs []pci.Address) []pci.Address {
		addrs = slices.Clone(addrs)
		for i, a := range addrs {
			addrs[i] = now(a)
		}
		return addrs
	}
	resets := func(resets []isolation.Reset) []isolation.Reset {
		resets = slices.Clone(resets)
		for i := range resets {
			resets[i].Set = all(resets[i].Set)
		}
		return resets
	}
	p.Devices, p.ResetsBefore = slices.Clone(p.Devices), resets(p.ResetsBefore)
	for i := range p.Devices {
		d := &p.Devices[i]
		d.Address, d.Give, d.Resets = now(d.Address), all(d.Give), resets(d.Resets)
	}
	p.Steps = p.StepsFor(AtOriginal, Preparation()...)
}

// HasVF reports whether the plan changes settings of a VF besides its binding.
func (p *Plan) HasVF() bool {
	return slices.ContainsFunc(p.Functions, func(f Function) bool { return f.VF != nil })
}
