package nodeconfig

import (
	"fmt"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// Pool returns the name of the pool in which the node with the name publishes the function at addr: the pool of the layout, or that of
// shared devices.
func (sel *Selection) Pool(l *device.Layout, node string, addr pci.Address) string {
	if sel.Choice(addr).SharedWith != "" {
		return device.SharedPool(node)
	}
	return l.Pool(node, addr)
}

// separate withdraws the GPUs that can't be shared. The other driver publishes each GPU by itself, and a claim for kata-vfio's device also
// takes the functions that are assigned with the GPU. So no other claim, of either driver, may be able to get any of these functions.
func (sel *Selection) separate(set *rules, s *device.Snapshot) {
	// Two passes are needed: unshareable asks whether other functions are selected, and the answer must not depend on which GPUs were
	// withdrawn before.
	left := map[int]string{}
	for i := range sel.choices {
		if sel.choices[i].SharedWith == "" {
			continue
		}
		if why := sel.unshareable(s, &sel.functions[i]); why != "" {
			left[i] = why
		}
	}
	for i, why := range left {
		choice := &sel.choices[i]
		choice.Ours, choice.Policy, choice.SharedWith = false, "", ""
		choice.Why = "it can't be shared: " + why
	}
	for i := range sel.functions { // in their order
		if why, ok := left[i]; ok {
			r := set.named(sel.choices[i].Rule)
			r.unshareable = append(r.unshareable, refusal{sel.functions[i].Address, why})
		}
	}
}

// unshareable returns why a GPU can't be shared, as a phrase; empty if it can.
func (sel *Selection) unshareable(s *device.Snapshot, gpu *device.Function) string {
	for _, mate := range assignedWith(s, gpu) {
		switch {
		case mate.Type == device.GPU:
			return fmt.Sprintf("GPU %s is in its IOMMU group", mate.Address)
		case sel.Choice(mate.Address).Ours:
			return fmt.Sprintf("%s is assigned with it, and %s publishes that by itself", mate.Address, sel.Choice(mate.Address).Rule)
		}
	}
	return ""
}

// assignedWith returns the other functions that go to a VM with a GPU: those of its IOMMU group, and its companions.
func assignedWith(s *device.Snapshot, gpu *device.Function) []*device.Function {
	all := s.Companions(gpu)
	g, ok := s.GroupWith(gpu)
	if !ok {
		return all
	}
	for _, a := range g.Members {
		if f, ok := s.Function(a); ok && a != gpu.Address && !f.IsBridge() {
			all = append(all, f)
		}
	}
	return all
}

// named returns the rule with the label.
func (set *rules) named(label string) *deviceRule {
	for i := range set.list {
		if set.list[i].label == label {
			return &set.list[i]
		}
	}
	return nil
}
