package containers

import (
	"cmp"
	"path"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/kata-vfio/kata-vfio/pkg/audit/facts/runtimes/config"
)

// distributionKubelet returns the flags of a kubelet that a Kubernetes distribution starts, and the files that set them.
// Sources: docs.k3s.io/cli/agent and /installation/configuration (RKE2 has the same), k0s docs/directories.md and
// pkg/component/worker/kubelet.go, MicroK8s' documentation "Configuring services".
func (n node) distributionKubelet(d *config.Distribution) (args, sources []string) {
	switch d.Name {
	case "K3s", "RKE2":
		return n.rancherKubelet(d)
	case "k0s":
		return n.k0sKubelet(d)
	}
	return n.microK8sKubelet()
}

// serviceArgs returns the command line of a distribution's service, and the service's files.
func (n node) serviceArgs(d *config.Distribution) (args, sources []string) {
	for _, name := range d.Units {
		if u, ok := config.LoadUnit(n, name); ok {
			return u.Args(), u.Files
		}
	}
	return nil, nil
}

// rancherKubelet reads kubelet-arg of K3s' or RKE2's own configuration. A flag of the service adds to them.
func (n node) rancherKubelet(d *config.Distribution) (args, sources []string) {
	dir := "/etc/rancher/" + strings.ToLower(d.Name)
	names := []string{dir + "/config.yaml"}
	for _, name := range n.names(dir + "/config.yaml.d") {
		if ext := path.Ext(name); ext == ".yaml" || ext == ".yml" {
			names = append(names, path.Join(dir, "config.yaml.d", name))
		}
	}
	var flags []string
	for _, name := range names {
		flags = kubeletArgs(n.Read(name).Value, flags)
	}
	service, files := n.serviceArgs(d)
	for i, arg := range service {
		value, ok := strings.CutPrefix(arg, "--kubelet-arg=")
		if arg == "--kubelet-arg" && i+1 < len(service) {
			value, ok = service[i+1], true
		}
		if ok {
			flags = append(flags, value)
		}
	}
	args = []string{"--config-dir=" + path.Join(path.Dir(path.Dir(d.Config)), "kubelet.conf.d")}
	for _, flag := range flags {
		args = append(args, "--"+strings.TrimLeft(flag, "-"))
	}
	return args, append(names, files...)
}

// kubeletArgs returns the list kubelet-arg after one more file, which replaces the list of earlier files or, with a plus
// behind the key, adds to it.
func kubeletArgs(text string, before []string) []string {
	var file map[string]any
	if len(text) >= config.MaxSize || yaml.Unmarshal([]byte(text), &file) != nil {
		return before
	}
	if value, ok := file["kubelet-arg"]; ok {
		before = stringsOf(value)
	}
	return append(before, stringsOf(file["kubelet-arg+"])...)
}

// stringsOf returns the strings of a list, or a single string.
func stringsOf(value any) []string {
	if text, ok := value.(string); ok {
		return []string{text}
	}
	var all []string
	list, _ := value.([]any)
	for _, item := range list {
		if text, ok := item.(string); ok {
			all = append(all, text)
		}
	}
	return all
}

// k0sKubelet returns the flags that k0s derives from its own.
func (n node) k0sKubelet(d *config.Distribution) (args, sources []string) {
	service, files := n.serviceArgs(d)
	data, _ := config.Option(service, "--data-dir")
	run, _ := config.Option(service, "--run-dir")
	root, _ := config.Option(service, "--kubelet-root-dir")
	extra, _ := config.Option(service, "--kubelet-extra-args")
	args = []string{
		"--config=" + path.Join(cmp.Or(run, "/run/k0s"), "kubelet/config.yaml"),
		"--root-dir=" + cmp.Or(root, path.Join(cmp.Or(data, "/var/lib/k0s"), "kubelet")),
	}
	return append(args, config.Words(extra)...), append(files, d.Config)
}

// microK8sKubelet reads the file of flags, one a line. The snap's variables are those of its paths.
func (n node) microK8sKubelet() (args, sources []string) {
	const file = "/var/snap/microk8s/current/args/kubelet"
	variables := strings.NewReplacer("${SNAP_DATA}", "/var/snap/microk8s/current", "${SNAP_COMMON}", "/var/snap/microk8s/common", "${SNAP}", "/snap/microk8s/current")
	args = []string{"--root-dir=/var/snap/microk8s/common/var/lib/kubelet"}
	for line := range strings.Lines(n.Read(file).Value) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "-") {
			args = append(args, config.Words(variables.Replace(line))...)
		}
	}
	return args, []string{file}
}
