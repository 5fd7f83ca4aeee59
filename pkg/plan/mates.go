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
// group than the device, so the judgment on the device does not cover it.
func (c *candidate) matesTakeable() *rule.Verdict {
	var first *device.Function
	var texts []string
	untakeable := c.set.having(isUntakeable, func(f *device.Function) bool {
		return f.Group == nil || c.node.Selection.Choice(f.Address).Forbidden
	})
	for _, f := range untakeable {
		if f.Address == c.f.Address {
			continue
		}
		if f.Group == nil {
			return c.mate(f, rule.NotIsolated,
				fmt.Sprintf("%s must be assigned with %s, but is in no IOMMU group", f.Address, c.f.Address),
				isolation.FixOn(c.node.Snapshot, rule.NoIOMMUGroup))
		}
		first = cmp.Or(first, f)
		if len(texts) < maxMates {
			texts = append(texts, c.goAlong(f, "must not be taken"))
		}
	}
	if first == nil {
		return c.withVMD()
	}
	choice := c.node.Selection.Choice(first.Address)
	texts = c.andMore(texts, untakeable)
	return c.mate(first, choice.Against(), strings.Join(texts, "; "), "stop that use first, or claim another device")
}

// withVMD refuses a function behind VMD if its assignment set contains VMD and a rule selects VMD: binding VMD would
// remove the function, which exists only while VMD's driver has it.
func (c *candidate) withVMD() *rule.Verdict {
	if !isolation.BehindVMD(c.f.Address) {
		return nil
	}
	claimable := c.set.having(isVMDOfRule, func(f *device.Function) bool { return isVMD(f) && c.node.Selection.Choice(f.Address).Ours })
	if len(claimable) == 0 {
		return nil
	}
	f := claimable[0]
	return c.mate(f, rule.Forbidden,
		fmt.Sprintf("%s (class %s, driver vmd) must be assigned with %s, which exists only while driver vmd has VMD", f.Address, f.Class, c.f.Address),
		isolation.Separate(c.node.Snapshot, c.f))
}

// matesSelected refuses a device if its assignment set would take functions from the host that no rule selects. A
// companion needs no rule if it serves an allocated GPU. The refusal names all such functions at once, or the first of
// many.
func (c *candidate) matesSelected() *rule.Verdict {
	unselected := c.set.having(isUnselected, func(f *device.Function) bool {
		return needsRule(c.node.Snapshot, c.node.Selection, f, c.set.includes)
	})
	var named []*device.Function
	for _, f := range unselected {
		if f.Address != c.f.Address && len(named) < maxMates {
			named = append(named, f)
		}
	}
	if len(named) == 0 {
		return nil
	}
	return c.mate(named[0], rule.GroupMateNotSelected, c.notSelected(named, unselected), c.separateOrSelect(named, unselected))
}

// maxMates is how many group mates and companions a refusal names. A group can have hundreds of functions.
const maxMates = 8

// andMore appends to names how many more of the functions there are. It does not count the device itself.
func (c *candidate) andMore(names []string, all []*device.Function) []string {
	if more := c.others(all) - len(names); more > 0 {
		return append(names, fmt.Sprintf("%d more", more))
	}
	return names
}

// others returns the number of functions without the device itself.
func (c *candidate) others(all []*device.Function) int {
	isSelf := func(f *device.Function, a pci.Address) int { return f.Address.Compare(a) }
	if _, ok := slices.BinarySearchFunc(all, c.f.Address, isSelf); ok {
		return len(all) - 1
	}
	return len(all)
}

// separateOrSelect returns the fix for group mates that no rule selects; the fix contains the named ones. A rule for
// VMD would not help, because the drives behind VMD exist only while VMD's driver has it.
func (c *candidate) separateOrSelect(named, all []*device.Function) string {
	separate := isolation.Separate(c.node.Snapshot, c.f)
	unselectedVMD := c.set.having(isUnselectedVMD, func(f *device.Function) bool { return isVMD(f) && slices.Contains(all, f) })
	if c.others(unselectedVMD) > 0 {
		return separate
	}
	quoted := make([]string, len(named))
	for i, f := range named {
		quoted[i] = fmt.Sprintf("%q", f.Address.String())
	}
	fix := fmt.Sprintf("%s; or, if tenants may have what goes along, add it to the node config (kind NodeConfig, `devices: [{match: {addresses: [%s]}}]`)",
		separate, strings.Join(quoted, ", "))
	if more := c.others(all) - len(named); more > 0 {
		fix += fmt.Sprintf(", with the addresses of %d more, which `kata-vfio-audit devices` lists", more)
	}
	return fix
}

// isVMD reports whether the function is Intel's VMD (Volume Management Device) with its driver, which creates the PCI
// domain of its drives (drivers/pci/controller/vmd.c).
func isVMD(f *device.Function) bool { return f.Driver == "vmd" }

// notSelected says which group mates no rule selects. It names only the given ones of all.
func (c *candidate) notSelected(named, all []*device.Function) string {
	if len(named) == 1 {
		return c.goAlong(named[0], "does not belong to kata-vfio")
	}
	names := make([]string, len(named))
	for i, f := range named {
		names[i] = fmt.Sprintf("%s (class %s, driver %s)", f.Address, f.Class, driverName(f.Driver))
		if choice := c.node.Selection.Choice(f.Address); choice.Rule != "" {
			names[i] += ", which " + choice.Rule + " excludes"
		}
	}
	return fmt.Sprintf("%s must be assigned with %s, but the node config does not select them", strings.Join(c.andMore(names, all), "; "), c.f.Address)
}

// goAlong says why a function can't be assigned together with the device.
func (c *candidate) goAlong(f *device.Function, but string) string {
	return fmt.Sprintf("%s (class %s, driver %s) must be assigned with %s, but %s: %s",
		f.Address, f.Class, driverName(f.Driver), c.f.Address, but, c.node.Selection.Choice(f.Address).Why)
}

// needsRule reports whether a group mate needs a rule of the node config and has none. Only functions that serve an
// assigned GPU need no rule. That a function has no driver does not show that nobody needs it: a processor's security
// processor and a switch's management function work without a driver, and users of storage and network functions may be
// invisible (LVM, ZFS, Ceph, a raw device). The tenant of a group can reach all functions of the group.
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

// standsAlone refuses a PF that has VFs, and a VF whose PF may be a tenant's, because the tenant of a PF controls its
// VFs.
func (c *candidate) standsAlone() *rule.Verdict {
	depending := c.set.having(hasPFOrVFs, func(f *device.Function) bool { return c.besidesPF(f) != nil })
	if len(depending) == 0 {
		return nil
	}
	return c.besidesPF(depending[0])
}

// besidesPF refuses a PF that has VFs, and a VF whose PF may be a tenant's.
func (c *candidate) besidesPF(f *device.Function) *rule.Verdict {
	if f.PF != nil && f.PF.NumVFs > 0 {
		return c.mate(f, rule.PFBusy,
			fmt.Sprintf("%s is a PF with %s enabled, which binding it to vfio-pci would destroy", f.Address, countVFs(f.PF.NumVFs)), c.withoutVFs(f))
	}
	if f.VF == nil {
		return nil
	}
	if pf, ok := c.node.Snapshot.Function(f.VF.PF); ok && device.IsVFIO(pf.Driver) {
		return c.mate(pf, rule.PFBusy,
			fmt.Sprintf("%s is a VF of %s, which is on %s and may be a tenant's", f.Address, pf.Address, pf.Driver),
			"give the PF back to its driver first")
	}
	return nil
}

// withoutVFs returns the fix for a PF that has VFs. The PF is the claimed device or one of its mates.
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
	// If each function can be reset by itself, none lacks a reset.
	if len(c.set.having(lacksReset, func(f *device.Function) bool { _, ok := c.bestReset(f); return !ok })) == 0 {
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

// cleaning returns resets that cover the functions that the VM can reach. If one of these functions has no usable
// reset, cleaning stops and returns it as lacking.
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
	for _, t := range c.members() {
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

// includesAll reports whether all addresses are in the assignment set.
func (c *candidate) includesAll(set []pci.Address) bool {
	return !slices.ContainsFunc(set, func(a pci.Address) bool { return !c.set.includes(a) })
}

// widest returns the resets without those whose set is part of the set of another reset. Each set has at least one
// function.
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
