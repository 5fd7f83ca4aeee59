// Package runtimes reads how the container runtimes of a node are configured: the handlers of containerd and CRI-O, NRI, and Kata's
// configuration for each handler, as their own loaders would read the files on disk. Each setting has the file that it comes from.
package runtimes

import (
	"path"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/cdi"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
)

// Runtimes is the configuration of the node's container runtimes.
type Runtimes struct {
	// Handlers are the handlers that a RuntimeClass can name, by name.
	Handlers []Handler
	// CDIDirs are the directories in which the runtimes look for CDI specs.
	CDIDirs []string
	// NRI is nil if the node has no container runtime.
	NRI *NRI
	// HasCRIO reports whether the node has a configuration of CRI-O.
	HasCRIO bool
	// CRIOff is the setting that disables containerd's CRI plugin. It is not set if the plugin is on.
	CRIOff Setting
	// CDI is containerd's switch for CDI devices, which is on by default.
	CDI Setting
	// ShimCleanup is containerd's limit for ending a VM whose shim was killed.
	ShimCleanup Setting
	// Files are the files that were read, in the order in which they apply.
	Files []facts.Fact
	// Damaged are files that could not be read or parsed: their content is unknown, and the runtime would not start
	// with them.
	Damaged []facts.Fact
}

// Of returns the node's runtimes. It reads them once.
func Of(n *facts.Node) *Runtimes {
	type key struct{}
	return facts.Memo(n, key{}, func() *Runtimes {
		r := &Runtimes{}
		r.addContainerd(n)
		r.addCRIO(n)
		return r
	})
}

// Found reports whether the node has a configuration of a container runtime.
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

// Read implements [facts.FileReader].
func (n onNode) Read(name string) facts.Fact { return read(n.Node, name) }

// Names implements [facts.Tree].
func (n onNode) Names(dir string) ([]string, facts.Fact) { return n.List(n.Real(dir)) }

// IsLink implements [facts.Tree].
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

// NRI is the configuration of NRI, by which plugins see and change containers.
type NRI struct {
	// Enabled says whether NRI is enabled. Switch is the setting that decides it.
	Enabled bool
	Switch  Setting
	// Socket is the socket to which plugins connect. PluginDir is the directory of plugins that the runtime starts itself, and
	// PluginConfigDir that of their configurations.
	Socket, PluginDir, PluginConfigDir Setting
	// DisableConnections refuses plugins on the socket, so that only plugins in PluginDir run.
	DisableConnections Setting
	// Validator enables the built-in validator, which checks the changes that plugins make.
	Validator Setting
	// RequiredPlugins are the plugins without which no container of the node starts.
	RequiredPlugins Setting
	// Tolerate is the annotation by which a pod starts without the required plugins.
	Tolerate Setting
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

// containerdNRI returns containerd's settings of NRI, which is enabled by default since containerd 2.0.
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
