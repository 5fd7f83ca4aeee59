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

// resettable settles how every function that the VM can reach is cleaned
// after this tenant.
func (c *candidate) resettable() *Refusal {
	if c.claimed.VFIO.Reset == v1alpha1.ResetSkip {
		return nil
	}
	for _, f := range c.reachable() {
		if slices.ContainsFunc(c.resets, func(r isolation.Reset) bool { return slices.Contains(r.Set, f.Address) }) {
			continue
		}
		r, ok := c.bestReset(f)
		if !ok {
			return c.mate(f, NoReset,
				fmt.Sprintf("%s can't be reset without touching functions outside its group (the kernel offers: %s)", f.Address, orNone(f.ResetMethods)),
				c.known.fix(f, isolation.NoReset)+"; where all users of the device trust each other, a DeviceClass can say `reset: Skip`")
		}
		c.resets = append(c.resets, r)
	}
	c.resets = widest(c.resets)
	return nil
}

// reachable returns the functions that the VM can get at, the device first:
// all of its group, since who has the group's node has every member, and the
// companions that are given.
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

// includesAll reports whether all of the addresses are among what is taken.
func (c *candidate) includesAll(set []pci.Address) bool {
	return !slices.ContainsFunc(set, func(a pci.Address) bool {
		return !slices.ContainsFunc(c.all, func(t member) bool { return t.f.Address == a })
	})
}

// widest drops resets whose set lies within another's.
func widest(resets []isolation.Reset) []isolation.Reset {
	return slices.DeleteFunc(slices.Clone(resets), func(r isolation.Reset) bool {
		return slices.ContainsFunc(resets, func(o isolation.Reset) bool {
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
