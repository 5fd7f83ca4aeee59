package board

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"slices"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/inventory"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/network/vf/link"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
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
	data, err := json.Marshal(facts.NewBaseline(s))
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

// goodNic sets up what the checks of NIC look at; each PF is shown by [Tree.ShowPF].
func (t *Tree) goodNic() { t.saveLinks(&facts.Links{}) }

// ShowPF makes a PF report by netlink the settings that a careful operator imposes on its VFs, and switches the probing of
// drivers for new VFs off. Call it when the VFs exist.
func (t *Tree) ShowPF(pf pci.Address, name string) {
	t.TB.Helper()
	u := facts.Uplink{PF: pf, Eswitch: link.Legacy, Pause: &link.Pause{}, Link: &link.Link{Name: name, Parent: pf.String(), Up: true, Carrier: true}}
	for i := range t.VFs(pf) {
		unit := fmt.Sprintf("%02x:%02x", pf.Bus, i+1)
		u.Link.VFs = append(u.Link.VFs, link.State{Settings: device.VFSettings{
			MAC: "02:00:5e:10:" + unit, VLAN: &device.VLAN{ID: 100 + i, Protocol: "802.1Q"}, Rate: &device.TxRate{Max: 10000},
			LinkState: "auto", SpoofCheck: new(true), RSSQuery: new(false), Trust: new(false),
			NodeGUID: "02:00:5e:10:00:00:" + unit, PortGUID: "02:00:5e:10:00:01:" + unit,
		}})
	}
	links := t.links()
	links.PFs = append(links.PFs, u)
	t.saveLinks(links)
	t.Put(fmt.Sprintf("sys/bus/pci/devices/%s/sriov_drivers_autoprobe", pf), "0\n")
}

// ConfigureVFs writes into the claim's record that the PFs were told the settings that they impose on its VFs now, and binds
// these VFs to VFIO.
func (t *Tree) ConfigureVFs(rec *journal.Record) {
	t.TB.Helper()
	for _, u := range t.links().PFs {
		for index, vf := range t.VFs(u.PF) {
			for i := range rec.Plan.Functions {
				if f := &rec.Plan.Functions[i]; f.Address == vf {
					f.PF, f.VF = new(u.PF), &plan.VFChange{Index: index, Want: u.Link.VFs[index].Settings}
					t.toVFIO(vf)
				}
			}
		}
	}
	t.Save(rec)
}

// toVFIO takes a function from its driver, as prepare does.
func (t *Tree) toVFIO(a pci.Address) {
	t.TB.Helper()
	dir := "sys/bus/pci/devices/" + a.String()
	target, err := os.Readlink(t.Path(dir + "/driver"))
	driver := path.Base(target)
	if err == nil && device.IsVFIO(driver) {
		return
	}
	writes := [][2]string{{dir + "/driver_override", "vfio-pci"}, {"sys/bus/pci/drivers_probe", a.String()}}
	if err == nil {
		writes = slices.Insert(writes, 1, [2]string{"sys/bus/pci/drivers/" + driver + "/unbind", a.String()})
	}
	for _, w := range writes {
		if err := t.Write(w[0], []byte(w[1])); err != nil {
			t.TB.Fatal(err)
		}
	}
}

// ChangePF changes what a PF says by netlink.
func (t *Tree) ChangePF(pf pci.Address, change func(*facts.Uplink)) {
	t.TB.Helper()
	links := t.links()
	for i := range links.PFs {
		if links.PFs[i].PF == pf {
			change(&links.PFs[i])
		}
	}
	t.saveLinks(links)
}

// ChangeVF changes what a PF imposes on a VF.
func (t *Tree) ChangeVF(pf pci.Address, index int, change func(*device.VFSettings)) {
	t.TB.Helper()
	t.ChangePF(pf, func(u *facts.Uplink) { change(&u.Link.VFs[index].Settings) })
}

func (t *Tree) links() *facts.Links {
	t.TB.Helper()
	var links facts.Links
	data, err := os.ReadFile(t.Path(facts.LinksFile))
	if err == nil {
		err = json.Unmarshal(data, &links)
	}
	if err != nil {
		t.TB.Fatal(err)
	}
	return &links
}

func (t *Tree) saveLinks(links *facts.Links) {
	t.TB.Helper()
	data, err := json.Marshal(links)
	if err != nil {
		t.TB.Fatal(err)
	}
	t.Put(facts.LinksFile, string(data))
}
