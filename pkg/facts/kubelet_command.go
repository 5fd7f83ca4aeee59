package facts

import (
	"cmp"
	"path"
	"strings"
)

// kubeadmFlags are the flags that kubeadm writes for the kubelet.
const kubeadmFlags = KubeletDir + "/kubeadm-flags.env"

// kubeletService is the kubelet's service if no distribution starts the kubelet.
const kubeletService = "kubelet.service"

// KubeletArgs returns the flags that the kubelet gets at its next start, and the files that set them, of which there is
// at least one: those of the node's Kubernetes distribution, of the kubelet's service, or kubeadm's.
func KubeletArgs(node Tree) (args, files []string) {
	if d := FindDistribution(node); d != nil {
		return d.kubeletArgs(node)
	}
	if u, ok := LoadUnit(node, kubeletService); ok {
		return u.Args(), u.Files
	}
	for _, assignment := range environment(node, kubeadmFlags) {
		if _, flags, ok := strings.Cut(assignment, "="); ok {
			args = append(args, Words(flags)...)
		}
	}
	return args, []string{kubeadmFlags}
}

// kubeletArgs returns the flags of a kubelet that the distribution starts, and the files that set them. Sources:
// docs.k3s.io/cli/agent and /installation/configuration (RKE2 has the same), k0s docs/directories.md and
// pkg/component/worker/kubelet.go, MicroK8s' documentation "Configuring services".
func (d *Distribution) kubeletArgs(node Tree) (args, files []string) {
	switch d.Name {
	case nameK3s, nameRKE2:
		return d.rancherKubelet(node)
	case nameK0s:
		return d.k0sKubelet(node)
	}
	return microK8sKubelet(node)
}

// rancherKubelet reads kubelet-arg of K3s' or RKE2's own configuration.
func (d *Distribution) rancherKubelet(node Tree) (args, files []string) {
	r := d.Rancher(node)
	args = []string{"--config-dir=" + path.Join(path.Dir(path.Dir(d.Config)), "kubelet.conf.d")}
	for _, flag := range r.List("kubelet-arg") {
		args = append(args, "--"+strings.TrimLeft(flag, "-"))
	}
	return args, r.Files
}

// k0sKubelet returns the kubelet's flags that k0s derives from its own flags.
func (d *Distribution) k0sKubelet(node Tree) (args, files []string) {
	service, files := d.ServiceArgs(node)
	root, _ := Option(service, "--kubelet-root-dir")
	extra, _ := Option(service, "--kubelet-extra-args")
	args = []string{
		"--config=" + path.Join(k0sDir(service, "--run-dir", k0sRunDir), "kubelet/config.yaml"),
		"--root-dir=" + cmp.Or(root, path.Join(k0sDir(service, "--data-dir", k0sDataDir), "kubelet")),
	}
	return append(args, Words(extra)...), append(files, d.Config)
}

// microK8sKubelet reads the kubelet's flags from a file with one flag a line, and replaces the snap's variables by its paths.
func microK8sKubelet(node Tree) (args, files []string) {
	const file = microK8sArgs + "kubelet"
	variables := strings.NewReplacer("${SNAP_DATA}", microK8sData, "${SNAP_COMMON}", microK8sCommon, "${SNAP}", microK8sSnap)
	args = []string{"--root-dir=" + microK8sCommon + KubeletDir}
	for line := range strings.Lines(node.Read(file).Value) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "-") {
			args = append(args, Words(variables.Replace(line))...)
		}
	}
	return args, []string{file}
}
