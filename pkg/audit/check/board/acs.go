package board

import (
	"encoding/binary"
	"encoding/json"
	"os"
	"path"
	"slices"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/audit/facts"
	"github.com/kata-vfio/kata-vfio/pkg/inventory"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
)

// goodAcs sets up what the checks of acs look at.
func (t *Tree) goodAcs() {
	for _, name := range []string{"panic_on_io_nmi", "unknown_nmi_panic", "panic_on_unrecovered_nmi"} {
		t.Put("proc/sys/kernel/"+name, "0\n")
	}
}

// Switch is a server with two GPUs of two tenants behind one PCIe switch, and a
// third that nobody has behind a root port of its own.
func Switch(tb testing.TB) *Tree {
	tb.Helper()
	t := New(tb)
	at := func(bus, dev uint8) pci.Address { return pci.Address{Bus: bus, Device: dev} }
	t.AddRoot(sysfstest.Root{Bus: 0x20})
	t.AddPort(sysfstest.Port{Address: at(0x20, 1), Secondary: 0x21, Subordinate: 0x24})
	t.AddPort(sysfstest.Port{Address: at(0x20, 2), Secondary: 0x30})
	t.AddSwitch(sysfstest.Switch{Upstream: at(0x21, 0), Secondary: 0x22, Ports: []sysfstest.Port{
		{Address: at(0x22, 0), Secondary: 0x23},
		{Address: at(0x22, 1), Secondary: 0x24},
	}})
	t.Devices["upstream"], t.Devices["port"], t.Devices["left/port"], t.Devices["right/port"] = at(0x21, 0), at(0x20, 1), at(0x22, 0), at(0x22, 1)
	for name, a := range map[string]pci.Address{"left": at(0x23, 0), "right": at(0x24, 0), "spare": at(0x30, 0)} {
		t.Add(sysfstest.GPU(a))
		t.Devices[name] = a
	}
	t.Keep(t.Devices["spare"])
	t.ClearMaster(t.Devices["spare"])
	t.Give("t1", "left", t.Devices["left"])
	t.Give("t2", "right", t.Devices["right"])
	t.KeepBaseline()
	return t
}

// KeepBaseline writes what the plugin keeps of the node when it first starts.
func (t *Tree) KeepBaseline() {
	t.TB.Helper()
	fsys, err := sysfs.Open(t.Root())
	if err != nil {
		t.TB.Fatal(err)
	}
	defer func() { _ = fsys.Close() }()
	s, err := inventory.Scan(t.TB.Context(), fsys)
	if err != nil {
		t.TB.Fatal(err)
	}
	data, err := json.Marshal(facts.BaselineOf(s))
	if err != nil {
		t.TB.Fatal(err)
	}
	t.Put("run/kata-vfio/"+facts.BaselineFile, string(data))
}

// SetACS writes a function's ACS control register, as setpci does.
func (t *Tree) SetACS(a pci.Address, control uint16) {
	t.TB.Helper()
	t.setRegister(a, 0x0d, 6, control)
}

// ClearMaster takes bus mastering from a function, as VFIO does with one that
// nobody has open.
func (t *Tree) ClearMaster(a pci.Address) {
	t.TB.Helper()
	t.SetConfig(a, 4, 0x02)
}

// EnableATS switches a function's address translation services on.
func (t *Tree) EnableATS(a pci.Address) {
	t.TB.Helper()
	t.setRegister(a, 0x0f, 6, 0x8000)
}

// CutConfig leaves the 64 bytes of a function's configuration space that a reader
// without CAP_SYS_ADMIN gets.
func (t *Tree) CutConfig(a pci.Address) {
	t.TB.Helper()
	name := path.Join("sys/bus/pci/devices", a.String(), "config")
	if err := os.Truncate(t.Path(name), 64); err != nil {
		t.TB.Fatal(err)
	}
}

// setRegister writes a word of an extended capability.
func (t *Tree) setRegister(a pci.Address, id uint16, offset int, value uint16) {
	t.TB.Helper()
	config, err := os.ReadFile(t.Path(path.Join("sys/bus/pci/devices", a.String(), "config")))
	if err != nil {
		t.TB.Fatal(err)
	}
	chain, _ := pci.Chain(config)
	i := slices.IndexFunc(chain, func(c pci.Capability) bool { return c.Extended && c.ID == id })
	if i < 0 {
		t.TB.Fatalf("%s has no extended capability 0x%02x", a, id)
	}
	t.SetConfig(a, chain[i].Offset+offset, binary.LittleEndian.AppendUint16(nil, value)...)
}
