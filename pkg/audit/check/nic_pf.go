package check

import (
	"fmt"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/facts"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// vfsOf returns the PF's VFs.
func vfsOf(n *facts.Node, pf pci.Address) []pci.Address {
	if f, ok := n.Snapshot.Function(pf); ok && f.PF != nil {
		return f.PF.VFs
	}
	return nil
}

// givingPFs returns the PFs, of any kind, of which a VF is given away, with those VFs.
func givingPFs(n *facts.Node) (pfs []*device.Function, given map[pci.Address][]pci.Address) {
	given = map[pci.Address][]pci.Address{}
	for i := range n.Snapshot.Functions {
		f := &n.Snapshot.Functions[i]
		if f.PF == nil {
			continue
		}
		for _, vf := range f.PF.VFs {
			if n.IsAvailable(vf) {
				given[f.Address] = append(given[f.Address], vf)
			}
		}
		if given[f.Address] != nil {
			pfs = append(pfs, f)
		}
	}
	return pfs, given
}

func hostHasPF(n *facts.Node) []finding.Finding {
	pfs, given := givingPFs(n)
	var found []finding.Finding
	for _, pf := range pfs {
		driver := facts.Fact{Path: fmt.Sprintf("/sys/bus/pci/devices/%s/driver", pf.Address), Value: pf.Driver, How: "link"}
		var said []finding.Finding
		switch held := n.TenanciesOf(pf.Address); {
		case len(held) > 0:
			said = fail(fmt.Sprintf("PF %s is in the hands of claim %s while %s of it are given away", pf.Address, held[0].Claim(), count(len(given[pf.Address]), "VF")), driver)
		case device.IsVFIO(pf.Driver):
			said = fail(fmt.Sprintf("PF %s is on %s while %s of it are given away: whoever opens it controls them", pf.Address, pf.Driver, count(len(given[pf.Address]), "VF")), driver)
		case pf.Driver == "":
			said = fail(fmt.Sprintf("PF %s has no driver: nobody keeps its %s to what is imposed on them", pf.Address, count(len(given[pf.Address]), "VF")), driver)
		default:
			continue
		}
		said[0].Devices = given[pf.Address]
		found = append(found, about(pf, said)...)
	}
	switch {
	case len(pfs) == 0:
		return notApplicable("no VF is given away")
	case len(found) == 0:
		return showing(pass(count(len(pfs), "PF")), pfs, one(driverFact))
	}
	return found
}

// noWholeNIC speaks of cards that a tenant has, or that wait for one on a VFIO driver.
func noWholeNIC(n *facts.Node) []finding.Finding {
	var found []finding.Finding
	var cards []*device.Function
	for _, f := range n.Functions(device.PFType) {
		if f.Class.Base() != pci.BaseNetwork {
			continue
		}
		cards = append(cards, f)
		switch held := n.TenanciesOf(f.Address); {
		case len(held) > 0:
			found = append(found, about(f, fail(fmt.Sprintf("claim %s has the whole card %s", held[0].Claim(), f.Address), recordOf(&held[0])))...)
		case device.IsVFIO(f.Driver):
			found = append(found, about(f, fail(fmt.Sprintf("the whole card %s is on %s, ready to be given away", f.Address, f.Driver), driverFact(f)))...)
		}
	}
	switch {
	case len(cards) == 0:
		return notApplicable("there is no network card")
	case len(found) == 0:
		return showing(pass(count(len(cards), "card")), cards, one(driverFact))
	}
	return found
}

func noAutoprobe(n *facts.Node) []finding.Finding {
	pfs, given := givingPFs(n)
	var found []finding.Finding
	for _, pf := range pfs {
		if !pf.PF.Autoprobe {
			continue
		}
		seen := n.Read(fmt.Sprintf("sys/bus/pci/devices/%s/sriov_drivers_autoprobe", pf.Address))
		said := fail(fmt.Sprintf("host drivers take VFs that PF %s makes, unless an override keeps them off", pf.Address), seen)
		said[0].Devices = given[pf.Address]
		said[0].Remediation = fmt.Sprintf("`echo 0 > %s`", seen.Path)
		found = append(found, about(pf, said)...)
	}
	switch {
	case len(pfs) == 0:
		return notApplicable("no VF is given away")
	case len(found) == 0:
		return showing(pass(count(len(pfs), "PF")), pfs, attributeFile(n, "sriov_drivers_autoprobe"))
	}
	return found
}

// filteredElsewhere reminds of what no file says: where VFs' traffic is filtered.
func filteredElsewhere(n *facts.Node) []finding.Finding {
	var vfs []pci.Address
	for _, f := range networkVFs(n) {
		vfs = append(vfs, f.Address)
	}
	if len(vfs) == 0 {
		return notApplicable("no network VF is given away")
	}
	return []finding.Finding{{
		State: finding.Manual, Devices: vfs,
		Text: fmt.Sprintf("%s given away: no NetworkPolicy reaches their traffic; look at what filters it", count(len(vfs), "VF")),
	}}
}

// noInterface leaves out VFs that wait for their VM on their own driver, which is
// how Kata takes a network interface.
func noInterface(n *facts.Node) []finding.Finding {
	var found []finding.Finding
	var held []*device.Function
	for _, f := range networkVFs(n) {
		for _, t := range n.TenanciesOf(f.Address) {
			if t.Record.State != journal.Prepared || isEndpoint(t.Record, f.Address) {
				continue
			}
			held = append(held, f)
			if len(f.Children.Net) == 0 {
				continue
			}
			names := strings.Join(f.Children.Net, ", ")
			seen := facts.Fact{Path: fmt.Sprintf("/sys/bus/pci/devices/%s/net", f.Address), Value: names, How: "list"}
			found = append(found, about(f, fail(fmt.Sprintf("VF %s of claim %s is the node's interface %s (driver %s)", f.Address, t.Claim(), names, f.Driver), seen))...)
		}
	}
	switch {
	case len(held) == 0:
		return notApplicable("no claim has a VF")
	case len(found) == 0:
		return showing(pass(count(len(held), "VF")), held, one(driverFact))
	}
	return found
}

// isEndpoint reports whether the claim's VM gets the function as a network interface.
func isEndpoint(rec *journal.Record, a pci.Address) bool {
	for i := range rec.Plan.Functions {
		if f := &rec.Plan.Functions[i]; f.Address == a {
			return f.Endpoint != nil
		}
	}
	return false
}
