package runtimes

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/facts"
)

// Plugins of containerd whose sections count here.
const (
	criRuntime = "io.containerd.cri.v1.runtime"
	// criBefore is the CRI plugin of config versions 1 and 2, whose settings are
	// taken over where the newer plugin does not have them (plugins/cri/runtime
	// configMigration).
	criBefore = "io.containerd.grpc.v1.cri"
	nriPlugin = "io.containerd.nri.v1.nri"
)

// maxFiles bounds how many files one configuration may import.
const maxFiles = 256

// addContainerd reads containerd's configuration, as LoadConfig of containerd 2 does: breadth
// first through the imports, each file over those before it. containerd 1 replaces
// whole plugin sections instead; it is too old for the plugin (NRI, CDI).
func (r *Runtimes) addContainerd(n *facts.Node) {
	file, ok := containerdConfig(n)
	if !ok {
		return
	}
	all, loaded, pending := table{}, map[string]bool{}, []string{file}
	for len(pending) > 0 {
		name := pending[0]
		pending = pending[1:]
		if loaded[name] {
			continue
		}
		if len(loaded) == maxFiles {
			r.damaged(facts.Fact{Path: name, How: "read"}, fmt.Errorf("%s: more than %d files are imported", name, maxFiles))
			break
		}
		loaded[name] = true
		one, ok := r.load(n, name)
		if !ok {
			continue
		}
		migrate(one)
		all.merge(one)
		pending = append(pending, imports(n, name, one)...)
	}
	r.handlers(all, file)
	r.addCDIDirs(all.sub("plugins", criRuntime).setting(file, "cdi_spec_dirs"))
	r.NRI = containerdNRI(all, file)
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
func (r *Runtimes) load(n *facts.Node, name string) (table, bool) {
	file := read(n, name)
	if !file.OK() {
		r.damaged(file, nil)
		return nil, false
	}
	t, err := parse(file)
	if err != nil {
		r.damaged(file, err)
		return nil, false
	}
	r.Files = append(r.Files, file)
	return t, true
}

// imports returns the files that a file imports, in order: relative ones beside
// it, and those with a star as a pattern (resolveImports).
func imports(n *facts.Node, name string, t table) []string {
	var files []string
	for _, pattern := range t.setting(name, "imports").List() {
		if !path.IsAbs(pattern) {
			pattern = path.Join(path.Dir(name), pattern)
		}
		if !strings.Contains(pattern, "*") {
			files = append(files, path.Clean(pattern))
			continue
		}
		matches, all := n.Match(pattern)
		for _, m := range matches {
			files = append(files, "/"+m)
		}
		if !all {
			files = append(files, pattern) // is not there, and so makes the configuration damaged
		}
	}
	return files
}

// migrate brings a file of an older version to the plugins of today.
func migrate(t table) {
	plugins := t.sub("plugins")
	version := t.setting("", "version").Number()
	if cri, ok := plugins["cri"].(table); ok && version < 2 {
		plugins[criBefore] = cri // v1MigratePluginName
	}
	before, ok := plugins[criBefore].(table)
	if !ok || version >= 4 {
		return
	}
	if _, ok := plugins[criRuntime].(table); !ok {
		plugins[criRuntime] = table{}
	}
	fill(plugins.sub(criRuntime), before, "containerd")
	into := plugins.sub(criRuntime)
	if _, ok := into["containerd"].(table); !ok {
		into["containerd"] = table{}
	}
	fill(into.sub("containerd"), before.sub("containerd"))
	for _, name := range into.sub("containerd", "runtimes").names() {
		runtime := into.sub("containerd", "runtimes", name)
		if mode, ok := runtime["sandbox_mode"]; ok && runtime["sandboxer"] == nil {
			runtime["sandboxer"] = mode
		}
	}
}

// fill adds to a table what it does not have.
func fill(to, from table, without ...string) {
	for key, value := range from {
		if _, has := to[key]; !has && !slices.Contains(without, key) {
			to[key] = value
		}
	}
}

// handlers adds containerd's handlers.
func (r *Runtimes) handlers(all table, file string) {
	cri := all.sub("plugins", criRuntime)
	runtimes := cri.sub("containerd", "runtimes")
	for _, name := range runtimes.names() {
		t := runtimes.sub(name)
		options := t.sub("options")
		r.Handlers = append(r.Handlers, Handler{
			Name: name, Engine: Containerd,
			Type:                         t.setting(file, "runtime_type"),
			Path:                         t.setting(file, "runtime_path"),
			Config:                       options.setting(file, "ConfigPath"),
			Binary:                       options.setting(file, "BinaryName"),
			PodAnnotations:               t.setting(file, "pod_annotations"),
			ContainerAnnotations:         t.setting(file, "container_annotations"),
			PrivilegedWithoutHostDevices: t.setting(file, "privileged_without_host_devices"),
			AllDevicesAllowed:            t.setting(file, "privileged_without_host_devices_all_devices_allowed"),
			Sandboxer:                    t.setting(file, "sandboxer"),
		})
	}
}
