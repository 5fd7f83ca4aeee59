package check

import (
	"fmt"
	"path"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/facts"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// nodeACSChecks returns the checks of ways between devices that the node itself
// opens, and of what a hostile device does to it.
func nodeACSChecks() []Check {
	return []Check{
		{Rule: finding.Rule{
			ID: "ACS-011", Title: "The node publishes no device memory for requests between devices", Severity: isolation.Medium,
			Why:     "memory that a driver publishes for peer-to-peer DMA is there to be reached by other devices directly",
			Fix:     "switch peer-to-peer memory off in the device's driver, or unbind the device from it",
			Verify:  "grep -H . /sys/bus/pci/devices/*/p2pmem/published",
			Sources: []string{"Linux: Documentation/ABI/testing/sysfs-bus-pci (p2pmem)", "Linux: drivers/pci/p2pdma.c"},
		}, Judge: noPeerMemory},
		{Rule: finding.Rule{
			ID: "ACS-012", Title: "No device was plugged in since the boot", Severity: isolation.Medium,
			Why:     "a device that somebody plugs into the running node does DMA from then on",
			Fix:     "find out who plugged it in; remove it, or reboot so that it counts as known",
			Verify:  "cat /run/kata-vfio/acs.json; grep -H . /sys/bus/pci/devices/*/removable",
			Sources: []string{"Linux: Documentation/ABI/testing/sysfs-devices-removable"},
		}, Judge: nothingPluggedIn},
		{Rule: finding.Rule{
			ID: "ACS-013", Title: "DMA through Thunderbolt ports is confined", Severity: isolation.High,
			Why:     "a device on a cable reaches the node's memory by DMA",
			Fix:     "switch kernel DMA protection on, or Thunderbolt off, in the firmware setup",
			Verify:  "grep -H . /sys/bus/thunderbolt/devices/domain*/iommu_dma_protection",
			Sources: []string{"Linux: Documentation/ABI/testing/sysfs-bus-thunderbolt", "Linux: Documentation/admin-guide/thunderbolt.rst"},
		}, Judge: thunderboltConfined},
		{Rule: finding.Rule{
			ID: "ACS-015", Title: "Functions that tenants have caused no fatal errors", Severity: isolation.Medium,
			Why:     "a guest that probes configuration space for what brings the node down leaves fatal errors behind",
			Fix:     "take the device out of service, and see in the kernel's log when the errors came and who had it then",
			Verify:  "grep -H TOTAL /sys/bus/pci/devices/*/aer_dev_fatal",
			Sources: []string{"Linux: Documentation/ABI/testing/sysfs-bus-pci-devices-aer_stats"},
		}, Judge: noFatalErrors},
		{Rule: finding.Rule{
			ID: "ACS-016", Title: "A device's error does not bring the node down", Severity: isolation.Medium,
			Why:     "a device that raises SERR or an unknown NMI makes the node panic, and all its tenants with it",
			Fix:     "set the sysctl to 0 in /etc/sysctl.d, unless a crash is what you want of such errors",
			Verify:  "sysctl kernel.panic_on_io_nmi kernel.unknown_nmi_panic kernel.panic_on_unrecovered_nmi",
			Sources: []string{"Linux: Documentation/admin-guide/sysctl/kernel.rst", "CVE-2013-3495"},
		}, Judge: noPanicOnNMI},
		{Rule: finding.Rule{
			ID: "ACS-018", Title: "Functions between tenants have DMA off", Severity: isolation.Medium,
			Why:     "a function that nobody has and that masters the bus may still run what its last tenant left",
			Fix:     "reset the function, or unbind it and bind it again; find what switched bus mastering on",
			Verify:  "lspci -vv | grep -E '^[0-9a-f]|Control:.*BusMaster'",
			Sources: []string{"Linux: drivers/vfio/pci/vfio_pci_core.c (vfio_pci_core_disable, pci_clear_master)"},
		}, Judge: idleMastersNothing},
	}
}

// noPeerMemory asks drivers of the node; VFs and what VFIO has publish nothing.
func noPeerMemory(n *facts.Node) []finding.Finding {
	var found []finding.Finding
	var able []facts.Fact
	for i := range n.Snapshot.Functions {
		f := &n.Snapshot.Functions[i]
		if f.Driver == "" || f.VF != nil || f.IsBridge() || device.IsVFIO(f.Driver) {
			continue
		}
		memory := n.Read(path.Join("sys/bus/pci/devices", f.Address.String(), "p2pmem/published"))
		switch {
		case memory.Status == facts.Absent:
			continue
		case !memory.OK():
			found = append(found, about(f, unknown("whether "+f.Address.String()+" publishes memory", memory))...)
		case memory.On():
			found = append(found, about(f, fail(fmt.Sprintf("%s (%s) publishes memory for other devices", f.Address, f.Driver), memory))...)
		}
		able = append(able, memory)
	}
	switch {
	case len(found) > 0:
		return found
	case len(able) == 0:
		return pass("no driver has such memory", nowhere("/sys/bus/pci/devices/*/p2pmem"))
	}
	return showing(pass(count(len(able), "device")+" with such memory, none published"), able, one(itself))
}

// nothingPluggedIn compares with the functions of the boot. VFs come by the
// plugin's or an operator's will, and ports with what is below them.
func nothingPluggedIn(n *facts.Node) []finding.Finding {
	baseline, kept := n.Baseline()
	if baseline == nil {
		return noBaseline(n, kept)
	}
	var found []finding.Finding
	slots := 0
	for i := range n.Snapshot.Functions {
		f := &n.Snapshot.Functions[i]
		if e := f.Capabilities.Express; e != nil && e.HotPlug {
			slots++
		}
		if _, known := baseline.Functions[f.Address]; !known && f.VF == nil && !f.IsBridge() {
			found = append(found, about(f, fail(fmt.Sprintf("%s (%s) came after the boot", f.Address, f.Class), attribute(f.Address, "class", f.Class.String()), kept))...)
		}
	}
	if len(found) == 0 {
		return pass(fmt.Sprintf("%s, as after the boot; %s for hot-plug", count(len(baseline.Functions), "function"), count(slots, "slot")), kept)
	}
	return found
}

func thunderboltConfined(n *facts.Node) []finding.Finding {
	const bus = "sys/bus/thunderbolt/devices"
	names, list := n.List(bus)
	if !list.Known() {
		return unknown("whether there is Thunderbolt", list)
	}
	var found []finding.Finding
	domains := 0
	for _, name := range names {
		if !strings.HasPrefix(name, "domain") {
			continue
		}
		domains++
		protection := n.Read(path.Join(bus, name, "iommu_dma_protection"))
		switch {
		case !protection.OK():
			found = append(found, objectOf(name, unknown("whether DMA of "+name+" is confined", protection))...)
		case !protection.On():
			found = append(found, objectOf(name, fail("DMA of what is plugged into "+name+" is not confined", protection))...)
		}
	}
	switch {
	case len(found) > 0:
		return found
	case domains == 0:
		return pass("there is no Thunderbolt", list)
	}
	return pass(count(domains, "domain"), list)
}

// noFatalErrors looks at what tenants have now: the counters don't say when.
func noFatalErrors(n *facts.Node) []finding.Finding {
	var found []finding.Finding
	var counted []facts.Fact
	for _, h := range holdings(n) {
		if !h.Function.Capabilities.AER {
			continue
		}
		total, errors := n.FatalErrors(h.Function)
		switch {
		case errors.Status == facts.Absent: // the firmware handles them
			continue
		case !errors.OK():
			found = append(found, about(h.Function, unknown("the errors of "+h.Function.Address.String(), errors))...)
		case total > 0:
			found = append(found, about(h.Function, fail(fmt.Sprintf("%s had %s since it was found", h.Function.Address, count(int(min(total, 1<<31)), "fatal error")), errors))...)
		}
		counted = append(counted, errors)
	}
	switch {
	case len(counted) == 0:
		return notApplicable("the kernel counts errors of no function that a tenant has")
	case len(found) == 0:
		return showing(pass(count(len(counted), "function")), counted, one(itself))
	}
	return found
}

func noPanicOnNMI(n *facts.Node) []finding.Finding {
	var found []finding.Finding
	var seen []facts.Fact
	for _, name := range []string{"panic_on_io_nmi", "unknown_nmi_panic", "panic_on_unrecovered_nmi"} {
		switch setting := n.Read("proc/sys/kernel/" + name); {
		case setting.Status == facts.Absent: // of x86 alone
		case !setting.OK():
			found = append(found, unknown("kernel."+name, setting)...)
		case setting.Value != "0":
			found = append(found, fail(fmt.Sprintf("kernel.%s is %s", name, setting.Value), setting)...)
		default:
			seen = append(seen, setting)
		}
	}
	switch {
	case len(found) > 0:
		return found
	case len(seen) == 0:
		return notApplicable("the architecture has no such settings")
	}
	return pass("errors make no panic", seen...)
}

const commandMaster = 0x0004 // PCI_COMMAND_MASTER

// idleMastersNothing looks at what VFIO has for nobody.
func idleMastersNothing(n *facts.Node) []finding.Finding {
	var found []finding.Finding
	var idle []facts.Fact
	for i := range n.Snapshot.Functions {
		f := &n.Snapshot.Functions[i]
		if !device.IsVFIO(f.Driver) || f.IsBridge() || len(n.TenanciesOf(f.Address)) > 0 {
			continue
		}
		command, seen := n.Command(f)
		idle = append(idle, seen)
		switch {
		case !seen.OK():
			found = append(found, about(f, unknown("whether "+f.Address.String()+" masters the bus", seen))...)
		case command&commandMaster != 0:
			failed := fail(f.Address.String()+" masters the bus though no tenant has it", seen)
			failed[0].Devices = []pci.Address{f.Address}
			found = append(found, about(f, failed)...)
		}
	}
	switch {
	case len(idle) == 0:
		return notApplicable("VFIO has no function without a tenant")
	case len(found) == 0:
		return showing(pass(count(len(idle), "function")), idle, one(itself))
	}
	return found
}
