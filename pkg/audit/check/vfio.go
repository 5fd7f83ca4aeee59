package check

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/kernelargs"
)

// vfioChecks returns the checks of group VFIO: functions are bound to VFIO as intended, and held by the
// VMMs of their claims.
func vfioChecks() []Check {
	return slices.Concat(vfioModuleChecks(), vfioBindingChecks(), vfioHolderChecks(), vfioNodeChecks(), vfioSpeedChecks())
}

// vfioModuleChecks are about vfio-pci's parameters.
func vfioModuleChecks() []Check {
	return []Check{
		ofSettings("VFIO-001"),
		ofSettings("VFIO-002"),
		{ID: "VFIO-015", Judge: legacyOff},
	}
}

// legacyOff judges VGA only if a card of that class is assignable.
func legacyOff(n *facts.Node) Answer {
	said := judgeSettings(n, kernelSettings()["VFIO-015"]...)
	vga := slices.ContainsFunc(assignable(n), func(f *device.Function) bool { return f.Class.Sub() == pci.ClassVGA })
	if !vga || said[0].State == finding.Fail {
		return said
	}
	legacy := parameter{
		"vfio_pci", "disable_vga",
		[]string{"Y"},
		fmt.Sprintf("the holder of a VGA card can reach the legacy range of all cards (class %04x)", uint16(pci.ClassVGA)), "the kernel lacks CONFIG_VFIO_PCI_VGA",
	}.judge(n)
	if legacy[0].State == finding.NotApplicable { // a kernel without CONFIG_VFIO_PCI_VGA
		return said
	}
	return legacy
}

// vfioBindingChecks are about the way functions are bound to VFIO's drivers.
func vfioBindingChecks() []Check {
	return []Check{
		{ID: "VFIO-003", Judge: noIDs},
		{ID: "VFIO-004", Judge: boundForAReason},
		{ID: "VFIO-005", Judge: overridesAgree},
		{ID: "VFIO-006", Judge: noOrphans},
		{ID: "VFIO-014", Judge: noUIO},
	}
}

// configuredIDs returns the configured values of vfio-pci's parameter ids, with their files.
func configuredIDs(n *facts.Node) []facts.Fact {
	setting := n.Parameter("vfio-pci", "ids")
	ids := setting.Configured
	for _, value := range n.Arguments("vfio-pci.ids") {
		ids = append(ids, facts.Fact{Path: n.Cmdline().Path, Value: value, How: "read"})
	}
	return slices.DeleteFunc(ids, func(f facts.Fact) bool { return f.Value == "" })
}

// noIDs judges the ids, and the commands that modprobe runs instead of loading vfio-pci, also when the plugin loads it.
func noIDs(n *facts.Node) Answer {
	ids, commands := configuredIDs(n), installCommands(n)
	if len(ids) == 0 {
		if len(commands) > 0 {
			return commands
		}
		if line := n.Cmdline(); !line.OK() {
			return unknown("which IDs vfio-pci takes", line)
		}
		_, files := n.List(kernelargs.ModprobeSite)
		return pass("no IDs are set", n.Cmdline(), files)
	}
	// The module keeps the last value of a parameter that is set several times.
	last := ids[len(ids)-1]
	taken := slices.DeleteFunc(n.Functions(), func(f *device.Function) bool { return !matchesIDs(f, ids) })
	byID := fail(fmt.Sprintf("%s makes vfio-pci take every function with the IDs %s", last.Path, last.Value), ids...).reaching(addresses(taken)...)
	return append(byID, commands...)
}

func installCommands(n *facts.Node) Answer {
	return over(n.InstallLines("vfio-pci"), func(l facts.InstallLine) Answer {
		if name := path.Base(l.Command); name == "true" || name == "false" {
			return nil // the command only keeps the module from being loaded
		}
		return fail(fmt.Sprintf("%s line %d runs %s whenever vfio-pci is loaded, which may bind any function", l.File.Path, l.Number, l.Command), l.File).
			fix("remove the line; the plugin binds by driver_override")
	})
}

// onVFIO judges each function that is on a VFIO driver.
func onVFIO(n *facts.Node, wrong func(*device.Function) Answer) Answer {
	found := over(functionsWhere(n, func(f *device.Function) bool { return f.Locked || onVFIODriver(f) }), func(f *device.Function) Answer {
		if f.Locked {
			return unknown(fmt.Sprintf("the driver of %s (an operation on it hangs in the kernel)", f.Address)).on(f)
		}
		return wrong(f).on(f)
	})
	return conclude(found, functionsWhere(n, onVFIODriver), "function", "no function is on a VFIO driver", boundBy)
}

// isKnown reports whether the plugin's files list the function.
func isKnown(n *facts.Node, f *device.Function) bool {
	offered, _ := n.IsOffered(f.Address)
	return offered || n.IsBound(f.Address) || len(n.TenanciesAt(f.Address)) > 0
}

// boundForAReason checks only functions on vfio-pci, because its variants bind no function without an override (include/linux/pci.h
// PCI_DRIVER_OVERRIDE_DEVICE_VFIO).
func boundForAReason(n *facts.Node) Answer {
	ids := configuredIDs(n)
	return onVFIO(n, func(f *device.Function) Answer {
		if f.Driver != device.GenericVFIO || f.DriverOverride != "" || isKnown(n, f) || matchesIDs(f, ids) {
			return nil
		}
		return fail(fmt.Sprintf("%s is on vfio-pci without an override, IDs or a record of the plugin", f.Address), driverFact(f), overrideFact(f))
	})
}

func noOrphans(n *facts.Node) Answer {
	return onVFIO(n, func(f *device.Function) Answer {
		what := "whether the plugin knows " + f.Address.String()
		dir := n.Journal()
		switch {
		case isKnown(n, f):
			return nil
		case !dir.Known():
			return unknown(what, dir)
		case len(n.Damaged) > 0:
			return unknown(what, n.Damaged...)
		}
		return fail(fmt.Sprintf("%s is on %s without a record of the plugin", f.Address, f.Driver), driverFact(f))
	})
}

func overridesAgree(n *facts.Node) Answer {
	found := append(staleKept(n), over(functionsWhere(n, anyFunction), func(f *device.Function) Answer {
		if f.DriverOverride == "" || f.Driver == "" || f.DriverOverride == f.Driver {
			return nil
		}
		return fail(fmt.Sprintf("%s is on %s, but its driver_override is %s", f.Address, f.Driver, f.DriverOverride), driverFact(f), overrideFact(f)).on(f)
	})...)
	all := n.Functions()
	said := showing(found.or(pass(count(len(n.Snapshot.Functions), "function"))), all, boundBy)
	if len(found) == 0 {
		said[0].LeftOut += len(n.Snapshot.Functions) - len(all)
	}
	return said
}

// staleKept returns driverctl's files that differ from the current overrides.
func staleKept(n *facts.Node) Answer {
	return over(n.Glob("etc/driverctl.d", "pci-*"), func(kept facts.Fact) Answer {
		addr, err := pci.ParseAddress(strings.TrimPrefix(path.Base(kept.Path), "pci-"))
		f, ok := n.Snapshot.Function(addr)
		if err != nil || !ok || !kept.OK() || f.Locked || kept.Value == f.DriverOverride {
			return nil
		}
		return fail(fmt.Sprintf("driverctl binds %s to %s at boot, but its driver_override is %s",
			f.Address, kept.Value, cmp.Or(f.DriverOverride, "nothing")), kept, overrideFact(f)).on(f)
	})
}

func noUIO(n *facts.Node) Answer {
	_, generic := n.List("sys/bus/pci/drivers/uio_pci_generic")
	// igb_uio is DPDK's own module. Neither of the two confines the DMA that its user programs into the device.
	_, igb := n.List("sys/bus/pci/drivers/igb_uio")
	return over(functionsWhere(n, func(f *device.Function) bool {
		return device.SameDriver(f.Driver, "uio_pci_generic") || device.SameDriver(f.Driver, "igb_uio")
	}), func(f *device.Function) Answer {
		return fail(fmt.Sprintf("%s is on %s", f.Address, f.Driver), driverFact(f)).on(f)
	}).or(pass("none uses UIO", generic, igb))
}
