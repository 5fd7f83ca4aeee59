package board

import (
	"encoding/json"
	"fmt"
	"os"
	"path"
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/audit/facts"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/network/vf/link"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
)

// goodNic sets up what the checks of NIC look at; each PF is shown by [Tree.ShowPF].
func (t *Tree) goodNic() { t.saveLinks(&facts.Links{}) }

// ShowPF has a PF with its VFs say by netlink what a careful operator imposes, and
// leave new VFs alone. It comes when the VFs are there.
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

// ConfigureVFs has the claim's record say that the PFs were told what they impose on its
// VFs now, and binds these to VFIO.
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
	link, err := os.Readlink(t.Path(dir + "/driver"))
	driver := path.Base(link)
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
