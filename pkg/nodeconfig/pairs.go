package nodeconfig

import (
	"fmt"
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// Pairs returns the pairs of a GPU and a VF that the config asks for, by the GPUs' addresses. kata-vfio may take both functions of a pair.
// Which VF belongs to a GPU depends only on the hardware and the number of VFs, so it stays the same whatever is in use. The pointers are
// into the snapshot: don't change the functions.
func (sel *Selection) Pairs() []device.Pair { return sel.pairs }

// pairing assigns VFs to GPUs.
type pairing struct {
	s    *device.Snapshot
	sel  *Selection
	nics []*device.Function
	// kept is how many VFs of a NIC belong to GPUs. These are the NIC's last VFs, since schedulers take the first ones.
	kept map[pci.Address]int
}

// pair finds the selection's pairs. First each GPU looks for a VF at its own switch. If the config allows it, GPUs that found none then
// look under their root.
func (sel *Selection) pair(policy v1alpha1.Pairing, s *device.Snapshot) {
	if policy == "" || policy == v1alpha1.PairingNone {
		return
	}
	p := pairing{s: s, sel: sel, kept: map[pci.Address]int{}}
	var gpus []*device.Function
	for i := range s.Functions {
		switch f := &s.Functions[i]; {
		case f.Type == device.GPU:
			gpus = append(gpus, f)
		case p.serves(f):
			p.nics = append(p.nics, f)
		}
	}
	left := p.around(gpus, device.SameSwitch)
	if policy == v1alpha1.PairingRoot {
		p.around(left, device.SameRoot)
	}
	slices.SortFunc(sel.pairs, func(a, b device.Pair) int { return a.GPU.Address.Compare(b.GPU.Address) })
	for _, gpu := range gpus {
		paired := slices.ContainsFunc(sel.pairs, func(p device.Pair) bool { return p.GPU == gpu })
		if sel.isPaired(gpu) && !paired {
			sel.problems = append(sel.problems, unpaired(gpu, policy))
		}
	}
}

// serves reports whether f is a NIC with VFs that are ours.
func (p *pairing) serves(f *device.Function) bool {
	return f.PF != nil && f.Class.Base() == pci.BaseNetwork &&
		slices.ContainsFunc(f.PF.VFs, func(vf pci.Address) bool { return p.sel.Choice(vf).Ours })
}

// around pairs each GPU with a VF that is at least as near as most, and returns the GPUs without such a VF.
func (p *pairing) around(gpus []*device.Function, most device.Nearness) []*device.Function {
	var left []*device.Function
	for _, gpu := range gpus {
		// A VF is kept even for a GPU that gets no pair: a rule for one GPU must not change the VFs of the others.
		vf := p.keep(gpu, most)
		if vf == nil {
			left = append(left, gpu)
			continue
		}
		if p.sel.isPaired(gpu) && p.sel.Choice(vf.Address).Ours {
			p.sel.pairs = append(p.sel.pairs, device.Pair{GPU: gpu, VF: vf})
		}
	}
	return left
}

// isPaired reports whether a GPU is to have a VF. A shared GPU is not, because its VF could not go to the other driver's containers.
func (sel *Selection) isPaired(gpu *device.Function) bool {
	choice := sel.Choice(gpu.Address)
	return choice.Ours && choice.SharedWith == ""
}

// keep returns the next VF of the NIC that serves the fewest GPUs of those near
// enough; nil if there is none.
func (p *pairing) keep(gpu *device.Function, most device.Nearness) *device.Function {
	var best *device.Function
	for _, nic := range p.nics {
		near := device.Near(gpu, nic) <= most && p.kept[nic.Address] < len(nic.PF.VFs)
		if near && (best == nil || p.kept[nic.Address] < p.kept[best.Address]) {
			best = nic
		}
	}
	if best == nil {
		return nil
	}
	// The VF counts as used even if it can't be in a pair, so that its state does not change the pairs of other GPUs.
	p.kept[best.Address]++
	vf, ok := p.s.Function(best.PF.VFs[len(best.PF.VFs)-p.kept[best.Address]])
	if !ok || !alone(p.s, vf) {
		return nil
	}
	return vf
}

// alone reports whether f is the only function of its group. Other functions of the VF's group would go with it, and the GPU's pool can't
// account for them.
func alone(s *device.Snapshot, f *device.Function) bool {
	g, ok := s.GroupWith(f)
	return ok && len(g.Members) == 1 && len(g.Others) == 0
}

func unpaired(gpu *device.Function, policy v1alpha1.Pairing) rule.Verdict {
	where := "at its PCIe switch"
	if policy == v1alpha1.PairingRoot {
		where = "under its PCIe root"
	}
	return problem(
		"pairing",
		fmt.Sprintf("finds no VF for GPU %s: no VF %s belongs to kata-vfio, is alone in its IOMMU group, and is not paired with another GPU", gpu.Address, where),
		"give its NIC more VFs (virtualFunctions), or let a rule take them; kata-vfio-audit devices -o wide shows which NIC is near",
	)
}
