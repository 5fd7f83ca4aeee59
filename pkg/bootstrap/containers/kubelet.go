package containers

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// kubelet returns the configuration that the kubelet will have after its next start, according to the node's files.
func (n node) kubelet() *facts.Kubelet {
	args, files := facts.KubeletArgs(n)
	return facts.LoadKubelet(n, args, facts.KubeletConfig, func(flag string) string {
		return n.fileWith(files, strings.TrimLeft(flag, "-"))
	})
}

// fileWith returns the last of the files that contains the text, or the first file if none does.
func (n node) fileWith(files []string, text string) string {
	// Backward, because a later file overrides.
	for _, file := range slices.Backward(files) {
		if strings.Contains(n.Read(file).Value, text) {
			return file
		}
	}
	return files[0]
}

// neededGates are the feature gates that the plugin and Kata's requests to the kubelet need. They are on by default in
// the supported versions, and some are locked.
func neededGates() []string {
	return []string{"DynamicResourceAllocation", "KubeletPodResources", "KubeletPodResourcesGet", "KubeletPodResourcesDynamicResources"}
}

// kubeletWants checks the kubelet's files. It wants no file: the kubelet's installer owns them.
func kubeletWants(n node) *wants {
	w := &wants{part: "kubelet"}
	v := n.installed("kubelet")
	w.fact("version", v.String(), v.Source)
	if v.older(1, 34) {
		w.refuse(rule.VersionTooOld, v.Source, "The kubelet is version "+v.Text+", which does not enable DRA by default.", "Upgrade Kubernetes to 1.34 or newer.")
	}
	k := n.kubelet()
	for _, file := range k.Damaged {
		w.warn(rule.FileDamaged, file.Path, "The kubelet's configuration can't be parsed: "+cause(file), "Correct the file.")
	}
	for _, gate := range neededGates() {
		if on, set := k.Settings.FeatureGates[gate]; set && !on {
			w.refuse(rule.FeatureGateDisabled, k.GateFiles[gate], "The kubelet's feature gate "+gate+" is disabled in "+k.GateFiles[gate]+".", "Remove it from featureGates, and restart the kubelet.")
		}
	}
	w.kubeletFacts(n, k)
	return w
}

func (w *wants) kubeletFacts(n node, k *facts.Kubelet) {
	files := k.Loaded()
	source, unset := strings.Join(files, ", "), "not set"
	if d := facts.FindDistribution(n); d != nil && len(files) == 0 {
		unset = "not known: " + d.Name + " writes the kubelet's configuration when it starts"
	}
	var gates []string
	for _, name := range sortedKeys(k.Settings.FeatureGates) {
		gates = append(gates, fmt.Sprintf("%s=%t", name, k.Settings.FeatureGates[name]))
	}
	for _, f := range []struct{ name, value string }{
		{"cgroup driver", k.Settings.CgroupDriver},
		{"container runtime endpoint", k.Settings.ContainerRuntimeEndpoint},
		{"runtime request timeout", k.Settings.RuntimeRequestTimeout},
		{"feature gates", strings.Join(gates, ",")},
	} {
		w.fact(f.name, cmp.Or(f.value, unset), source)
	}
	for _, dir := range []string{"plugins", "plugins_registry", "pod-resources"} {
		found := "not there"
		if slices.Contains(n.names(k.Root), dir) {
			found = "there"
		}
		w.fact("directory "+dir, found, path.Join(k.Root, dir))
	}
}

// names returns the names in a directory, or none if it can't be read.
func (n node) names(dir string) []string {
	names, _ := n.list(dir)
	return names
}
