package runtimes

import (
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/audit/facts"
)

// nodeConfig is the plugin's own configuration, which says to which handlers'
// pods it gives devices.
const nodeConfig = "/etc/kata-vfio/node.yaml"

// noPort is what Kata calls a kind of plugging that is switched off, and the
// default of both.
const noPort = "no-port"

// Allowed returns the names of the handlers whose pods the plugin gives devices to:
// those of its configuration where the node has it, or else the default.
func Allowed(n *facts.Node) []string {
	if file := read(n, nodeConfig); file.OK() {
		if c, err := v1alpha1.DecodeNodeConfig([]byte(file.Value)); err == nil {
			c.Default()
			return c.AllowedHandlers
		}
	}
	return []string{v1alpha1.DefaultHandler}
}

// TakesDevices reports whether VMs of the handler can get functions: the plugin
// gives them to it, or Kata is set up to plug some.
func TakesDevices(n *facts.Node, h *Handler, k *Kata) bool {
	return slices.Contains(Allowed(n), h.Name) || k.ColdPlugs() || k.HotPlugs()
}

// ColdPlugs reports whether VMs boot with devices.
func (k *Kata) ColdPlugs() bool { return plugs(k.Hypervisor("cold_plug_vfio")) }

// HotPlugs reports whether running VMs are set up to get devices.
func (k *Kata) HotPlugs() bool { return plugs(k.Hypervisor("hot_plug_vfio")) }

func plugs(s Setting) bool { return s.Text() != "" && s.Text() != noPort }

// VMM returns the hypervisor's name: "qemu".
func (k *Kata) VMM() string { return k.vmm }
