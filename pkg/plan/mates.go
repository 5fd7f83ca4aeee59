package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/nodeconfig"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// matesTakeable refuses a device if the node needs one of its group mates or companions. A companion can be in another
// group than the device, so the isolation verdict does not cover it.
func (c *candidate) matesTakeable() *rule.Verdict {
	var first *device.Function
	var texts []string
	for _, t := range c.all {
		if t.role == RoleDevice {
			continue
		}
		if t.f.Group == nil {
			return c.mate(t.f, rule.NotIsolated,
				fmt.Sprintf("%s must be assigned with %s, but is in no IOMMU group", t.f.Address, c.f.Address),
				isolation.FixOn(c.node.Snapshot, rule.NoIOMMUGroup))
		}
		if c.node.Selection.Choice(t.f.Address).Forbidden {
			first = cmp.Or(first, t.f)
			texts = append(texts, c.goAlong(t.f, "must not be taken"))
		}
	}
	if first == nil {
		return c.withVMD()
	}
	choice := c.node.Selection.Choice(first.Address)
	return c.mate(first, choice.Against(), strings.Join(texts, "; "), "stop that use first, or claim another device")
}

// withVMD refuses a function behind VMD if its assignment set contains VMD and a rule selects VMD: binding VMD would
// remove the function, which exists only while VMD's driver has it.
func (c *candidate) withVMD() *rule.Verdict {
	if !isolation.BehindVMD(c.f.Address) {
		return nil
	}
	for _, t := range c.all {
		if isVMD(t.f) && c.node.Selection.Choice(t.f.Address).Ours {
			return c.mate(t.f, rule.Forbidden,
				fmt.Sprintf("%s (class %s, driver vmd) must be assigned with %s, which exists only while driver vmd has VMD", t.f.Address, t.f.Class, c.f.Address),
				isolation.Separate(c.node.Snapshot, c.f))
		}
	}
	return nil
}

// matesSelected refuses a device if its assignment set would take functions from the host that no rule selects. A
// companion belongs to the allocated card. The refusal names all such functions at once.
func (c *candidate) matesSelected() *rule.Verdict {
	var lacking []*device.Function
	for _, t := range c.all {
		if t.role != RoleDevice && needsRule(c.node.Snapshot, c.node.Selection, t.f, c.takes) {
			lacking = append(lacking, t.f)
		}
	}
	if len(lacking) == 0 {
		return nil
	}
	return c.mate(lacking[0], rule.GroupMateNotSelected, c.notSelected(lacking), c.separateOrSelect(lacking))
}

// separateOrSelect returns the fix for group mates that no rule selects. A rule for VMD would not help, because the
// drives behind it exist only while its driver has it.
func (c *candidate) separateOrSelect(mates []*device.Function) string {
	separate := isolation.Separate(c.node.Snapshot, c.f)
	if slices.ContainsFunc(mates, isVMD) {
		return separate
	}
	quoted := make([]string, len(mates))
	for i, f := range mates {
		quoted[i] = fmt.Sprintf("%q", f.Address.String())
	}
	return fmt.Sprintf(
		"%s; or, if tenants may have what goes along, add it to the node config (kind NodeConfig, `devices: [{match: {addresses: [%s]}}]`)",
		separate, strings.Join(quoted, ", "))
}

// isVMD reports whether the function is Intel's VMD (Volume Management Device) with its driver, which creates the PCI
// domain of its drives (drivers/pci/controller/vmd.c).
func isVMD(f *device.Function) bool { return f.Driver == "vmd" }

// notSelected names group mates that no rule selects.
func (c *candidate) notSelected(mates []*device.Function) string {
	if len(mates) == 1 {
		return c.goAlong(mates[0], "does not belong to kata-vfio")
	}
	names := make([]string, len(mates))
	for i, f := range mates {
		names[i] = fmt.Sprintf("%s (class %s, driver %s)", f.Address, f.Class, driverName(f.Driver))
		if choice := c.node.Selection.Choice(f.Address); choice.Rule != "" {
			names[i] += ", which " + choice.Rule + " excludes"
		}
	}
	return fmt.Sprintf("%s must be assigned with %s, but the node config does not select them", strings.Join(names, "; "), c.f.Address)
}

// goAlong says why a function can't be assigned together with the device.
func (c *candidate) goAlong(f *device.Function, but string) string {
	return fmt.Sprintf("%s (class %s, driver %s) must be assigned with %s, but %s: %s",
		f.Address, f.Class, driverName(f.Driver), c.f.Address, but, c.node.Selection.Choice(f.Address).Why)
}

// needsRule reports whether a group mate needs a rule of the node config and has none. Only functions that serve an
// assigned GPU need none. "No driver" does not show that nobody needs the function: a processor's security processor
// and a switch's management function work without a driver, and users of storage and network functions may be invisible
// (LVM, ZFS, Ceph, a raw device). The tenant of a group can reach all of it.
func needsRule(s *device.Snapshot, selection *nodeconfig.Selection, f *device.Function, taken func(pci.Address) bool) bool {
	isTaken := func(gpu *device.Function) bool { return taken(gpu.Address) }
	choice := selection.Choice(f.Address)
	switch {
	case choice.Ours, choice.Forbidden:
		return false
	case slices.ContainsFunc(s.Served(f), isTaken):
		return false
	}
	servesTaken := slices.ContainsFunc(s.ServedBehindSwitch(f), isTaken) || slices.ContainsFunc(s.SoundBeside(f), isTaken)
	return choice.Rule != "" || !isolation.LeavesDMA(f.Driver) || !servesTaken
}

// standsAlone refuses a PF that has VFs and a VF whose PF may be a tenant's: a PF's owner controls its VFs.
func (c *candidate) standsAlone() *rule.Verdict {
	for _, t := range c.all {
		if t.f.PF != nil && t.f.PF.NumVFs > 0 {
			return c.mate(t.f, rule.PFBusy,
				fmt.Sprintf("%s is a PF with %d VFs enabled, which binding it to vfio-pci would destroy", t.f.Address, t.f.PF.NumVFs),
				c.withoutVFs(t.f))
		}
		if t.f.VF == nil {
			continue
		}
		if pf, ok := c.node.Snapshot.Function(t.f.VF.PF); ok && device.IsVFIO(pf.Driver) {
			return c.mate(pf, rule.PFBusy,
				fmt.Sprintf("%s is a VF of %s, which is on %s and may be a tenant's", t.f.Address, pf.Address, pf.Driver),
				"give the PF back to its driver first")
		}
	}
	return nil
}

// withoutVFs returns the fix for a PF that has VFs: the claimed device, or a group mate of it.
func (c *candidate) withoutVFs(pf *device.Function) string {
	instead := "claim another device"
	if pf.Address != c.f.Address {
		instead += ", or " + isolation.Separate(c.node.Snapshot, c.f)
	}
	return fmt.Sprintf("%s; if no claim has a VF of %s, its VFs can be removed: `echo 0 > /sys/bus/pci/devices/%s/sriov_numvfs`",
		instead, pf.Address, pf.Address)
}

// resettable refuses a device if a function that the VM can reach can't be cleaned after this tenant.
func (c *candidate) resettable() *rule.Verdict {
	if c.claimed.VFIO.Reset == v1alpha1.ResetSkip {
		return nil
	}
	_, f := c.cleaning()
	if f == nil {
		return nil
	}
	return c.mate(f, rule.NoReset,
		fmt.Sprintf("%s can't be reset without touching functions outside its group (the kernel offers: %s)", f.Address, orNone(f.ResetMethods)),
		c.known.fix(f, rule.NoReset)+"; where all users of the device trust each other, a DeviceClass can say `reset: Skip`")
}

// resets returns how the functions that the VM can reach are cleaned after this tenant.
func (c *candidate) resets() []isolation.Reset {
	if c.claimed.VFIO.Reset == v1alpha1.ResetSkip {
		return nil
	}
	resets, _ := c.cleaning()
	return widest(resets)
}

// cleaning returns resets of the functions that the VM can reach, and the first of these that has none.
func (c *candidate) cleaning() (resets []isolation.Reset, lacking *device.Function) {
	covered := map[pci.Address]bool{}
	for _, f := range c.reachable() {
		if covered[f.Address] {
			continue
		}
		// A reset is usable only if all functions that it touches are in the assignment set. A bus reset, for example,
		// resets every function of the bus, and another tenant may have one of them.
		r, ok := c.bestReset(f)
		if !ok {
			return resets, f
		}
		resets = append(resets, r)
		for _, a := range r.Set {
			covered[a] = true
		}
	}
	return resets, nil
}

// reachable returns the functions that the VM can reach, the device first: all functions of its group, since the
// group's node gives access to every member, and the companions that are assigned.
func (c *candidate) reachable() []*device.Function {
	fns := []*device.Function{c.f}
	for _, t := range c.all {
		if t.role == RoleGroupMate || t.role == RoleCompanion && c.claimed.VFIO.Companions == v1alpha1.CompanionsGive {
			fns = append(fns, t.f)
		}
	}
	return fns
}

// bestReset returns the best reset of f that touches only functions of the assignment set.
func (c *candidate) bestReset(f *device.Function) (isolation.Reset, bool) {
	for _, r := range c.known.resets(f) {
		if c.includesAll(r.Set) {
			return r, true
		}
	}
	return isolation.Reset{}, false
}

// includesAll reports whether all addresses are in the assignment set. takes uses a binary search because a group can
// have hundreds of functions, each of which asks.
func (c *candidate) includesAll(set []pci.Address) bool {
	return !slices.ContainsFunc(set, func(a pci.Address) bool { return !c.takes(a) })
}

// takes reports whether a function is in the assignment set, which is in order of address.
func (c *candidate) takes(a pci.Address) bool {
	_, taken := slices.BinarySearchFunc(c.all, a, func(t member, a pci.Address) int { return t.f.Address.Compare(a) })
	return taken
}

// widest drops resets whose set is part of another's set. Each set has at least one function.
func widest(resets []isolation.Reset) []isolation.Reset {
	touching := map[pci.Address][]isolation.Reset{} // a set that contains another one contains its first function
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
