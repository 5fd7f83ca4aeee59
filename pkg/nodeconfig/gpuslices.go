package nodeconfig

import (
	"fmt"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/device"
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

// unsliced returns why the config does not permit f as a slice of its GPU, as a phrase; empty if it does, or if f is none.
func (set *rules) unsliced(s *device.Snapshot, f *device.Function) string {
	if f.Type != device.GPUVF || f.VF == nil {
		return ""
	}
	if gpu, ok := s.Function(f.VF.PF); ok {
		for i := range set.slices {
			if set.slices[i].names(gpu) {
				return ""
			}
		}
	}
	return fmt.Sprintf("it is a slice of GPU %s, and no rule of gpuSlices in the node config names that GPU", f.VF.PF)
}

// names reports whether the rule matches a GPU.
func (r *sliceRule) names(gpu *device.Function) bool {
	return among(r.Match.Vendors, gpu.Vendor) && among(r.Match.Devices, gpu.Device) && among(r.Match.Addresses, gpu.Address)
}

// sliceProblems returns the rules that match no GPU of the node.
func (set *rules) sliceProblems(s *device.Snapshot) []rule.Verdict {
	var all []rule.Verdict
	for i := range set.slices {
		r := &set.slices[i]
		hit := false
		for j := range s.Functions {
			f := &s.Functions[j]
			hit = hit || f.Type == device.GPU && r.names(f)
		}
		if !hit {
			all = append(all, problem(
				r.label, "matches no GPU of this node", "correct or remove the rule; kata-vfio-audit devices lists the node's functions",
			))
		}
	}
	return all
}
