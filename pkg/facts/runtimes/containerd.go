package runtimes

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/facts"
)

// addContainerd reads containerd's configuration as containerd 2 does. containerd 1
// is too old for the plugin (NRI, CDI), and bootstrap refuses it.
func (r *Runtimes) addContainerd(n *facts.Node) {
	names, doubtful := containerdConfigs(n)
	r.Damaged = append(r.Damaged, doubtful...)
	file, loaded := r.chooseContainerd(n, names)
	if loaded == nil {
		return
	}
	r.Files, r.Damaged = append(r.Files, loaded.Files...), append(r.Damaged, repairable(n, loaded.Damaged)...)
	r.handlers(loaded.All, file)
	r.CRIOff = criOff(loaded.All, file)
	r.CDI = loaded.All.Sub("plugins", facts.CRIRuntime).Setting(file, "enable_cdi")
	r.addCDIDirs(loaded.All.Sub("plugins", facts.CRIRuntime).Setting(file, "cdi_spec_dirs"))
	r.NRI = containerdNRI(loaded.All, file)
	r.ShimCleanup = loaded.All.Timeout(file, facts.ShimCleanup)
}

// chooseContainerd loads the configuration of the containerd that serves the kubelet. Of several configurations, it chooses the one
// with the CRI plugin on. If several have it on, it adds an error to Damaged for each further one.
func (r *Runtimes) chooseContainerd(n *facts.Node, names []string) (file string, chosen *facts.Containerd) {
	serves := false
	for _, name := range names {
		loaded := facts.LoadContainerd(onNode{n}, name)
		on := !criOff(loaded.All, name).IsSet()
		switch {
		case chosen == nil, on && !serves:
			file, chosen, serves = name, loaded, on
		case on:
			err := fmt.Errorf("one containerd runs with %s and one with %s, both with CRI: it is unknown which of them the kubelet uses", file, name)
			r.Damaged = append(r.Damaged, facts.Fact{Path: name, How: "process"}.BrokenBy(err))
		}
	}
	return file, chosen
}

// criOff returns the setting that disables the CRI plugin, as dockerd does for the containerd that it starts itself. It is not set
// if the plugin is on.
func criOff(all facts.Table, file string) Setting {
	s := all.Setting(file, "disabled_plugins")
	for _, name := range s.List() {
		// Docker's package of containerd disables CRI by its short name.
		if name == "cri" || name == facts.CRIBefore || name == facts.CRIRuntime {
			return s
		}
	}
	return Setting{Name: s.Name, File: file}
}

// repairable adds instructions to the damaged files that a Kubernetes distribution generates: which other file to correct.
func repairable(n *facts.Node, damaged []facts.Fact) []facts.Fact {
	if len(damaged) == 0 {
		return nil
	}
	d := facts.FindDistribution(onNode{n})
	if d == nil {
		return damaged
	}
	var all []facts.Fact
	for _, f := range damaged {
		if fix := d.Repair(onNode{n}, f.Path); fix != "" {
			f.Err = strings.TrimSuffix(cmp.Or(f.Err, facts.NotThere), ".") + ". " + fix
		}
		all = append(all, f)
	}
	return all
}

// containerdConfigs returns the paths of the configuration files of the node's running containerds, each once. If no process shows
// a file, it returns the file of the next start. doubtful are processes that may belong to the node and read another file.
func containerdConfigs(n *facts.Node) (names []string, doubtful []facts.Fact) {
	own, others := daemons(n, "containerd")
	for _, p := range own {
		if name := containerdFile(&p); !slices.Contains(names, name) && (name != facts.ContainerdConfig || read(n, name).Status != facts.Absent) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		names = placedConfig(n)
	}
	// The node's own process shows which file applies, so processes that may or may not belong to the node don't matter.
	if len(own) > 0 {
		return names, nil
	}
	others = slices.DeleteFunc(others, func(p process) bool { return slices.Contains(names, containerdFile(&p)) })
	return names, doubts(others)
}

// containerdFile returns the file that a containerd is started with.
func containerdFile(p *process) string {
	if name, ok := p.option("--config", "-c"); ok && path.IsAbs(name) {
		return path.Clean(name)
	}
	return facts.ContainerdConfig
}

// placedConfig returns the configuration file of containerd's next start if it exists. Bootstrap chooses the same file.
func placedConfig(n *facts.Node) []string {
	main := facts.FindContainerd(onNode{n}).Main
	if read(n, main).Status == facts.Absent {
		return nil
	}
	return []string{main}
}

// handlers adds containerd's handlers.
func (r *Runtimes) handlers(all facts.Table, file string) {
	cri := all.Sub("plugins", facts.CRIRuntime)
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

// addCRIO reads CRI-O's configuration.
func (r *Runtimes) addCRIO(n *facts.Node) {
	loaded := facts.LoadCRIO(onNode{n})
	r.Files, r.Damaged = append(r.Files, loaded.Files...), append(r.Damaged, loaded.Damaged...)
	if len(loaded.Files)+len(loaded.Damaged) == 0 {
		return
	}
	r.HasCRIO = true
	first := append(slices.Clone(loaded.Files), loaded.Damaged...)[0].Path
	r.crioHandlers(loaded.All.Sub("crio", "runtime"), first)
	r.addCDIDirs(loaded.All.Sub("crio", "runtime").Setting(first, "cdi_spec_dirs"))
	if r.NRI == nil {
		r.NRI = crioNRI(loaded.All.Sub("crio", "nri"), first)
	}
}

// crioHandlers adds CRI-O's handlers.
func (r *Runtimes) crioHandlers(runtime facts.Table, file string) {
	handlers := runtime.Sub("runtimes")
	for _, name := range handlers.Names() {
		t := handlers.Sub(name)
		from := t
		if t.Setting(file, "inherit_default_runtime").On() {
			// The setting replaces the program that is started, but not what the handler allows.
			from = handlers.Sub(runtime.Setting(file, "default_runtime").Text())
		}
		r.Handlers = append(r.Handlers, Handler{
			Name: name, Engine: CRIO,
			Type:                         from.Setting(file, "runtime_type"),
			Path:                         from.Setting(file, "runtime_path"),
			Config:                       from.Setting(file, "runtime_config_path"),
			PodAnnotations:               t.Setting(file, "allowed_annotations"),
			ContainerAnnotations:         t.Setting(file, "allowed_annotations"),
			PrivilegedWithoutHostDevices: t.Setting(file, "privileged_without_host_devices"),
			Sandboxer:                    Setting{Name: "sandboxer", File: file},
		})
	}
}

// crioNRI returns CRI-O's settings of NRI, which is enabled by default (internal/config/nri).
func crioNRI(t facts.Table, file string) *NRI {
	v := t.Sub("default_validator")
	n := &NRI{
		Switch: t.Setting(file, "enable_nri"),
		Socket: t.Setting(file, "nri_listen"), PluginDir: t.Setting(file, "nri_plugin_dir"),
		PluginConfigDir:    t.Setting(file, "nri_plugin_config_dir"),
		DisableConnections: t.Setting(file, "nri_disable_connections"),
		Validator:          v.Setting(file, "nri_enable_default_validator"),
		RequiredPlugins:    v.Setting(file, "nri_validator_required_plugins"),
		Tolerate:           v.Setting(file, "nri_validator_tolerate_missing_plugins_annotation"),
	}
	n.Enabled = !n.Switch.IsSet() || n.Switch.On()
	return n
}
