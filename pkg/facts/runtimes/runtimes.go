// Package runtimes tells what the container runtimes of a node are set up to do:
// the handlers of containerd and CRI-O, NRI, and Kata's configuration for each
// handler, as their own loaders would have it of the files on disk. Each setting
// keeps the file that it comes from.
package runtimes

import (
	"path"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/cdi"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
)

// Runtimes is what the node's container runtimes are set up to do.
type Runtimes struct {
	// Handlers are what a RuntimeClass can name, by name.
	Handlers []Handler
	// CDIDirs are where CDI specs are looked for.
	CDIDirs []string
	// NRI is nil without a container runtime.
	NRI *NRI
	// HasCRIO reports whether the node has a configuration of CRI-O.
	HasCRIO bool
	// CRIOff switches containerd's CRI plugin off. It is not set if the plugin is on.
	CRIOff Setting
	// CDI is containerd's switch for CDI devices, which is on by default.
	CDI Setting
	// ShimCleanup is containerd's limit for ending a VM whose shim was killed.
	ShimCleanup Setting
	// Files are those that were read, in the order in which they count.
	Files []facts.Fact
	// Damaged are files that could not be read or parsed: their content is unknown, and the runtime would not start
	// with them.
	Damaged []facts.Fact
}

// Of returns the node's runtimes. It is worked out once.
func Of(n *facts.Node) *Runtimes {
	type key struct{}
	return facts.Memo(n, key{}, func() *Runtimes {
		r := &Runtimes{}
		r.addContainerd(n)
		r.addCRIO(n)
		return r
	})
}

// Found reports whether the node has a container runtime that is set up.
func (r *Runtimes) Found() bool { return len(r.Files)+len(r.Damaged) > 0 }

// Kata returns the handlers that are Kata's.
func (r *Runtimes) Kata() []Handler {
	var kata []Handler
	for _, h := range r.Handlers {
		if h.IsKata() {
			kata = append(kata, h)
		}
	}
	return kata
}

// Setting is one setting as all files together have it.
type Setting = facts.TableSetting

// onNode reads a node's files, through absolute links too.
type onNode struct{ *facts.Node }

// Read implements [config.FileReader].
func (n onNode) Read(name string) facts.Fact { return read(n.Node, name) }

// Names implements [config.DirReader].
func (n onNode) Names(dir string) ([]string, facts.Fact) { return n.List(n.Real(dir)) }

// IsLink implements [config.DirReader].
func (n onNode) IsLink(name string) bool {
	return n.Real(name) != path.Join(n.Real(path.Dir(name)), path.Base(name))
}

// read reads a file of the node, through absolute links too.
func read(n *facts.Node, name string) facts.Fact {
	f := n.Read(n.Real(name))
	f.Path = "/" + strings.TrimPrefix(name, "/")
	return f
}

// addCDIDirs adds the directories of a setting, or the default ones of both engines.
func (r *Runtimes) addCDIDirs(s Setting) {
	dirs := s.List()
	if !s.IsSet() {
		dirs = cdi.Dirs()
	}
	for _, dir := range dirs {
		if !slices.Contains(r.CDIDirs, dir) {
			r.CDIDirs = append(r.CDIDirs, dir)
		}
	}
}

// NRI is how the container runtime lets plugins look at and change containers.
type NRI struct {
	// Enabled, and the setting that says so.
	Enabled bool
	Switch  Setting
	// Socket is where plugins connect, PluginDir what is started from.
	Socket, PluginDir, PluginConfigDir Setting
	// DisableConnections leaves PluginDir as the only way for plugins.
	DisableConnections Setting
	// Validator is whether the validator that is built in judges what plugins did.
	Validator Setting
	// RequiredPlugins are those without which no container of the node starts.
	RequiredPlugins Setting
	// Tolerate is an annotation by which a pod excuses itself from them.
	Tolerate Setting
	// Rejects are what the validator refuses plugins: hooks, seccomp, namespaces.
	Rejects []Setting
}

// Defaults of NRI (github.com/containerd/nri pkg/api, pkg/adaptation).
const (
	defaultSocket    = "/var/run/nri/nri.sock"
	defaultPluginDir = "/opt/nri/plugins"
)

// SocketPath returns where plugins connect.
func (n *NRI) SocketPath() string { return orDefault(n.Socket, defaultSocket) }

// PluginPath returns the directory of plugins that the runtime starts itself.
func (n *NRI) PluginPath() string { return orDefault(n.PluginDir, defaultPluginDir) }

func orDefault(s Setting, file string) string {
	if text := s.Text(); text != "" {
		return text
	}
	return file
}

// containerdNRI returns containerd's NRI, which is on unless it is switched off, as
// since 2.0.
func containerdNRI(all facts.Table, file string) *NRI {
	t := all.Sub("plugins", facts.NRI)
	v := t.Sub("default_validator")
	n := &NRI{
		Switch: t.Setting(file, "disable"),
		Socket: t.Setting(file, "socket_path"), PluginDir: t.Setting(file, "plugin_path"),
		PluginConfigDir:    t.Setting(file, "plugin_config_path"),
		DisableConnections: t.Setting(file, "disable_connections"),
		Validator:          v.Setting(file, "enable"),
		RequiredPlugins:    v.Setting(file, "required_plugins"),
		Tolerate:           v.Setting(file, "tolerate_missing_plugins_annotation"),
	}
	for _, key := range []string{
		"reject_oci_hook_adjustment", "reject_unconfined_seccomp_adjustment", "reject_namespace_adjustment",
	} {
		n.Rejects = append(n.Rejects, v.Setting(file, key))
	}
	n.Enabled = !n.Switch.On()
	// containerd does not load a plugin that this list names, whatever the plugin's own section says.
	if off := all.Setting(file, "disabled_plugins"); slices.Contains(off.List(), facts.NRI) {
		n.Enabled, n.Switch = false, off
	}
	return n
}

// Specs returns the CDI specs that the node's runtimes read, by path, and the directories that they are in.
func Specs(n *facts.Node) ([]facts.Spec, []facts.Fact) {
	type key struct{}
	type specs struct {
		all  []facts.Spec
		dirs []facts.Fact
	}
	s := facts.Memo(n, key{}, func() specs {
		all, dirs := n.SpecsIn(Of(n).CDIDirs)
		return specs{all, dirs}
	})
	return s.all, s.dirs
}
