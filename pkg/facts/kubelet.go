package facts

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
)

// The kubelet's directory, and its configuration file if no flag names another: kubeadm and most distributions use this path.
const (
	KubeletDir    = "/var/lib/kubelet"
	KubeletConfig = KubeletDir + "/config.yaml"
)

// ReadOnlyPort is the kubelet's port that needs no authentication, which is open unless a file or a flag closes it.
const ReadOnlyPort = 10255

// KubeletSettings are the relevant fields of a KubeletConfiguration (kubelet.config.k8s.io/v1beta1). A field that
// nothing sets is nil or empty.
type KubeletSettings struct {
	ReadOnlyPort   *int `json:"readOnlyPort"`
	Authentication struct {
		Anonymous struct {
			Enabled *bool `json:"enabled"`
		} `json:"anonymous"`
	} `json:"authentication"`
	Authorization struct {
		Mode string `json:"mode"`
	} `json:"authorization"`
	CgroupDriver             string          `json:"cgroupDriver"`
	FeatureGates             map[string]bool `json:"featureGates"`
	ContainerRuntimeEndpoint string          `json:"containerRuntimeEndpoint"`
	RuntimeRequestTimeout    string          `json:"runtimeRequestTimeout"`
}

// Kubelet is a kubelet's configuration, as its files and its flags set it.
type Kubelet struct {
	Settings KubeletSettings
	// Root is the kubelet's directory.
	Root string
	// Files are the files that the kubelet looks for, in the order in which they apply; some may be absent. Damaged are those that
	// could not be read or parsed. The kubelet would not start with them, so their settings are ignored.
	Files, Damaged []Fact
	// CgroupFile is the file that sets the cgroup driver, and GateFiles are those that set the feature gates.
	CgroupFile string
	GateFiles  map[string]string
}

// LoadKubelet reads the configuration of a kubelet with the given flags: the file, then the drop-ins, then the flags, where later
// ones override earlier ones. flagFile returns the file that sets a flag. usual is the file that applies if no flag names one. It
// is empty if the kubelet has no such default.
func LoadKubelet(node Tree, args []string, usual string, flagFile func(flag string) string) *Kubelet {
	k := &Kubelet{Root: KubeletDir, GateFiles: map[string]string{}}
	k.Settings.FeatureGates = map[string]bool{}
	for _, name := range kubeletFiles(node, args, usual) {
		k.read(node.Read(name))
	}
	k.readFlags(args, flagFile)
	return k
}

// Loaded returns the files that apply: those that exist and are not damaged.
func (k *Kubelet) Loaded() []string {
	var names []string
	for _, file := range k.Files {
		damaged := slices.ContainsFunc(k.Damaged, func(f Fact) bool { return f.Path == file.Path })
		if file.OK() && !damaged {
			names = append(names, file.Path)
		}
	}
	return names
}

// kubeletFiles returns the configuration file of a kubelet with the given flags, and its drop-ins: the files below --config-dir
// that end in .conf, sorted by path.
func kubeletFiles(node Tree, args []string, usual string) []string {
	var names []string
	if given, ok := Option(args, "--config"); ok && given != "" {
		usual = path.Join("/", given) // services run in / (systemd.exec(5): WorkingDirectory=)
	}
	if usual != "" {
		names = append(names, usual)
	}
	dir, ok := Option(args, "--config-dir")
	if !ok || dir == "" {
		return names
	}
	below := walkTree(node, path.Join("/", dir))
	for _, name := range below[:min(len(below), MaxTableFiles)] {
		if path.Ext(name) == ".conf" {
			names = append(names, name)
		}
	}
	return names
}

// read overrides the settings of earlier files with those of one more file.
func (k *Kubelet) read(file Fact) {
	k.Files = append(k.Files, file)
	if file.Status == Absent {
		return
	}
	var one KubeletSettings
	if file.OK() {
		if err := parseKubelet(file, &one); err != nil {
			file = file.BrokenBy(err)
		}
	}
	if !file.OK() {
		k.Damaged = append(k.Damaged, file)
		return
	}
	k.merge(&one, file.Path)
}

// parseKubelet decodes a file. The error does not name it: the file's fact does.
func parseKubelet(file Fact, into *KubeletSettings) error {
	if len(file.Value) >= MaxTableSize {
		return fmt.Errorf("it is longer than %d bytes", MaxTableSize)
	}
	return yaml.Unmarshal([]byte(file.Value), into)
}

// merge overrides settings with those of one file or flag.
func (k *Kubelet) merge(one *KubeletSettings, file string) {
	all := &k.Settings
	if one.ReadOnlyPort != nil {
		all.ReadOnlyPort = one.ReadOnlyPort
	}
	if on := one.Authentication.Anonymous.Enabled; on != nil {
		all.Authentication.Anonymous.Enabled = on
	}
	all.Authorization.Mode = cmp.Or(one.Authorization.Mode, all.Authorization.Mode)
	all.ContainerRuntimeEndpoint = cmp.Or(one.ContainerRuntimeEndpoint, all.ContainerRuntimeEndpoint)
	all.RuntimeRequestTimeout = cmp.Or(one.RuntimeRequestTimeout, all.RuntimeRequestTimeout)
	if one.CgroupDriver != "" {
		all.CgroupDriver = one.CgroupDriver
		k.CgroupFile = file
	}
	maps.Copy(all.FeatureGates, one.FeatureGates)
	for gate := range one.FeatureGates {
		k.GateFiles[gate] = file
	}
}

// readFlags reads the flags that override a field of the files, and the flags without such a field.
func (k *Kubelet) readFlags(args []string, file func(flag string) string) {
	flag := func(name string, set func(*KubeletSettings, string)) {
		if value, ok := Option(args, name); ok {
			var one KubeletSettings
			set(&one, value)
			k.merge(&one, file(name))
		}
	}
	flag("--cgroup-driver", func(one *KubeletSettings, value string) { one.CgroupDriver = value })
	flag("--container-runtime-endpoint", func(one *KubeletSettings, value string) { one.ContainerRuntimeEndpoint = value })
	flag("--runtime-request-timeout", func(one *KubeletSettings, value string) { one.RuntimeRequestTimeout = value })
	flag("--feature-gates", func(one *KubeletSettings, value string) { one.FeatureGates = parseGates(value) })
	flag("--read-only-port", func(one *KubeletSettings, value string) { one.ReadOnlyPort = new(parsePort(value)) })
	if mode, ok := Option(args, "--authorization-mode"); ok {
		k.Settings.Authorization.Mode = mode
	}
	if on, ok := Switch(args, "--anonymous-auth", true); ok {
		k.Settings.Authentication.Anonymous.Enabled = &on
	}
	if root, ok := Option(args, "--root-dir"); ok && path.IsAbs(root) {
		k.Root = root
	}
}

// parsePort returns a port. The kubelet does not start with an invalid port, which counts as [ReadOnlyPort], so as open.
func parsePort(text string) int {
	port, err := strconv.ParseInt(text, 0, 32)
	if err != nil {
		return ReadOnlyPort
	}
	return int(port)
}

// parseGates parses "A=true,B=0". The kubelet does not start with an invalid boolean, which counts as off.
func parseGates(flag string) map[string]bool {
	gates := map[string]bool{}
	for gate := range strings.SplitSeq(flag, ",") {
		if name, value, ok := strings.Cut(gate, "="); ok {
			on, err := strconv.ParseBool(strings.TrimSpace(value))
			gates[strings.TrimSpace(name)] = on && err == nil
		}
	}
	return gates
}
