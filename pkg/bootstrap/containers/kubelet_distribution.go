package containers

import (
	"cmp"
	"path"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/facts/config"
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

// rancherKubelet reads kubelet-arg of K3s' or RKE2's own configuration.
func (n node) rancherKubelet(d *config.Distribution) (args, sources []string) {
	r := d.Rancher(n)
	args = []string{"--config-dir=" + path.Join(path.Dir(path.Dir(d.Config)), "kubelet.conf.d")}
	for _, flag := range r.List("kubelet-arg") {
		args = append(args, "--"+strings.TrimLeft(flag, "-"))
	}
	return args, r.Files
}

// k0sKubelet returns the flags that k0s derives from its own.
func (n node) k0sKubelet(d *config.Distribution) (args, sources []string) {
	service, files := d.ServiceArgs(n)
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
