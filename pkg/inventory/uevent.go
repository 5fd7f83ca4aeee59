package inventory

import (
	"bytes"
	"fmt"
	"strings"
)

// Uevent is a message of the kernel about a device (lib/kobject_uevent.c).
type Uevent struct {
	// Action is "add", "remove", "change", "move", "online", "offline", "bind" or "unbind".
	Action string
	// Path is the device's place below /sys: "/devices/pci0000:3a/...".
	Path string
	// Subsystem is the class or bus: "pci", "net", "vfio".
	Subsystem string
}

// ParseUevent decodes a message of the kernel: "action@path" and then
// variables "NAME=value", each ended by a NUL. Messages of udev, which begin
// otherwise, are an error.
func ParseUevent(data []byte) (Uevent, error) {
	header, rest, ok := bytes.Cut(data, []byte{0})
	action, path, ok2 := strings.Cut(string(header), "@")
	if !ok || !ok2 || action == "" || !strings.HasPrefix(path, "/") {
		return Uevent{}, fmt.Errorf("uevent begins with %.40q, want action@path", data)
	}
	ev := Uevent{Action: action, Path: path}
	for field := range bytes.SplitSeq(rest, []byte{0}) {
		if value, ok := bytes.CutPrefix(field, []byte("SUBSYSTEM=")); ok {
			ev.Subsystem = string(value)
		}
	}
	return ev, nil
}
