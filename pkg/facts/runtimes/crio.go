package runtimes

import (
	"fmt"
	"path"

	"github.com/kata-vfio/kata-vfio/pkg/facts"
)

// CRI-O's files (pkg/config CrioConfigPath, CrioConfigDropInPath).
const (
	crioConfig  = "/etc/crio/crio.conf"
	crioDropIns = "/etc/crio/crio.conf.d"
)

// addCRIO reads CRI-O's configuration: the file and each below the directory of
// drop-ins, by path. A drop-in's handler takes the place of the whole handler
// before it, since the decoder makes maps' values anew (UpdateFromDropInFile).
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
	if len(files) > maxFiles {
		r.damaged(listed, fmt.Errorf("%s: more than %d files", crioDropIns, maxFiles))
		files = files[:maxFiles]
	}
	all := table{}
	for _, file := range files {
		one, ok := r.load(n, file)
		if !ok {
			continue
		}
		handlers := all.sub("crio", "runtime", "runtimes")
		for _, name := range one.sub("crio", "runtime", "runtimes").names() {
			delete(handlers, name)
		}
		all.merge(one)
	}
	r.crioHandlers(all.sub("crio", "runtime"), files[0])
	r.addCDIDirs(all.sub("crio", "runtime").setting(files[0], "cdi_spec_dirs"))
	if r.NRI == nil {
		r.NRI = crioNRI(all.sub("crio", "nri"), files[0])
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
func (r *Runtimes) crioHandlers(runtime table, file string) {
	handlers := runtime.sub("runtimes")
	for _, name := range handlers.names() {
		t := handlers.sub(name)
		from := t
		if t.setting(file, "inherit_default_runtime").On() {
			from = handlers.sub(runtime.setting(file, "default_runtime").Text())
		}
		r.Handlers = append(r.Handlers, Handler{
			Name: name, Engine: CRIO,
			Type:                         from.setting(file, "runtime_type"),
			Path:                         from.setting(file, "runtime_path"),
			Config:                       from.setting(file, "runtime_config_path"),
			PodAnnotations:               t.setting(file, "allowed_annotations"),
			ContainerAnnotations:         t.setting(file, "allowed_annotations"),
			PrivilegedWithoutHostDevices: t.setting(file, "privileged_without_host_devices"),
			Sandboxer:                    Setting{Name: "sandboxer", File: file},
		})
	}
}

// crioNRI returns CRI-O's NRI, which is on unless it is switched off
// (internal/config/nri).
func crioNRI(t table, file string) *NRI {
	v := t.sub("default_validator")
	n := &NRI{
		Switch: t.setting(file, "enable_nri"),
		Socket: t.setting(file, "nri_listen"), PluginDir: t.setting(file, "nri_plugin_dir"),
		PluginConfigDir:    t.setting(file, "nri_plugin_config_dir"),
		DisableConnections: t.setting(file, "nri_disable_connections"),
		Validator:          v.setting(file, "nri_enable_default_validator"),
		RequiredPlugins:    v.setting(file, "nri_validator_required_plugins"),
		Tolerate:           v.setting(file, "nri_validator_tolerate_missing_plugins_annotation"),
	}
	n.Enabled = !n.Switch.IsSet() || n.Switch.On()
	return n
}
