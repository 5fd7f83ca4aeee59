package runtimes

import (
	"fmt"
	"path"

	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/facts/runtimes/config"
)

// CRI-O's files (pkg/config CrioConfigPath, CrioConfigDropInPath).
const (
	crioConfig  = "/etc/crio/crio.conf"
	crioDropIns = "/etc/crio/crio.conf.d"
)

// addCRIO reads CRI-O's configuration: the file and each below the directory of
// drop-ins, by path.
func (r *Runtimes) addCRIO(n *facts.Node) {
	files, listed := walk(n, crioDropIns, 0)
	if !listed.Known() {
		r.damaged(listed, nil)
	}
	if read(n, crioConfig).Status != facts.Absent {
		files = append([]string{crioConfig}, files...)
	}
	if len(files) == 0 {
		return
	}
	if len(files) > config.MaxFiles {
		r.damaged(listed, fmt.Errorf("%s: more than %d files", crioDropIns, config.MaxFiles))
		files = files[:config.MaxFiles]
	}
	all := config.Table{}
	for _, file := range files {
		one, ok := r.load(n, file)
		if !ok {
			continue
		}
		all.MergeCRIO(one)
	}
	r.crioHandlers(all.Sub("crio", "runtime"), files[0])
	r.addCDIDirs(all.Sub("crio", "runtime").Setting(files[0], "cdi_spec_dirs"))
	if r.NRI == nil {
		r.NRI = crioNRI(all.Sub("crio", "nri"), files[0])
	}
}

// walk returns the files below a directory in the order of filepath.Walk. depth
// bounds what a loop of links would go on with.
func walk(n *facts.Node, dir string, depth int) ([]string, facts.Fact) {
	names, listed := n.List(n.Real(dir))
	var files []string
	for _, name := range names {
		file := path.Join(dir, name)
		// Links are not followed by Walk: what they lead to is a file to it.
		if _, sub := n.List(n.Real(file)); depth < 8 && sub.OK() && n.Real(file) == n.Real(dir)+"/"+name {
			more, _ := walk(n, file, depth+1)
			files = append(files, more...)
			continue
		}
		files = append(files, file)
	}
	return files, listed
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
