package fleet

import (
	"cmp"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
)

func accelerators() []requirement {
	return []requirement{
		{
			entry: Requirement{
				ID: "driver_runtime_management", Level: Should,
				Checked: "All plugins run the DaemonSet's version, and each GPU has the attributes driver, pluginVersion and kataVersion. The GPU's own driver is in the guest.",
				Commands: []Command{
					{
						"kubectl kata-vfio devices -o custom-columns=NODE:.node,DEVICE:.name,DRIVER:.driver,PLUGIN:.pluginVersion,KATA:.kataVersion",
						"NODE DEVICE DRIVER PLUGIN KATA\n...\nworker-1 gpu-0000-3b-00-0 vfio-pci 0.1.0 4.1.0\n...",
					},
					{
						"kubectl get nodes -o custom-columns=NODE:.metadata.name,KERNEL:.status.nodeInfo.kernelVersion,RUNTIME:.status.nodeInfo.containerRuntimeVersion",
						"NODE KERNEL RUNTIME\n...",
					},
					{"kubectl rollout status -n kata-vfio-system daemonset/kata-vfio-plugin --timeout=1m", "daemon set \"kata-vfio-plugin\" successfully rolled out"},
					{"kata-vfio-bootstrap verify -o json | jq -r '.facts[] | select(.name == \"version\") | .part + \" \" + .value'", "...\ncontainerd ...\n...\nkata ...\n..."},
				},
			}, needs: []string{string(Slices), Nodes, DaemonSets}, judge: versions,
		},
		slicing("gpu_sharing"), slicing("virtualized_accelerator"),
	}
}

// slicing returns a requirement that VFs of GPUs meet. A vGPU of NVIDIA is such a VF, too.
func slicing(id string) requirement {
	return requirement{
		entry: Requirement{
			ID: id, Level: Should,
			Checked: "VFs of GPUs are published, and a running pod has one in its VM. Their attribute boundary says what VFs of one GPU share.",
			Commands: []Command{
				{"kubectl kata-vfio devices", "NODE DEVICE ADDRESS KIND ...\n...\nworker-1 gpuvf-0000-81-00-4 0000:81:00.4 gpuvf ...\n..."},
				{"kubectl kata-vfio claims -A", "NAMESPACE CLAIM STATE POD NODE DEVICES VM CONDITIONS ...\n...\nteam-a slice ready ... Ready,Isolated,Reset ...\n..."},
			},
		}, needs: []string{string(Slices), string(Claims), string(Pods)}, judge: gpuSlices,
	}
}

func gpuSlices(s *ConformanceState) observation {
	devices, pods := s.devices(isGPUSlice), s.holders(isGPUSlice)
	if len(devices) == 0 {
		return observation{
			reason: "no node publishes VFs of GPUs: a VM gets whole GPUs",
			fix:    "permit slices of GPUs (gpuSlices in the node config), answer N/A for these GPUs, or show another driver's nodes",
		}
	}
	o := observation{evidence: []string{
		output.Count(len(devices), "VF of a GPU", "VFs of GPUs") + " on " + output.Count(len(nodes(devices)), "node"),
		output.Count(len(pods), "running pod") + " with a VF of a GPU: " + orNone(podNames(pods)),
	}}
	if len(pods) == 0 {
		o.reason, o.fix = "no pod with a VF of a GPU runs", "start a pod with a claim of the class gpu-slice.kata-vfio.dev"
	}
	return o
}

// versions judges the plugins' rollout, and the versions that GPUs publish.
func versions(s *ConformanceState) observation {
	gpus := s.devices(isGPU)
	seen := observation{evidence: slices.Concat(rollouts(s.DaemonSets), nodeVersions(s, nodes(s.devices(every))))}
	var unknown []string
	for _, d := range gpus {
		if d.Driver == "" || d.PluginVersion == "" || d.KataVersion == "" {
			unknown = append(unknown, d.Node)
		}
	}
	slices.Sort(unknown)
	unknown = slices.Compact(unknown)
	rolling := slices.IndexFunc(s.DaemonSets, func(d appsv1.DaemonSet) bool { return !rolledOut(&d) })
	switch {
	case len(gpus) == 0:
		seen.reason, seen.fix = noGPU()
	case !slices.ContainsFunc(s.DaemonSets, func(d appsv1.DaemonSet) bool { return d.Status.DesiredNumberScheduled > 0 }):
		seen.reason, seen.fix = "no DaemonSet of the plugin runs on a node", "install the chart, and label nodes kata-vfio.dev/node=true"
	case rolling >= 0:
		d := &s.DaemonSets[rolling]
		seen.reason = fmt.Sprintf("DaemonSet %s is not rolled out", d.Name)
		seen.fix = fmt.Sprintf("wait for `kubectl rollout status -n %s daemonset/%s`, or see its pods", d.Namespace, d.Name)
	case len(unknown) > 0:
		seen.reason = "GPUs lack the driver's, the plugin's or Kata's version on " + list(unknown)
		seen.fix = "run `kata-vfio-bootstrap verify --record` on these nodes, or enable the chart's bootstrap; use a release of the plugin"
	}
	return seen
}

func noGPU() (reason, fix string) {
	return "no node publishes a GPU", "label a node with GPUs kata-vfio.dev/node=true, and see `kubectl kata-vfio devices`"
}

// rolledOut reports whether all pods of a DaemonSet are ready and of its latest version. The DaemonSet of a pool without nodes has
// no pods, and is rolled out.
func rolledOut(d *appsv1.DaemonSet) bool {
	want := d.Status.DesiredNumberScheduled
	// An earlier generation's status may be complete while the new pods do not exist
	// yet, so `kubectl rollout status` compares it too.
	return d.Status.ObservedGeneration >= d.Generation && d.Status.UpdatedNumberScheduled == want && d.Status.NumberReady == want
}

func rollouts(sets []appsv1.DaemonSet) []string {
	var all []string
	for i := range sets {
		d, image := &sets[i], ""
		if c := d.Spec.Template.Spec.Containers; len(c) > 0 {
			image = c[0].Image
		}
		all = append(all, fmt.Sprintf("DaemonSet %s/%s: %d of %d ready and updated, image %s", d.Namespace, d.Name,
			min(d.Status.NumberReady, d.Status.UpdatedNumberScheduled), d.Status.DesiredNumberScheduled, image))
	}
	return all
}

// stack is the software that nodes have in common.
type stack struct{ driver, plugin, kata, kernel, runtime string }

// nodeVersions returns the versions of the nodes, each combination once.
func nodeVersions(s *ConformanceState, names []string) []string {
	have := stacks(s)
	byStack := map[stack]int{}
	var order []stack
	for _, name := range names {
		if byStack[have[name]] == 0 {
			order = append(order, have[name])
		}
		byStack[have[name]]++
	}
	var all []string
	for _, have := range order {
		all = append(all, fmt.Sprintf("%s: plugin %s, Kata %s, %s, kernel %s, GPUs on %s", output.Count(byStack[have], "node"),
			orUnknown(have.plugin), orUnknown(have.kata), orUnknown(have.runtime), orUnknown(have.kernel), cmp.Or(have.driver, "no driver")))
	}
	return all
}

// stacks returns the software of each node, by its name.
func stacks(s *ConformanceState) map[string]stack {
	all := map[string]stack{}
	for _, d := range s.devices(isGPU) {
		// A node has one plugin and one Kata, which all its GPUs name. If the GPUs have different drivers, the driver of the last GPU is shown.
		all[d.Node] = stack{driver: d.Driver, plugin: d.PluginVersion, kata: d.KataVersion}
	}
	for i := range s.Nodes {
		n, info := &s.Nodes[i], &s.Nodes[i].Status.NodeInfo
		have := all[n.Name]
		have.kernel, have.runtime = info.KernelVersion, info.ContainerRuntimeVersion
		all[n.Name] = have
	}
	return all
}

func orUnknown(version string) string { return cmp.Or(version, "unknown") }
