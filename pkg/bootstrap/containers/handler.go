package containers

import (
	"fmt"
	"path"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/blueprint"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
)

// The handlers, as the RuntimeClasses name them.
const (
	gpuHandler = "kata-gpu"
	nicHandler = "kata-vfio"
)

// handler is a runtime handler of containerd or CRI-O, with a Kata configuration of its own.
type handler struct {
	name string
	// base is the Kata configuration that the handler's is copied from.
	base    blueprint.Base
	hotPlug bool
	// dir is the directory of the handler's Kata configuration.
	dir string
	// block is true if guests share no directory with the node, so that their root file systems have to be block devices.
	block bool
}

// handlersBelow returns the handlers of the options, with their Kata configurations below a directory.
func handlersBelow(o *blueprint.Containers, dir string) []handler {
	all := []handler{{name: gpuHandler, base: o.Base, hotPlug: o.HotPlug, dir: path.Join(dir, gpuHandler)}}
	if o.NICHandler {
		all = append(all, handler{name: nicHandler, base: blueprint.BaseNIC, dir: path.Join(dir, nicHandler)})
	}
	return all
}

// config is the handler's Kata configuration, and dropIn bootstrap's file beside it.
func (h *handler) config() string { return path.Join(h.dir, "configuration.toml") }
func (h *handler) dropIn() string { return path.Join(h.dir, "config.d", "50-"+h.name+".toml") }

// otherBase says what to do if the handler's base can't be used.
func (h *handler) otherBase() string {
	if h.name == nicHandler {
		return "remove containers.nicHandler from the blueprint"
	}
	return fmt.Sprintf("choose the other base (containers.base: %s in the blueprint)", h.base.Other())
}

// kataFragment returns the handler's drop-in for Kata. qemu is the section of the VMM in the base configuration.
func (h *handler) kataFragment(k *kata, qemu facts.Table) (string, error) {
	name := flavoured("kata/50-"+h.name, ".toml", k.flavour)
	if h.hotPlug {
		name = "kata/50-" + h.name + "-hotplug.toml"
	}
	text, err := fragment(name, k)
	if err == nil && needsVirtiofsd(k.flavour, qemu.Setting("", "shared_fs")) {
		text = withoutBlockDevices(withVirtiofsdArgs(text, qemu.Setting("", "virtio_fs_extra_args").List()))
	}
	return text, err
}

// engineFragment returns the drop-in of containerd or CRI-O, from one shipped file for each handler. The first one also
// has the settings that all handlers share.
func (k *kata) engineFragment(ext string, names map[string]string) (string, error) {
	var all strings.Builder
	for i, h := range k.handlers {
		text, err := fragment(flavoured(names[h.name], ext, k.flavour), k)
		if err != nil {
			return "", err
		}
		if i > 0 {
			// Each fragment begins with the shared settings, and TOML refuses a table that is there twice.
			text = "\n# The handler " + h.name + ", for pods with NICs only: its VM is smaller.\n" + afterHead(text)
		}
		all.WriteString(text)
	}
	return all.String(), nil
}

// afterHead returns a TOML text from its first table on.
func afterHead(text string) string {
	if i := strings.Index(text, "\n["); i >= 0 {
		return text[i+1:]
	}
	return text
}

// called names the handlers for display: "the handler kata-gpu".
func (k *kata) called() string {
	if len(k.handlers) == 1 {
		return "the handler " + k.handlers[0].name
	}
	var names []string
	for _, h := range k.handlers {
		names = append(names, h.name)
	}
	return "the handlers " + strings.Join(names, " and ")
}
