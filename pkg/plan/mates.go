package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// matesTakeable refuses a group mate or companion that the node itself needs,
// which may lie in another group than the one judged.
func (c *candidate) matesTakeable() *Refusal {
	for _, t := range c.all {
		if t.role == RoleDevice {
			continue
		}
		if t.f.Group == nil {
			return c.mate(t.f, NotIsolated,
				fmt.Sprintf("%s must be assigned with %s, but is in no IOMMU group", t.f.Address, c.f.Address),
				isolation.Fix(isolation.NoGroup))
		}
		if ch := c.node.Selection.Choice(t.f.Address); ch.Forbidden {
			return c.mate(t.f, Forbidden,
				fmt.Sprintf("%s (driver %s) must be assigned with %s, but must not be taken: %s", t.f.Address, driverName(t.f.Driver), c.f.Address, ch.Why),
				"stop that use first, or claim another device")
		}
	}
	return nil
}

// matesSelected refuses a group mate that the claim does not name: a storage or network function of the host, whose
// users may be invisible (LVM, ZFS, Ceph, a raw device, a network that the tenant must not reach), and any function that
// a rule excludes. A companion belongs to the allocated card.
func (c *candidate) matesSelected() *Refusal {
	for _, t := range c.all {
		choice := c.node.Selection.Choice(t.f.Address)
		if t.role == RoleDevice || choice.Ours || choice.Forbidden || device.Serves(t.f.Class) {
			continue
		}
		if choice.Rule == "" && !isHostFunction(t.f) {
			continue
		}
		return c.mate(t.f, MateNotSelected,
			fmt.Sprintf("%s (class %s, driver %s) must be assigned with %s, but does not belong to kata-vfio: %s",
				t.f.Address, t.f.Class, driverName(t.f.Driver), c.f.Address, choice.Why),
			fmt.Sprintf("if tenants may have it, add it to the node config (kind NodeConfig, `devices: [{match: {addresses: [\"%s\"]}}]`); else %s",
				t.f.Address, isolation.Separate(c.node.Snapshot, c.f)))
	}
	return nil
}

// isHostFunction reports whether f is a storage or network function.
func isHostFunction(f *device.Function) bool {
	return f.Class.Base() == pci.BaseStorage || f.Class.Base() == pci.BaseNetwork
}

// standsAlone keeps a PF and its VFs out of two tenants' hands.
func (c *candidate) standsAlone() *Refusal {
	for _, t := range c.all {
		if t.f.PF != nil && t.f.PF.NumVFs > 0 {
			return c.mate(t.f, PFBusy,
				fmt.Sprintf("%s is a PF with %d VFs enabled, which binding it to vfio-pci would destroy", t.f.Address, t.f.PF.NumVFs),
				c.withoutVFs(t.f))
		}
		if t.f.VF == nil {
			continue
		}
		if pf, ok := c.node.Snapshot.Function(t.f.VF.PF); ok && device.IsVFIO(pf.Driver) {
			return c.mate(pf, PFBusy,
				fmt.Sprintf("%s is a VF of %s, which is on %s and may be a tenant's", t.f.Address, pf.Address, pf.Driver),
				"give the PF back to its driver first")
		}
	}
	return nil
}

// withoutVFs is the fix for a PF that has VFs: the claimed device, or a group mate of it.
func (c *candidate) withoutVFs(pf *device.Function) string {
	instead := "claim another device"
	if pf.Address != c.f.Address {
		instead += ", or " + isolation.Separate(c.node.Snapshot, c.f)
	}
	return fmt.Sprintf("%s; if no claim has a VF of %s, its VFs can be removed: `echo 0 > /sys/bus/pci/devices/%s/sriov_numvfs`",
		instead, pf.Address, pf.Address)
}

// resettable settles how every function that the VM can reach is cleaned
// after this tenant.
func (c *candidate) resettable() *Refusal {
	if c.claimed.VFIO.Reset == v1alpha1.ResetSkip {
		return nil
	}
	covered := map[pci.Address]bool{}
	for _, f := range c.reachable() {
		if covered[f.Address] {
			continue
		}
		r, ok := c.bestReset(f)
		if !ok {
			return c.mate(f, NoReset,
				fmt.Sprintf("%s can't be reset without touching functions outside its group (the kernel offers: %s)", f.Address, orNone(f.ResetMethods)),
				c.known.fix(f, isolation.NoReset)+"; where all users of the device trust each other, a DeviceClass can say `reset: Skip`")
		}
		c.resets = append(c.resets, r)
		for _, a := range r.Set {
			covered[a] = true
		}
	}
	c.resets = widest(c.resets)
	return nil
}

// reachable returns the functions that the VM can reach, the device first: all of its group, since the group's
// node gives access to every member, and the companions that are assigned.
func (c *candidate) reachable() []*device.Function {
	fns := []*device.Function{c.f}
	for _, t := range c.all {
		if t.role == RoleGroupMate || t.role == RoleCompanion && c.claimed.VFIO.Companions == v1alpha1.CompanionsGive {
			fns = append(fns, t.f)
		}
	}
	return fns
}

// bestReset returns the best reset of f whose set is all ours.
func (c *candidate) bestReset(f *device.Function) (isolation.Reset, bool) {
	for _, r := range c.known.resets(f) {
		if c.includesAll(r.Set) {
			return r, true
		}
	}
	return isolation.Reset{}, false
}

// includesAll reports whether all of the addresses are among what is taken, which is in order of address. A group may have
// hundreds of functions, and each of them asks.
func (c *candidate) includesAll(set []pci.Address) bool {
	return !slices.ContainsFunc(set, func(a pci.Address) bool {
		_, taken := slices.BinarySearchFunc(c.all, a, func(t member, a pci.Address) int { return t.f.Address.Compare(a) })
		return !taken
	})
}

// widest drops resets whose set lies within another's. Each set has at least one function.
func widest(resets []isolation.Reset) []isolation.Reset {
	touching := map[pci.Address][]isolation.Reset{} // what lies within a set has its first function in common with it
	for _, r := range resets {
		for _, a := range r.Set {
			touching[a] = append(touching[a], r)
		}
	}
	return slices.DeleteFunc(slices.Clone(resets), func(r isolation.Reset) bool {
		return slices.ContainsFunc(touching[r.Set[0]], func(o isolation.Reset) bool {
			return len(o.Set) > len(r.Set) && !slices.ContainsFunc(r.Set, func(a pci.Address) bool { return !slices.Contains(o.Set, a) })
		})
	})
}

func orNone(words []string) string {
	if len(words) == 0 {
		return "nothing"
	}
	return strings.Join(words, " ")
}
