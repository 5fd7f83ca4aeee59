package nodeconfig

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// sliceRule is one rule that permits slices of GPUs.
type sliceRule struct {
	*v1alpha1.GPUSliceRule
	label string
}

func newSliceRules(cfg *v1alpha1.NodeConfig) []sliceRule {
	if cfg == nil {
		return nil
	}
	all := make([]sliceRule, len(cfg.GPUSlices))
	for i := range cfg.GPUSlices {
		all[i] = sliceRule{GPUSliceRule: &cfg.GPUSlices[i], label: "gpuSlices " + label(i, cfg.GPUSlices[i].Name)}
	}
	return all
}

// sliced returns the rule that permits f as a slice of its GPU, or the reason why no rule does, as a phrase. Both are empty if f is not a
// slice.
func (set *rules) sliced(s *device.Snapshot, f *device.Function) (permits *v1alpha1.GPUSliceRule, why string) {
	if f.Type != device.GPUVF || f.VF == nil {
		return nil, ""
	}
	gpu, ok := s.Function(f.VF.PF)
	i := slices.IndexFunc(set.slices, func(r sliceRule) bool { return ok && r.names(gpu) })
	if i < 0 {
		return nil, fmt.Sprintf("it is a slice of GPU %s, and no rule of gpuSlices in the node config names that GPU", f.VF.PF)
	}
	// gpu is not nil here: without the PF in the snapshot, no rule matches.
	permits = set.slices[i].GPUSliceRule
	if n := permits.NVIDIA; n != nil && gpu.Vendor == pci.VendorNVIDIA && f.VF.Index >= n.Instances {
		return nil, fmt.Sprintf("it is VF %d of GPU %s, which has %d vGPUs of type %q only (nvidia.instances in %s)",
			f.VF.Index, f.VF.PF, n.Instances, n.VGPUType, set.slices[i].label)
	}
	return permits, ""
}

// describeSlice adds the slice's profile and memory. The profile comes from the slice's rule, or else from what the GPU's driver reports for
// all slices of the GPU. The memory comes from the rule alone.
func (c *Choice) describeSlice(s *device.Snapshot, f *device.Function) {
	if c.Slice != nil {
		c.Profile, c.Memory = cmp.Or(c.Slice.Profile(f.Vendor), s.Partition(f)), c.Slice.Memory(f.Vendor)
	}
}

// names reports whether the rule matches a GPU.
func (r *sliceRule) names(gpu *device.Function) bool {
	return among(r.Match.Vendors, gpu.Vendor) && among(r.Match.Devices, gpu.Device) && among(r.Match.Addresses, gpu.Address)
}

// sliceProblems returns a problem for each rule that matches no GPU of the node, or that has settings for a vendor of which it matches no
// GPU. Such settings have no effect.
func (set *rules) sliceProblems(s *device.Snapshot) []rule.Verdict {
	var all []rule.Verdict
	for i := range set.slices {
		r := &set.slices[i]
		vendors := map[pci.ID]bool{}
		for j := range s.Functions {
			if f := &s.Functions[j]; f.Type == device.GPU && r.names(f) {
				vendors[f.Vendor] = true
			}
		}
		what := ""
		switch {
		case len(vendors) == 0:
			what = "matches no GPU of this node"
		case r.NVIDIA != nil && !vendors[pci.VendorNVIDIA]:
			what = "has nvidia, and matches no GPU of NVIDIA"
		case r.AMD != nil && !vendors[pci.VendorAMD]:
			what = "has amd, and matches no GPU of AMD"
		case r.Intel != nil && !vendors[pci.VendorIntel]:
			what = "has intel, and matches no GPU of Intel"
		}
		if what != "" {
			all = append(all, problem(r.label, what, "correct or remove the rule; kata-vfio-audit devices lists the node's functions"))
		}
	}
	return all
}
