package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/facts"
	"github.com/kata-vfio/kata-vfio/pkg/audit/facts/runtimes"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
)

// runtimeHandlerChecks are about containerd's and CRI-O's handlers.
func runtimeHandlerChecks() []Check {
	return []Check{
		{Rule: finding.Rule{
			ID: "RT-002", Title: "Pods' annotations don't configure Kata", Severity: isolation.Medium,
			Why: "annotations of the runtime and the agent are gated by nothing in Kata: a pod that may set them changes vfio_mode, " +
				"loads kernel modules in its guest or replaces the agent's policy",
			Fix: "`pod_annotations = []` for the handler, or the exact keys that are needed, never a pattern; then restart the container " +
				"runtime. CRI-O has no such setting: refuse `io.katacontainers.*` at admission",
			Verify:  "containerd config dump | grep -A12 'runtimes.kata'",
			Sources: []string{"Kata 4.1: pkg/oci/utils.go checkAnnotationNameIsValid (only hypervisor annotations are gated)", "containerd 2.4: internal/cri/util GetPassthroughAnnotations"},
		}, Judge: ofHandlers(kataAnnotations)},
		{Rule: finding.Rule{
			ID: "RT-003", Title: "Pods' annotations don't name CDI devices", Severity: isolation.Critical,
			Why: "Kata's Go runtime believes `cdi.k8s.io/*` annotations of a pod when its pod-resources socket is missing: a tenant " +
				"then has any CDI device of the node plugged into its VM",
			Fix: "take patterns that match `cdi.k8s.io/` out of `pod_annotations` and `container_annotations` of the handler, set " +
				"`sandboxer = \"podsandbox\"`, and restart containerd. CRI-O has no such setting: use Kata's Rust runtime, and refuse such annotations at admission",
			Verify:  "containerd config dump | grep -A12 'runtimes.kata'",
			Sources: []string{"Kata 4.1: pkg/containerd-shim-v2/device_cold_plug.go coldPlugDevices", "containerd 2.4: internal/cri/util GetPassthroughAnnotations"},
		}, Judge: ofHandlers(cdiAnnotations)},
		{Rule: finding.Rule{
			ID: "RT-005", Title: "Privileged pods don't get the node's devices", Severity: isolation.High,
			Why: "a privileged pod otherwise lists all device nodes of the node, all of /dev/vfio included, and Kata plugs what it finds " +
				"there into the pod's VM",
			Fix:     "`privileged_without_host_devices = true` for the handler, and no `privileged_without_host_devices_all_devices_allowed`",
			Verify:  "containerd config dump | grep -A12 'runtimes.kata' | grep privileged",
			Sources: []string{"containerd 2.4: internal/cri/config Runtime.PrivilegedWithoutHostDevices", "kata-deploy sets it"},
		}, Judge: ofHandlers(privileged)},
		{Rule: finding.Rule{
			ID: "RT-025", Title: "Handlers that are named for Kata run Kata", Severity: isolation.Critical,
			Why:    "policies trust a handler's name: one that is called kata-gpu and runs runc gives a tenant's containers the node's kernel, and devices without a VM",
			Fix:    "set the handler's `runtime_type` to `io.containerd.kata-<name>.v2` and `runtime_path` to Kata's shim, or give it a name without kata",
			Verify: "containerd config dump | grep -A12 'runtimes.kata' | grep -E 'runtime_type|runtime_path'",
		}, Judge: namedForKata},
	}
}

// cdiAnnotations looks at what lets a pod choose devices. The Rust runtime takes no
// annotation for an answer, and without cold plug the Go runtime asks for none.
func cdiAnnotations(_ *facts.Node, h *runtimes.Handler, k *runtimes.Kata) (string, []facts.Fact) {
	by, passes := h.Passes("cdi.k8s.io/")
	switch {
	case !passes:
		return "", says(h.PodAnnotations, h.ContainerAnnotations)
	case h.IsRust() || k.OK() && !k.ColdPlugs():
		return "", append(says(by, k.Hypervisor("cold_plug_vfio")), h.Facts()...)
	case h.Engine == runtimes.CRIO:
		return "CRI-O passes all annotations of pods to Kata's Go runtime, `cdi.k8s.io/*` included", h.Facts()
	case by.Name == "sandboxer":
		return "the shim gets all annotations of pods, `cdi.k8s.io/*` included", says(by)
	}
	return fmt.Sprintf("%s lets pods name CDI devices: %q", by.Name, by.List()), says(by)
}

// kataAnnotations looks for patterns. A list of whole keys is somebody's decision;
// for the Rust runtime CDI annotations are among what reaches the guest's agent.
func kataAnnotations(_ *facts.Node, h *runtimes.Handler, _ *runtimes.Kata) (string, []facts.Fact) {
	prefixes := []string{"io.katacontainers."}
	if h.IsRust() {
		prefixes = append(prefixes, "cdi.k8s.io/")
	}
	for _, prefix := range prefixes {
		by, passes := h.Passes(prefix)
		switch {
		case !passes:
			continue
		case h.Engine == runtimes.CRIO:
			return "CRI-O passes all annotations of pods to Kata", h.Facts()
		case by.Name == "sandboxer":
			return "the shim gets all annotations of pods", says(by)
		case slices.ContainsFunc(by.List(), func(p string) bool { return strings.ContainsAny(p, `*?[\`) }):
			return fmt.Sprintf("%s has patterns for what pods may set: %q", by.Name, by.List()), says(by)
		}
	}
	return "", says(h.PodAnnotations, h.ContainerAnnotations)
}

func privileged(_ *facts.Node, h *runtimes.Handler, _ *runtimes.Kata) (string, []facts.Fact) {
	seen := says(h.PrivilegedWithoutHostDevices)
	switch {
	case !h.PrivilegedWithoutHostDevices.On():
		return "a privileged pod gets all devices of the node", seen
	case h.AllDevicesAllowed.On():
		return "a privileged pod may use all devices of the node, though it does not list them", says(h.AllDevicesAllowed)
	}
	return "", seen
}

// namedForKata looks at handlers by their names: those that begin with kata, and
// those that the plugin trusts.
func namedForKata(n *facts.Node) []finding.Finding {
	r := runtimes.Of(n)
	found, named, seen := damagedRuntimes(r), 0, []facts.Fact(nil)
	for _, h := range r.Handlers {
		if !strings.HasPrefix(h.Name, "kata") && !slices.Contains(runtimes.Allowed(n), h.Name) {
			continue
		}
		named++
		seen = append(seen, h.Facts()...)
		switch {
		case !h.IsKata():
			text := fmt.Sprintf("%q runs %q, which is not Kata", h.Name, runs(&h))
			found = append(found, ofHandler(&h, fail(text, h.Facts()...))...)
		case h.Binary.IsSet():
			found = append(found, ofHandler(&h, fail("it has a BinaryName, which runc's shim calls and Kata's has no use for", append(h.Facts(), h.Binary.Fact())...))...)
		}
	}
	switch {
	case len(found) > 0:
		return found
	case named == 0:
		return notApplicable("no handler is named for Kata", r.Files...)
	}
	return pass(count(named, "handler"), seen...)
}

// runs says what a handler starts.
func runs(h *runtimes.Handler) string {
	for _, s := range []runtimes.Setting{h.Path, h.Type} {
		if s.Text() != "" {
			return s.Text()
		}
	}
	return "the engine's default runtime"
}
