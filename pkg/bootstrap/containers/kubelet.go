package containers

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/facts/config"
)

// The usual files of the kubelet's configuration and flags, such as kubeadm's.
const (
	kubeletConfig = "/var/lib/kubelet/config.yaml"
	kubeadmFlags  = "/var/lib/kubelet/kubeadm-flags.env"
	kubeletRoot   = "/var/lib/kubelet"
)

// kubeletFile has the relevant fields of a KubeletConfiguration.
type kubeletFile struct {
	CgroupDriver          string          `json:"cgroupDriver"`
	FeatureGates          map[string]bool `json:"featureGates"`
	Endpoint              string          `json:"containerRuntimeEndpoint"`
	RuntimeRequestTimeout string          `json:"runtimeRequestTimeout"`
}

// kubelet is the kubelet's configuration, as its files set it.
type kubelet struct {
	kubeletFile
	endpoint, root string
	// files are the files that were read, and damaged those that can't be decoded.
	files   []string
	damaged []facts.Fact
	// gateFile is, for each feature gate, the last file that sets it.
	gateFile map[string]string
	// cgroupFile is the file that sets the cgroup driver, or empty.
	cgroupFile string
	// unwritten is why settings that no file has are not known, or empty.
	unwritten string
}

// kubelet reads the configuration: the file, then --config-dir, then flags, where later ones override earlier ones.
func (n node) kubelet() *kubelet {
	k := &kubelet{root: kubeletRoot, gateFile: map[string]string{}}
	args, sources := n.kubeletArgs()
	d := config.DistributionOf(n)
	if d != nil {
		args, sources = n.distributionKubelet(d)
	}
	name := kubeletConfig
	if given, ok := config.Option(args, "--config"); ok && path.IsAbs(given) {
		name = given
	}
	names := []string{name}
	if dir, ok := config.Option(args, "--config-dir"); ok && path.IsAbs(dir) {
		more := config.Walk(n, dir)
		for _, name := range more[:min(len(more), config.MaxFiles)] {
			if path.Ext(name) == ".conf" {
				names = append(names, name)
			}
		}
	}
	for _, name := range names {
		k.read(n.Read(name))
	}
	k.readFlags(args, func(flag string) string { return n.fileWith(sources, strings.TrimLeft(flag, "-")) })
	if d != nil && len(k.files) == 0 {
		k.unwritten = "not known: " + d.Name + " writes the kubelet's configuration when it starts"
	}
	return k
}

// kubeletArgs returns the kubelet's flags and the files that set them: its service's, or kubeadm's.
func (n node) kubeletArgs() (args, sources []string) {
	if u, ok := config.LoadUnit(n, "kubelet.service"); ok {
		return u.Args(), u.Files
	}
	for _, assignment := range config.Environment(n, kubeadmFlags) {
		if _, flags, ok := strings.Cut(assignment, "="); ok {
			args = append(args, config.Words(flags)...)
		}
	}
	return args, []string{kubeadmFlags}
}

// fileWith returns the last of the files that contains the text, or the first file if none does.
func (n node) fileWith(files []string, text string) string {
	for _, file := range slices.Backward(files) {
		if strings.Contains(n.Read(file).Value, text) {
			return file
		}
	}
	return files[0]
}

// read merges a file into those before it.
func (k *kubelet) read(file facts.Fact) {
	if file.Status == facts.Absent {
		return
	}
	err := fmt.Errorf("it is longer than %d bytes", config.MaxSize)
	var one kubeletFile
	if file.OK() && len(file.Value) < config.MaxSize {
		err = yaml.Unmarshal([]byte(file.Value), &one)
	}
	if !file.OK() || err != nil {
		if file.OK() {
			file.Status, file.Err = facts.Broken, err.Error()
		}
		k.damaged = append(k.damaged, file)
		return
	}
	k.files = append(k.files, file.Path)
	k.merge(one, file.Path)
}

func (k *kubelet) merge(one kubeletFile, source string) {
	if one.CgroupDriver != "" {
		k.CgroupDriver, k.cgroupFile = one.CgroupDriver, source
	}
	if one.Endpoint != "" {
		k.endpoint = one.Endpoint
	}
	if one.RuntimeRequestTimeout != "" {
		k.RuntimeRequestTimeout = one.RuntimeRequestTimeout
	}
	if k.FeatureGates == nil {
		k.FeatureGates = map[string]bool{}
	}
	maps.Copy(k.FeatureGates, one.FeatureGates)
	for gate := range one.FeatureGates {
		k.gateFile[gate] = source
	}
}

// readFlags reads the flags that have no field in the file, or override it.
func (k *kubelet) readFlags(args []string, source func(flag string) string) {
	flag := func(name string, set func(*kubeletFile, string)) {
		if value, ok := config.Option(args, name); ok {
			var one kubeletFile
			set(&one, value)
			k.merge(one, source(name))
		}
	}
	flag("--cgroup-driver", func(one *kubeletFile, value string) { one.CgroupDriver = value })
	flag("--container-runtime-endpoint", func(one *kubeletFile, value string) { one.Endpoint = value })
	flag("--runtime-request-timeout", func(one *kubeletFile, value string) { one.RuntimeRequestTimeout = value })
	flag("--feature-gates", func(one *kubeletFile, value string) { one.FeatureGates = gatesOf(value) })
	if root, ok := config.Option(args, "--root-dir"); ok && path.IsAbs(root) {
		k.root = root
	}
}

// gatesOf parses "A=true,B=0". The kubelet does not start with an invalid boolean, which counts as off.
func gatesOf(flag string) map[string]bool {
	gates := map[string]bool{}
	for gate := range strings.SplitSeq(flag, ",") {
		if name, value, ok := strings.Cut(gate, "="); ok {
			on, err := strconv.ParseBool(strings.TrimSpace(value))
			gates[strings.TrimSpace(name)] = on && err == nil
		}
	}
	return gates
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
		w.refuse(v.Source, "The kubelet is version "+v.Text+", which does not enable DRA by default.", "Upgrade Kubernetes to 1.34 or newer.")
	}
	k := n.kubelet()
	for _, file := range k.damaged {
		w.warn(file.Path, "The kubelet's configuration can't be parsed: "+cause(file), "Correct the file.")
	}
	for _, gate := range neededGates() {
		if on, set := k.FeatureGates[gate]; set && !on {
			w.refuse(k.gateFile[gate], "The kubelet's feature gate "+gate+" is disabled in "+k.gateFile[gate]+".", "Remove it from featureGates, and restart the kubelet.")
		}
	}
	k.facts(w, n)
	return w
}

func (k *kubelet) facts(w *wants, n node) {
	source := strings.Join(k.files, ", ")
	var gates []string
	for _, name := range sortedKeys(k.FeatureGates) {
		gates = append(gates, fmt.Sprintf("%s=%t", name, k.FeatureGates[name]))
	}
	for _, f := range []struct{ name, value string }{
		{"cgroup driver", k.CgroupDriver},
		{"container runtime endpoint", k.endpoint},
		{"runtime request timeout", k.RuntimeRequestTimeout},
		{"feature gates", strings.Join(gates, ",")},
	} {
		if f.value == "" {
			f.value = cmp.Or(k.unwritten, "not set")
		}
		w.fact(f.name, f.value, source)
	}
	for _, dir := range []string{"plugins", "plugins_registry", "pod-resources"} {
		found := "not there"
		if slices.Contains(n.names(k.root), dir) {
			found = "there"
		}
		w.fact("directory "+dir, found, path.Join(k.root, dir))
	}
}

// names returns the names in a directory, as far as it can be read.
func (n node) names(dir string) []string {
	names, _ := n.list(dir)
	return names
}
