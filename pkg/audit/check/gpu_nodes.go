package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/facts"
	"github.com/kata-vfio/kata-vfio/pkg/audit/facts/runtimes"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// gpuInContainerChecks are about what containers get of a GPU that their VM has.
func gpuInContainerChecks() []Check {
	return []Check{
		{Rule: finding.Rule{
			ID: "GPU-015", Title: "Containers get the device nodes of the GPUs that tenants can get", Severity: isolation.Low,
			Why: "a container gets the device nodes of a GPU from a CDI specification in its guest. Kata's Go runtime asks for one for NVIDIA's VGA and 3D controllers only, " +
				"the Rust runtime for those of NVIDIA, AMD and Intel: with any other GPU the VM has the device, the pod runs, and its container lacks the nodes",
			Fix: "have the guest write a CDI specification to /var/run/cdi, set `visible_cdi_devices = true` in Kata's section [agent.kata], and name the devices " +
				"in the container's environment (`VISIBLE_CDI_DEVICES=amd.com/gpu=0`). runtimeclass/README.md, \"GPUs by vendor\", has an example",
			Verify: "lspci -nn | grep -E '\\[(03|12)[0-9a-f]{2}\\]'; grep -r visible_cdi_devices /opt/kata/share/defaults/kata-containers/kata-gpu",
			Sources: []string{
				"Kata 4.1: src/runtime/virtcontainers/container.go cdiDeviceKind", "Kata 4.1: src/runtime-rs/crates/resource/src/cdi_devices/mod.rs CDI_DEVICE_KIND_TABLE",
				"Kata 4.1: src/agent/src/device/mod.rs cdi_devices_from_visible_devices, handle_cdi_devices",
			},
		}, Judge: gpuNodesInContainers},
	}
}

func gpuNodesInContainers(n *facts.Node) []finding.Finding {
	gpus := assignableDisplays(n)
	if len(gpus) == 0 {
		return notApplicable("tenants can get no GPU of this node")
	}
	return eachHandler(n, func(h *runtimes.Handler) ([]finding.Finding, bool) {
		k := runtimes.KataOf(n, h)
		switch {
		case !runtimes.TakesDevices(n, h, k):
			return nil, false
		case !k.OK():
			return ofHandler(h, unknown("Kata's configuration", k.Damaged...)), true
		}
		return ofHandler(h, nodesInContainers(h, k, gpus)), true
	})
}

// nodesInContainers looks for GPUs of which the runtime tells the guest's agent nothing. With vfio_mode "vfio" a container
// gets a VFIO node of the guest, and with visible_cdi_devices the pod names what the agent looks for.
func nodesInContainers(h *runtimes.Handler, k *runtimes.Kata, gpus []*device.Function) []finding.Finding {
	mode, visible := k.Runtime("vfio_mode"), k.Agent("visible_cdi_devices")
	if mode.Text() == "vfio" || visible.On() {
		return pass("", says(mode, visible)...)
	}
	var lacking []pci.Address
	var words []string
	seen := says(visible)
	for _, f := range gpus {
		if h.GuestKind(f) != "" {
			continue
		}
		lacking = append(lacking, f.Address)
		words = append(words, fmt.Sprintf("%s (vendor %s, class %s)", f.Address, f.Vendor, f.Class))
		seen = append(seen, attribute(f.Address, "vendor", "0x"+f.Vendor.String()), attribute(f.Address, "class", "0x"+f.Class.String()))
	}
	if len(lacking) == 0 {
		return pass("", seen...)
	}
	text := fmt.Sprintf("containers get no device node of %s: Kata asks the guest for none, and visible_cdi_devices is off", strings.Join(words, ", "))
	return concerning(lacking, fail(text, append(h.Facts(), seen...)...))
}

// assignableDisplays are the GPUs and other accelerators that tenants have or can get, virtual ones too, but for the node's own
// console, of which the plugin gives away no more than what it publishes.
func assignableDisplays(n *facts.Node) []*device.Function {
	return slices.DeleteFunc(assignable(n), func(f *device.Function) bool {
		base := f.Class.Base()
		return base != pci.BaseDisplay && base != pci.BaseAccelerator || f.BootVGA && !n.IsPublished(f.Address)
	})
}
