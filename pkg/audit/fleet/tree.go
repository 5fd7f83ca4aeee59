package fleet

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
	"github.com/kata-vfio/kata-vfio/pkg/device"
)

// Tree draws a node's published devices by where they are: root, switch, PF, device, and the claim of each.
func Tree(node string, devices []Device) output.Branch {
	tree := output.Branch{Text: node + ": " + sum(devices)}
	below := gather(devices, func(d *Device) string { return d.Root })
	slices.SortStableFunc(below, func(a, b family) int {
		// Domains above ffff, which Intel's VMD has (drivers/pci/controller/vmd.c), have longer names. Shorter ones are lower numbers.
		return cmp.Or(device.CompareNUMA(a.members[0].NUMA, b.members[0].NUMA), cmp.Compare(len(a.key), len(b.key)), cmp.Compare(a.key, b.key))
	})
	for _, root := range below {
		branch := output.Branch{Text: device.RootLine(cmp.Or(root.key, "root unknown"), root.members[0].NUMA)}
		branch.Below = switches(root.members)
		tree.Below = append(tree.Below, branch)
	}
	return tree
}

// switches returns a branch for each switch with the devices below it, and the other devices without one. A
// device whose switch is its root port has no neighbors there.
func switches(devices []Device) []output.Branch {
	var branches []output.Branch
	for _, s := range gather(devices, func(d *Device) string { return d.Switch }) {
		if s.key == "" || distinct(s.members) < 2 {
			branches = append(branches, families(s.members)...)
			continue
		}
		branches = append(branches, output.Branch{Text: "below " + s.key, Below: families(s.members)})
	}
	return branches
}

// distinct counts the functions that are connected to a port themselves. VFs are not, because they belong to their PF.
func distinct(devices []Device) int {
	seen := map[string]bool{}
	for i := range devices {
		seen[physical(&devices[i])] = true
	}
	return len(seen)
}

func physical(d *Device) string {
	if d.isVF() {
		return d.PF
	}
	return d.Address
}

// isVF reports whether the device is a VF. A pair also has PF set, to the PF of its VF, but it has VF set, too.
func (d *Device) isVF() bool { return d.PF != "" && d.VF == "" }

// families returns a branch for each device, VFs below their PF, whether that is
// published or not, and pairs below their GPU.
func families(devices []Device) []output.Branch {
	var branches []output.Branch
	for _, f := range gather(devices, physical) {
		var top *output.Branch
		var below []output.Branch
		for i := range f.members {
			d := &f.members[i]
			branch := output.Branch{Text: leaf(d), Color: d.Color()}
			if top == nil && !d.isVF() && d.VF == "" {
				top = &branch
				continue
			}
			below = append(below, branch)
		}
		switch {
		case top != nil:
			top.Below = below
			branches = append(branches, *top)
		case f.members[0].isVF():
			branches = append(branches, output.Branch{Text: "PF " + f.key + ": " + sum(f.members), Below: below})
		default:
			branches = append(branches, below...)
		}
	}
	return branches
}

// leaf is a device's line.
func leaf(d *Device) string {
	text := d.mark() + " " + d.Name
	if d.Model != "" {
		text += "  " + d.Model
	}
	text += "  " + d.State()
	if d.Isolated == nil || !*d.Isolated {
		text += "  isolated: " + d.Isolation()
	}
	return text
}

// mark returns a device's state as one character, so that color is never the only sign.
func (d *Device) mark() string {
	switch {
	case d.isFaulty():
		return "✗"
	case d.Use == Claimed:
		return "●"
	case d.Use == Free:
		return "○"
	case d.Use == Withheld, d.Use == Sanitizing, d.Use == Kept:
		return "◌"
	}
	return "?"
}

// Color is a device's state as a color.
func (d *Device) Color() output.Color {
	switch {
	case d.isFaulty():
		return output.Red
	case d.Use == Claimed:
		return output.Green
	case d.Use == Free:
		return ""
	}
	return output.Faint
}

// sum counts devices by their use: "8 devices, 3 claimed, 5 free".
func sum(devices []Device) string {
	count := map[Use]int{}
	for i := range devices {
		count[devices[i].Use]++
	}
	parts := []string{output.Count(len(devices), "device")}
	for _, use := range []Use{Claimed, Free, Withheld, Sanitizing, Kept, Tainted, Quarantined, Unseen} {
		if count[use] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", count[use], use))
		}
	}
	return strings.Join(parts, ", ")
}

// family is devices with something in common.
type family struct {
	key     string
	members []Device
}

// gather puts devices of one key together, in the order of their first ones.
func gather(devices []Device, key func(*Device) string) []family {
	var all []family
	index := map[string]int{}
	for i := range devices {
		k := key(&devices[i])
		at, ok := index[k]
		if !ok {
			at = len(all)
			index[k] = at
			all = append(all, family{key: k})
		}
		all[at].members = append(all[at].members, devices[i])
	}
	return all
}
