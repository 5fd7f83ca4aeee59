package check

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/facts"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// vfioBindingChecks returns the checks of how functions came to VFIO's drivers.
func vfioBindingChecks() []Check {
	bound := "ls -l /sys/bus/pci/drivers/vfio-pci; grep -Hv null /sys/bus/pci/devices/*/driver_override"
	return []Check{
		{Rule: finding.Rule{
			ID: "VFIO-003", Title: "vfio-pci takes no function by its ids", Severity: isolation.Medium,
			Why:     "ids match every function of the model, and so the one that is plugged in tomorrow",
			Fix:     "take vfio-pci.ids out of the command line and modprobe.d; the plugin binds by driver_override",
			Verify:  "grep -o 'vfio.pci.ids=[^ ]*' /proc/cmdline; grep -r 'vfio.pci.*ids=' /etc/modprobe.d",
			Sources: []string{"Linux: drivers/vfio/pci/vfio_pci.c (the parameter has no file in sysfs)"},
		}, Judge: noIDs},
		{Rule: finding.Rule{
			ID: "VFIO-004", Title: "Each function on vfio-pci is there for a reason that can be seen", Severity: isolation.Medium, Cheap: true,
			Why:     "an id written to new_id leaves no trace, and gives every function of the model to VFIO",
			Fix:     "write the id to /sys/bus/pci/drivers/vfio-pci/remove_id, and unbind the function",
			Verify:  bound,
			Sources: []string{"Linux: Documentation/ABI/testing/sysfs-bus-pci"},
		}, Judge: boundForAReason},
		{Rule: finding.Rule{
			ID: "VFIO-005", Title: "driver_override and drivers agree, now and in driverctl's files", Severity: isolation.Medium, Cheap: true,
			Why:     "a stale override gives the function to that driver after the next hot-plug or reset of the bus",
			Fix:     "`echo > driver_override`, and `driverctl unset-override` where driverctl set it",
			Verify:  bound + "; grep -r . /etc/driverctl.d",
			Sources: []string{"Linux: Documentation/ABI/testing/sysfs-bus-pci"},
		}, Judge: overridesAgree},
		{Rule: finding.Rule{
			ID: "VFIO-006", Title: "No function is with VFIO that the plugin does not know", Severity: isolation.Medium, Cheap: true,
			Why:    "whoever gets its node has it, and nobody resets or watches it",
			Fix:    "unbind it, or enter it into the node's configuration so that the plugin has it",
			Verify: bound,
		}, Judge: noOrphans},
		{Rule: finding.Rule{
			ID: "VFIO-014", Title: "No function is driven from user space without VFIO", Severity: isolation.High, Cheap: true,
			Why:     "UIO gives a process the function's registers and DMA without asking the IOMMU",
			Fix:     "unbind the function, unload the module, and use vfio-pci in its place",
			Verify:  "ls -l /sys/bus/pci/drivers/uio_pci_generic /sys/bus/pci/drivers/igb_uio",
			Sources: []string{"Linux: drivers/uio/uio_pci_generic.c"},
		}, Judge: noUIO},
	}
}

// configuredIDs returns the ids that vfio-pci is told to take, with where it is.
func configuredIDs(n *facts.Node) []facts.Fact {
	setting := n.Parameter("vfio-pci", "ids")
	ids := setting.Configured
	for _, value := range n.Arguments("vfio-pci.ids") {
		ids = append(ids, facts.Fact{Path: n.Cmdline().Path, Value: value, How: "read"})
	}
	return slices.DeleteFunc(ids, func(f facts.Fact) bool { return f.Value == "" })
}

func noIDs(n *facts.Node) []finding.Finding {
	ids := configuredIDs(n)
	if len(ids) == 0 {
		if line := n.Cmdline(); !line.OK() {
			return unknown("which ids vfio-pci takes", line)
		}
		_, files := n.List("etc/modprobe.d")
		return pass("none are set", n.Cmdline(), files)
	}
	last := ids[len(ids)-1]
	f := fail(fmt.Sprintf("%s has vfio-pci take every function with the ids %s", last.Path, last.Value), ids...)
	for _, fn := range n.Functions() {
		if matchesIDs(fn, ids) {
			f[0].Devices = append(f[0].Devices, fn.Address)
		}
	}
	return f
}

// matchesIDs reports whether a function has one of the ids: "vendor:device" and
// more, in hexadecimal, separated by commas.
func matchesIDs(f *device.Function, ids []facts.Fact) bool {
	name := fmt.Sprintf("%04x:%04x", uint16(f.Vendor), uint16(f.Device))
	return slices.ContainsFunc(ids, func(fact facts.Fact) bool {
		for id := range strings.SplitSeq(strings.ToLower(fact.Value), ",") {
			if id == name || strings.HasPrefix(id, name+":") {
				return true
			}
		}
		return false
	})
}

// onVFIO asks about each function that a VFIO driver has.
func onVFIO(n *facts.Node, wrong func(*device.Function) []finding.Finding) []finding.Finding {
	var found []finding.Finding
	var looked []*device.Function
	for i := range n.Snapshot.Functions {
		f := &n.Snapshot.Functions[i]
		switch {
		case f.Locked:
			found = append(found, about(f, unknown(fmt.Sprintf("what binds %s (an operation on it hangs in the kernel)", f.Address)))...)
		case device.IsVFIO(f.Driver):
			looked = append(looked, f)
			found = append(found, about(f, wrong(f))...)
		}
	}
	switch {
	case len(found) > 0:
		return found
	case len(looked) == 0:
		return notApplicable("VFIO has no function")
	}
	return showing(pass(count(len(looked), "function")), looked, boundBy)
}

func driverFact(f *device.Function) facts.Fact {
	seen := facts.Fact{Path: "/sys/bus/pci/devices/" + f.Address.String() + "/driver", Value: f.Driver, How: "link"}
	if f.Driver == "" {
		seen.Status = facts.Absent
	}
	return seen
}

// boundBy is which driver has a function, and what it was told of that.
func boundBy(f *device.Function) []facts.Fact { return []facts.Fact{driverFact(f), overrideFact(f)} }

func overrideFact(f *device.Function) facts.Fact {
	return facts.Fact{Path: "/sys/bus/pci/devices/" + f.Address.String() + "/driver_override", Value: orElse(f.DriverOverride, "(null)"), How: "read"}
}

// isKnown reports whether the plugin's files have the function.
func isKnown(n *facts.Node, f *device.Function) bool {
	offered, _ := n.IsOffered(f.Address)
	return offered || n.IsBound(f.Address) || len(n.TenanciesOf(f.Address)) > 0
}

// boundForAReason is about vfio-pci alone: its variants take no function without an
// override (include/linux/pci.h PCI_DRIVER_OVERRIDE_DEVICE_VFIO).
func boundForAReason(n *facts.Node) []finding.Finding {
	ids := configuredIDs(n)
	return onVFIO(n, func(f *device.Function) []finding.Finding {
		if f.Driver != device.GenericVFIO || f.DriverOverride != "" || isKnown(n, f) || matchesIDs(f, ids) {
			return nil
		}
		return fail(fmt.Sprintf("%s is on vfio-pci, and neither an override nor ids nor the plugin say why", f.Address), driverFact(f), overrideFact(f))
	})
}

func noOrphans(n *facts.Node) []finding.Finding {
	return onVFIO(n, func(f *device.Function) []finding.Finding {
		if isKnown(n, f) {
			return nil
		}
		what := fmt.Sprintf("whether the plugin knows %s", f.Address)
		if dir := n.Journal(); !dir.Known() {
			return unknown(what, dir)
		}
		if len(n.Damaged) > 0 {
			return unknown(what, n.Damaged...)
		}
		return fail(fmt.Sprintf("%s is on %s, and the plugin has no record of it", f.Address, f.Driver), driverFact(f))
	})
}

func overridesAgree(n *facts.Node) []finding.Finding {
	found := staleKept(n)
	for i := range n.Snapshot.Functions {
		f := &n.Snapshot.Functions[i]
		if f.DriverOverride != "" && f.Driver != "" && f.DriverOverride != f.Driver {
			found = append(found, about(f, fail(fmt.Sprintf("%s is on %s, and its override says %s", f.Address, f.Driver, f.DriverOverride), driverFact(f), overrideFact(f)))...)
		}
	}
	if len(found) == 0 {
		all := n.Functions()
		said := pass(count(len(n.Snapshot.Functions), "function"))
		said = showing(said, all, boundBy)
		said[0].LeftOut += len(n.Snapshot.Functions) - len(all)
		return said
	}
	return found
}

// staleKept returns the files of driverctl's that say other than the overrides now.
func staleKept(n *facts.Node) []finding.Finding {
	var found []finding.Finding
	for _, kept := range n.Glob("etc/driverctl.d", "pci-*") {
		addr, err := pci.ParseAddress(strings.TrimPrefix(path.Base(kept.Path), "pci-"))
		if err != nil {
			continue
		}
		f, ok := n.Snapshot.Function(addr)
		if ok && kept.OK() && !f.Locked && kept.Value != f.DriverOverride {
			found = append(found, about(f, fail(fmt.Sprintf("driverctl gives %s to %s at boot, and its override now says %s",
				f.Address, kept.Value, orElse(f.DriverOverride, "nothing")), kept, overrideFact(f)))...)
		}
	}
	return found
}

func noUIO(n *facts.Node) []finding.Finding {
	var found []finding.Finding
	for i := range n.Snapshot.Functions {
		if f := &n.Snapshot.Functions[i]; device.SameDriver(f.Driver, "uio_pci_generic") || device.SameDriver(f.Driver, "igb_uio") {
			found = append(found, about(f, fail(fmt.Sprintf("%s is on %s", f.Address, f.Driver), driverFact(f)))...)
		}
	}
	if len(found) == 0 {
		_, generic := n.List("sys/bus/pci/drivers/uio_pci_generic")
		_, igb := n.List("sys/bus/pci/drivers/igb_uio")
		return pass("none is", generic, igb)
	}
	return found
}
