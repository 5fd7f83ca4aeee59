package runtimes

import (
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/audit/facts/runtimes/config"
)

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

func orDefault(s Setting, path string) string {
	if text := s.Text(); text != "" {
		return text
	}
	return path
}

// containerdNRI returns containerd's NRI, which is on unless it is switched off, as
// since 2.0.
func containerdNRI(all config.Table, file string) *NRI {
	t := all.Sub("plugins", config.NRI)
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
	if off := all.Setting(file, "disabled_plugins"); slices.Contains(off.List(), config.NRI) {
		n.Enabled, n.Switch = false, off
	}
	return n
}
