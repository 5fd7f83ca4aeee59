package check

import (
	"fmt"
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/audit/facts"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/cdi"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
)

// agreementChecks returns the node's side of OBS-005.
func agreementChecks() []Check {
	return []Check{{Rule: finding.Rule{
		ID: "OBS-005", Title: "Journal, kernel and CDI agree on what is prepared", Severity: isolation.High,
		Why:    "where they differ, a device is somebody's by one account and free by another",
		Fix:    "restart the plugin, which brings records to an end and writes specs anew; delete the pod of a claim that stays at odds",
		Verify: "ls /var/lib/kata-vfio/journal /run/cdi; ls -l /sys/bus/pci/devices/*/driver",
	}, Judge: accountsAgree}}
}

func accountsAgree(n *facts.Node) []finding.Finding {
	return judgeRecords(n, "what is prepared", func(rec *journal.Record) []finding.Finding {
		switch {
		case rec.State == journal.Quarantined:
			return nil
		case !n.IsThisBoot(rec):
			f := fail(fmt.Sprintf("%s is %s by a record from before the node's last start", claimName(rec), rec.State), recordFact(rec, rec.BootID))
			f[0].Devices = rec.Plan.Addresses()
			return f
		case rec.State != journal.Prepared:
			return nil // on its way
		}
		var found []finding.Finding
		for i := range rec.Plan.Functions {
			found = append(found, functionAgrees(n, rec, &rec.Plan.Functions[i])...)
		}
		return append(found, specAgrees(n, rec)...)
	})
}

// functionAgrees compares one function of a prepared claim with the kernel. A
// physical endpoint is with whom Kata has bound it.
func functionAgrees(n *facts.Node, rec *journal.Record, fn *plan.Function) []finding.Finding {
	f, ok := n.Snapshot.Function(fn.Address)
	switch {
	case !ok:
		return onFunction(fn.Address, fail(fmt.Sprintf("%s of %s is not on the bus", fn.Address, claimName(rec)), recordFact(rec, fn.Address.String())))
	case fn.Endpoint != nil || f.Locked:
		return nil
	case f.Driver != fn.Target.Driver:
		return onFunction(fn.Address, fail(fmt.Sprintf("%s of %s is on %s, not on %s", fn.Address, claimName(rec),
			orElse(f.Driver, "no driver"), fn.Target.Driver), driverFact(f), recordFact(rec, fn.Target.Driver)))
	case f.Group != nil && *f.Group != fn.Group:
		return onFunction(fn.Address, fail(fmt.Sprintf("%s of %s is in IOMMU group %d, and was in %d", fn.Address, claimName(rec), *f.Group, fn.Group), recordFact(rec, fmt.Sprint(fn.Group))))
	}
	return nil
}

// specAgrees looks for the claim's devices in its CDI spec.
func specAgrees(n *facts.Node, rec *journal.Record) []finding.Finding {
	all, dirs := n.Specs()
	i := slices.IndexFunc(all, func(s facts.Spec) bool { return s.Claim == rec.ID() })
	if i < 0 {
		f := fail(claimName(rec)+" is prepared and has no CDI spec", append(slices.Clone(dirs), recordFact(rec, string(rec.State)))...)
		f[0].Devices = rec.Plan.Addresses()
		return f
	}
	given := n.Gives(&all[i])
	for j := range rec.Plan.Devices {
		d := &rec.Plan.Devices[j]
		name := cdi.DeviceName(rec.ID(), d.Name)
		has := slices.ContainsFunc(given, func(g facts.Given) bool { return g.Device == name && !g.IsControl() })
		if d.Attachment != v1alpha1.AttachPhysicalEndpoint && !has {
			return onFunction(d.Address, fail(fmt.Sprintf("the CDI spec of %s has no VFIO node for %s", claimName(rec), d.Address), specFact(n, &all[i])))
		}
	}
	return nil
}
