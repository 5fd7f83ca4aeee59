package runtimes

import (
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/audit/facts"
	"github.com/kata-vfio/kata-vfio/pkg/audit/facts/runtimes/config"
)

// addCRIO reads CRI-O's configuration.
func (r *Runtimes) addCRIO(n *facts.Node) {
	loaded := config.LoadCRIO(onNode{n})
	r.Files, r.Damaged = append(r.Files, loaded.Files...), append(r.Damaged, loaded.Damaged...)
	if len(loaded.Files)+len(loaded.Damaged) == 0 {
		return
	}
	first := append(slices.Clone(loaded.Files), loaded.Damaged...)[0].Path
	r.crioHandlers(loaded.All.Sub("crio", "runtime"), first)
	r.addCDIDirs(loaded.All.Sub("crio", "runtime").Setting(first, "cdi_spec_dirs"))
	if r.NRI == nil {
		r.NRI = crioNRI(loaded.All.Sub("crio", "nri"), first)
	}
}

// crioHandlers adds CRI-O's handlers.
func (r *Runtimes) crioHandlers(runtime config.Table, file string) {
	handlers := runtime.Sub("runtimes")
	for _, name := range handlers.Names() {
		t := handlers.Sub(name)
		from := t
		if t.Setting(file, "inherit_default_runtime").On() {
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

// crioNRI returns CRI-O's NRI, which is on unless it is switched off
// (internal/config/nri).
func crioNRI(t config.Table, file string) *NRI {
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
