package check

import (
	"fmt"
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
)

// sliceChecks are about the shares of a GPU that tenants with slices of it leave to each other.
func sliceChecks() []Check { return []Check{{ID: "GPU-022", Judge: boundedSlices}} }

// heldSlice is a VF of an Intel GPU that a claim has.
type heldSlice struct {
	f *device.Function
	// fn is the VF in the claim's record, whose name is claim.
	fn    *plan.Function
	claim string
}

// boundedSlices compares the time limits of slices with the limits that their prepared claims set. Other VFs have no limits, and need none.
func boundedSlices(n *facts.Node) Answer {
	held := heldSlices(n)
	found := over(held, func(s heldSlice) Answer {
		return over(timeBounds(), func(name string) Answer { return s.unbounded(n, name) }).on(s.f)
	})
	return conclude(found, held, "claimed slice", "no claim has a slice of a GPU on driver xe", func(s heldSlice) []facts.Fact {
		var seen []facts.Fact
		for _, name := range timeBounds() {
			seen = append(seen, s.read(n, name))
		}
		return seen
	})
}

func timeBounds() []string { return []string{plan.XeExecQuantum, plan.XePreemptTimeout} }

func heldSlices(n *facts.Node) []heldSlice {
	var all []heldSlice
	for _, f := range n.Functions(device.GPUVF) {
		if f.VF == nil || f.Vendor != pci.VendorIntel {
			continue
		}
		if pf, ok := n.Snapshot.Function(f.VF.PF); !ok || pf.Driver != "xe" {
			continue // other drivers have no such limits, and the plugin refuses their VFs
		}
		for _, t := range n.TenanciesAt(f.Address) {
			if fn, ok := t.Record.Plan.Function(f.Address); ok && isPrepared(n, t.Record) {
				all = append(all, heldSlice{f: f, fn: fn, claim: t.Claim()})
			}
		}
	}
	return all
}

// read reads a bound of the VF. xe counts its VFs from 1.
func (s *heldSlice) read(n *facts.Node, name string) facts.Fact {
	return n.Read(fmt.Sprintf("sys/bus/pci/devices/%s/sriov_admin/vf%d/profile/%s", s.f.VF.PF, s.f.VF.Index+1, name))
}

// unbounded fails for a slice that lacks one of the limits, or has another value than its claim set.
func (s *heldSlice) unbounded(n *facts.Node, name string) Answer {
	seen := s.read(n, name)
	i := slices.IndexFunc(s.fn.Settings, func(set plan.Setting) bool { return set.Provider == plan.ProviderXe && set.Name == name })
	switch {
	case !seen.Known():
		return unknown(name+" of "+s.f.Address.String(), seen)
	case !seen.OK() || seen.Value == "0":
		return fail(fmt.Sprintf("nothing bounds how long claim %s has GPU %s with its slice %s: %s is unlimited", s.claim, s.f.VF.PF, s.f.Address, name), seen)
	case i >= 0 && !s.fn.Settings[i].IsWanted(seen.Value):
		set := &s.fn.Settings[i]
		return fail(fmt.Sprintf("%s of %s is %s, and claim %s set %s: somebody has changed it", name, s.f.Address, seen.Value, s.claim, set.Want), seen)
	}
	return nil
}
