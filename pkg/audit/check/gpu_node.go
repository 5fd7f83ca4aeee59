package check

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/facts"
	"github.com/kata-vfio/kata-vfio/pkg/audit/facts/runtimes"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
)

// gpuNodeChecks are about what the node itself does with GPUs.
func gpuNodeChecks() []Check {
	return []Check{
		{Rule: finding.Rule{
			ID: "GPU-012", Title: "GPUs of one model have BARs of one size", Severity: isolation.Info, Cheap: true,
			Why:     "a BAR that was resized on one GPU is not what the others' guests were tried with: it may not fit into a VM, or not survive a reset",
			Fix:     "set Resizable BAR alike in the firmware setup for all slots, or write the common size to the GPU's resource<N>_resize while it has no driver",
			Verify:  "head -6 /sys/bus/pci/devices/<address>/resource; cat /sys/bus/pci/devices/<address>/resource*_resize",
			Sources: []string{"Linux: Documentation/ABI/testing/sysfs-bus-pci resource<N>_resize"},
		}, Judge: sameBARs},
		{Rule: finding.Rule{
			ID: "GPU-013", Title: "No daemon of the node waits for GPUs that are given away", Severity: isolation.Low,
			Why: "NVIDIA's daemons open every GPU that comes to the node's driver: between two tenants they have it, and keep it from going to the next " +
				"(who held one earlier the kernel does not keep)",
			Fix:     "`systemctl disable --now nvidia-persistenced nvidia-dcgm`, or the DaemonSets that run them, on nodes whose GPUs are all given away",
			Verify:  "pgrep -a nvidia-persiste; pgrep -a nv-hostengine; ls -l /sys/bus/pci/drivers/nvidia",
			Sources: []string{"NVIDIA: nvidia-persistenced(1)", "NVIDIA: DCGM user guide"},
		}, Judge: noGPUDaemons},
	}
}

// sameBARs compares GPUs of the same vendor, device and subsystem.
func sameBARs(n *facts.Node) []finding.Finding {
	models := map[string][]*device.Function{}
	for _, f := range assignableGPUs(n) {
		if f.VF == nil && !f.ConfigDead {
			model := fmt.Sprintf("%s:%s %s:%s", f.Vendor, f.Device, f.SubVendor, f.SubDevice)
			models[model] = append(models[model], f)
		}
	}
	var found []finding.Finding
	var seen []facts.Fact
	looked := 0
	for _, model := range slices.Sorted(maps.Keys(models)) {
		several := models[model]
		if len(several) < 2 {
			continue
		}
		looked += len(several)
		sizes := map[string][]*device.Function{}
		for _, f := range several {
			sizes[barSizes(f)] = append(sizes[barSizes(f)], f)
			seen = append(seen, attribute(f.Address, "resource", barSizes(f)))
		}
		found = append(found, oddSizes(sizes)...)
	}
	return orPassWith(found, looked, "GPU", "no two GPUs of one model are given away", seen)
}

// oddSizes names the GPUs that are not as most of their model are.
func oddSizes(sizes map[string][]*device.Function) []finding.Finding {
	most := ""
	for _, size := range slices.Sorted(maps.Keys(sizes)) {
		if most == "" || len(sizes[size]) > len(sizes[most]) {
			most = size
		}
	}
	var found []finding.Finding
	for _, size := range slices.Sorted(maps.Keys(sizes)) {
		for _, f := range sizes[size] {
			if size != most {
				other := sizes[most][0]
				text := fmt.Sprintf("%s has BARs of %s, and %s of the same model of %s", f.Address, size, other.Address, most)
				found = append(found, about(f, fail(text, attribute(f.Address, "resource", size), attribute(other.Address, "resource", most)))...)
			}
		}
	}
	return found
}

// barSizes returns them in words: "BAR 0 16 MiB, BAR 1 64 GiB".
func barSizes(f *device.Function) string {
	var words []string
	for _, bar := range f.BARs {
		words = append(words, fmt.Sprintf("BAR %d %s", bar.Index, mebibytes(bar.Size)))
	}
	return orElse(strings.Join(words, ", "), "none")
}

func mebibytes(size uint64) string {
	if size < 1<<20 {
		return fmt.Sprintf("%d KiB", size>>10)
	}
	return fmt.Sprintf("%d MiB", size>>20)
}

// noGPUDaemons is for nodes that have no NVIDIA GPU for themselves: on others the
// daemons have a use.
func noGPUDaemons(n *facts.Node) []finding.Finding {
	var given, own []*device.Function
	for _, f := range n.Functions(device.GPU) {
		switch {
		case f.Vendor != vendorNVIDIA:
		case device.IsVFIO(f.Driver):
			given = append(given, f)
		case f.Driver == "nvidia":
			own = append(own, f)
		}
	}
	daemons := runtimes.GPUDaemons(n)
	drivers := facts.Fact{Path: "/sys/bus/pci/drivers/nvidia", Value: strings.Join(addressesOf(own), " "), How: "list"}
	switch {
	case len(given) == 0:
		return notApplicable("no NVIDIA GPU is on VFIO")
	case len(daemons) > 0 && len(own) == 0:
		text := fmt.Sprintf("%s of NVIDIA's for GPUs of the node runs, and all of its GPUs are with VFIO", count(len(daemons), "daemon"))
		return concerning(gpuAddresses(given), fail(text, append(daemons, drivers)...))
	case len(daemons) > 0:
		return pass("the node has GPUs of its own for its daemons", append(daemons, drivers)...)
	}
	return pass("no such daemon runs", facts.Fact{Path: "/proc", Value: "neither nvidia-persistenced nor nv-hostengine", How: "process"}, drivers)
}

func addressesOf(functions []*device.Function) []string {
	var all []string
	for _, f := range functions {
		all = append(all, f.Address.String())
	}
	return all
}
