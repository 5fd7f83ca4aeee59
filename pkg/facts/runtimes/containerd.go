package runtimes

import (
	"path"

	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/facts/runtimes/config"
)

// addContainerd reads containerd's configuration as containerd 2 does. containerd 1
// is too old for the plugin (NRI, CDI).
func (r *Runtimes) addContainerd(n *facts.Node) {
	file, ok := containerdConfig(n)
	if !ok {
		return
	}
	loaded := config.LoadContainerd(onNode{n}, file, config.ByKey)
	r.Files, r.Damaged = append(r.Files, loaded.Files...), append(r.Damaged, loaded.Damaged...)
	r.handlers(loaded.All, file)
	r.addCDIDirs(loaded.All.Sub("plugins", config.CRIRuntime).Setting(file, "cdi_spec_dirs"))
	r.NRI = containerdNRI(loaded.All, file)
}

// containerdConfig returns the path of the file that containerd is started with,
// by its command line, or that a distribution puts where no process shows it.
func containerdConfig(n *facts.Node) (string, bool) {
	for _, p := range processes(n, "containerd") {
		if name, ok := p.option("--config", "-c"); ok && path.IsAbs(name) {
			return name, true
		}
	}
	for _, name := range []string{
		"/etc/containerd/config.toml",
		"/var/lib/rancher/k3s/agent/etc/containerd/config.toml",
		"/var/lib/rancher/rke2/agent/etc/containerd/config.toml",
		"/etc/k0s/containerd.toml",
		"/var/snap/microk8s/current/args/containerd.toml",
	} {
		if read(n, name).Status != facts.Absent {
			return name, true
		}
	}
	return "", false
}

// load reads and parses one file, which has to be there.
func (r *Runtimes) load(n *facts.Node, name string) (config.Table, bool) {
	file := read(n, name)
	if !file.OK() {
		r.damaged(file, nil)
		return nil, false
	}
	t, err := config.Parse(file)
	if err != nil {
		r.damaged(file, err)
		return nil, false
	}
	r.Files = append(r.Files, file)
	return t, true
}

// handlers adds containerd's handlers.
func (r *Runtimes) handlers(all config.Table, file string) {
	cri := all.Sub("plugins", config.CRIRuntime)
	runtimes := cri.Sub("containerd", "runtimes")
	for _, name := range runtimes.Names() {
		t := runtimes.Sub(name)
		options := t.Sub("options")
		r.Handlers = append(r.Handlers, Handler{
			Name: name, Engine: Containerd,
			Type:                         t.Setting(file, "runtime_type"),
			Path:                         t.Setting(file, "runtime_path"),
			Config:                       options.Setting(file, "ConfigPath"),
			Binary:                       options.Setting(file, "BinaryName"),
			PodAnnotations:               t.Setting(file, "pod_annotations"),
			ContainerAnnotations:         t.Setting(file, "container_annotations"),
			PrivilegedWithoutHostDevices: t.Setting(file, "privileged_without_host_devices"),
			AllDevicesAllowed:            t.Setting(file, "privileged_without_host_devices_all_devices_allowed"),
			Sandboxer:                    t.Setting(file, "sandboxer"),
		})
	}
}
