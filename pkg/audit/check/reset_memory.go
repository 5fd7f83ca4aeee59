package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/facts"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
)

func busResetGPUs(n *facts.Node) []finding.Finding {
	return judgeRecords(n, "how GPUs are reset", func(rec *journal.Record) []finding.Finding {
		var found []finding.Finding
		for i := range rec.Plan.Devices {
			d := &rec.Plan.Devices[i]
			fn, ok := rec.Plan.Function(d.Address)
			if !ok || !isLateNVIDIA(fn) || resetsBus(d) {
				continue
			}
			f := fail(fmt.Sprintf("%s of %s is reset by %s", d.Address, claimName(rec), methodsOf(d)), recordFact(rec, methodsOf(d)))
			found = append(found, onFunction(d.Address, f)...)
		}
		return found
	})
}

func resetsBus(d *plan.Device) bool {
	return slices.ContainsFunc(d.Resets, func(r isolation.Reset) bool {
		return slices.Contains(r.Set, d.Address) && (r.Method == isolation.Bus || r.Method == isolation.HotReset)
	})
}

func methodsOf(d *plan.Device) string {
	var methods []string
	for _, r := range d.Resets {
		methods = append(methods, r.Method)
	}
	return orElse(strings.Join(methods, " "), "nothing: its class waives that")
}

// isLateNVIDIA reports whether a function is a data center GPU of Hopper or
// Blackwell, by the ranges of ids in pci.ids: GH100 23xx, GB100 29xx, GB110 31xx.
func isLateNVIDIA(fn *plan.Function) bool {
	chip := fn.Device >> 8
	return fn.Vendor == 0x10de && (chip == 0x23 || chip == 0x29 || chip == 0x31) && fn.PF == nil
}

func gpuMemory(n *facts.Node) []finding.Finding {
	return byHand(n, device.GPU, "whether GPUs' memory is cleared is in no file: ask who runs the node for the step that does it, and for its log")
}

func drives(n *facts.Node) []finding.Finding {
	return byHand(n, device.NVMe, "whether drives are sanitized is in no file: ask who runs the node for the step that does it, and for its log")
}

// byHand is for what a person has to look at where such functions are given away.
func byHand(n *facts.Node, kind device.Type, what string) []finding.Finding {
	var devices []pci.Address
	for _, f := range assignable(n) {
		if f.Type == kind {
			devices = append(devices, f.Address)
		}
	}
	if len(devices) == 0 {
		return notApplicable("none is given away")
	}
	return []finding.Finding{{State: finding.Manual, Text: what, Devices: devices}}
}
