package inventory_test

import (
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/inventory"
)

// message joins the parts of a uevent as the kernel sends them.
func message(parts ...string) []byte { return []byte(strings.Join(parts, "\x00") + "\x00") }

func TestParseUevent(t *testing.T) {
	tests := []struct {
		name string
		data []byte
		want inventory.Uevent
	}{
		{
			"a function is bound",
			message("bind@/devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0", "ACTION=bind", "DEVPATH=/devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0",
				"SUBSYSTEM=pci", "DRIVER=vfio-pci", "PCI_SLOT_NAME=0000:3b:00.0", "SEQNUM=4711"),
			inventory.Uevent{Action: "bind", Path: "/devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0", Subsystem: "pci"},
		},
		{
			"no subsystem",
			message("add@/devices/system/x", "SEQNUM=1"),
			inventory.Uevent{Action: "add", Path: "/devices/system/x"},
		},
		{
			"a path with an @",
			message("add@/devices/platform/bus@0/pci0002:00", "SUBSYSTEM=pci"),
			inventory.Uevent{Action: "add", Path: "/devices/platform/bus@0/pci0002:00", Subsystem: "pci"},
		},
	}
	for _, tt := range tests {
		got, err := inventory.ParseUevent(tt.data)
		if err != nil || got != tt.want {
			t.Errorf("%s: %+v, %v; want %+v", tt.name, got, err, tt.want)
		}
	}
	for _, bad := range [][]byte{
		nil,
		{0},
		[]byte("add@/devices/x"), message("add"), message("@/devices/x"), message("add@devices/x"),
		message("libudev", "\xfe\xed\xca\xfe"), // what udev sends on
	} {
		if got, err := inventory.ParseUevent(bad); err == nil {
			t.Errorf("ParseUevent(%q) = %+v, want an error", bad, got)
		}
	}
}

func FuzzParseUevent(f *testing.F) {
	f.Add(message("bind@/devices/pci0000:3a/0000:3b:00.0", "ACTION=bind", "SUBSYSTEM=pci"))
	f.Add(message("libudev"))
	f.Add([]byte("@\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		ev, err := inventory.ParseUevent(data)
		if err == nil && (ev.Action == "" || !strings.HasPrefix(ev.Path, "/")) {
			t.Errorf("%q was read as %+v", data, ev)
		}
	})
}
