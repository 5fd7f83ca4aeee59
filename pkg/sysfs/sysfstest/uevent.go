package sysfstest

import (
	"path"
	"strings"
)

// Uevent is what the kernel says of a device that comes, goes or changes
// (lib/kobject_uevent.c).
type Uevent struct {
	// Action is "add", "remove", "change", "bind" or "unbind".
	Action string
	// Path is the device's place below /sys: "/devices/pci0000:3a/...".
	Path string
	// Subsystem is the class or bus: "pci", "net", "vfio".
	Subsystem string
}

// OnUevent has hook called with each uevent from now on, in order. It must neither
// block nor call the Kernel.
func (k *Kernel) OnUevent(hook func(Uevent)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.script.uevent = hook
}

// say sends a uevent about what is at dir, below the node's root. Callers hold mu.
func (k *Kernel) say(action, dir, subsystem string) {
	if k.script.uevent != nil {
		k.script.uevent(Uevent{Action: action, Path: "/" + strings.TrimPrefix(path.Clean(dir), "sys/"), Subsystem: subsystem})
	}
}
