package host

import (
	"fmt"
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/blueprint"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/nodeconfig"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// KeptFunction is a function that vendor drivers must not bind.
type KeptFunction struct {
	Address pci.Address
	// match is the match that selects it: 1 for the first. It is 0 if vfio.keepOff names the address.
	match int
}

// named reports whether vfio.keepOff names the address. If the node needs a named function, the blueprint is wrong.
func (k KeptFunction) named() bool { return k.match == 0 }

// by returns the field that has the function, and its verb.
func (k KeptFunction) by() string {
	if k.named() {
		return "vfio.keepOff names"
	}
	return fmt.Sprintf("vfio.keepOffMatching[%d] matches", k.match-1)
}

// without returns what to do if the node is to keep the function.
func (k KeptFunction) without() string {
	if k.named() {
		return fmt.Sprintf("remove %s from vfio.keepOff", k.Address)
	}
	return fmt.Sprintf("bootstrap leaves it to the node: narrow vfio.keepOffMatching[%d] to be rid of this line", k.match-1)
}

// Kept returns the functions that vfio.keepOff names, whether the node has them or not, and then the functions of the node that
// vfio.keepOffMatching selects by the rules of package nodeconfig. A match does not select VFs, which appear after boot, PFs of
// virtualFunctions, which need their drivers, or drives behind Intel VMD.
func Kept(b *blueprint.Blueprint, s *device.Snapshot) []KeptFunction {
	var all []KeptFunction
	for _, a := range b.VFIO.KeepOff {
		all = append(all, KeptFunction{Address: a})
	}
	unused := &device.Snapshot{Functions: slices.Clone(s.Functions)}
	for i := range unused.Functions {
		unused.Functions[i].Uses = nil // what the node uses is reported later
	}
	for i := range b.VFIO.KeepOffMatching {
		match := v1alpha1.DeviceRule{Match: b.VFIO.KeepOffMatching[i]}
		selection := nodeconfig.Select(&v1alpha1.NodeConfig{Devices: []v1alpha1.DeviceRule{match}}, unused)
		for j := range s.Functions {
			f := &s.Functions[j]
			choice := selection.Choice(f.Address)
			selected := choice.Ours || choice.Forbidden && choice.Rule != ""
			if selected && f.VF == nil && !isolation.BehindVMD(f.Address) && !hasVFs(b, f) && !has(all, f.Address) {
				all = append(all, KeptFunction{f.Address, i + 1})
			}
		}
	}
	return all
}

func has(all []KeptFunction, a pci.Address) bool {
	return slices.ContainsFunc(all, func(k KeptFunction) bool { return k.Address == a })
}

// hasVFs reports whether the blueprint's virtualFunctions name a function, by its address or interface.
func hasVFs(b *blueprint.Blueprint, f *device.Function) bool {
	return slices.ContainsFunc(b.VirtualFunctions, func(r v1alpha1.VFRule) bool {
		return r.PF == f.Address.String() || slices.Contains(f.Children.Net, r.PF)
	})
}

// Unmatched returns the problem of a blueprint with matches for a tree without functions, or nil if the blueprint has no
// matches.
func Unmatched(b *blueprint.Blueprint) []state.Problem {
	if len(b.VFIO.KeepOffMatching) == 0 {
		return nil
	}
	return []state.Problem{{
		Part: udevPart, Code: rule.Absent, Text: "vfio.keepOffMatching selects among a node's functions, and an image has none: no driver is kept off them",
		Fix: "run `kata-vfio-bootstrap apply` on the node, too, or name addresses in vfio.keepOff",
	}}
}
