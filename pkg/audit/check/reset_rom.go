package check

import (
	"fmt"
	"path"

	"github.com/kata-vfio/kata-vfio/pkg/audit/facts"
	"github.com/kata-vfio/kata-vfio/pkg/audit/facts/runtimes"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

func resetROMChecks() []Check {
	return []Check{
		{Rule: finding.Rule{
			ID: "RST-012", Title: "VMs do not see the option ROM of their functions", Severity: isolation.Medium,
			Why: "the VM's firmware runs that code before the guest's kernel: a tenant who could write to the device's flash is in the next tenant's VM from its first " +
				"instruction, past every reset",
			Fix: "have the VMM started with `rombar=0` or an empty `romfile=` for the device; where Kata does not (its Go runtime gives QEMU neither), use cards whose flash only signed firmware can change, " +
				"and a guest firmware with Secure Boot, and waive this",
			Verify:  "tr '\\0' '\\n' < /proc/<VMM>/cmdline | grep vfio-pci; sed -n 7p /sys/bus/pci/devices/<address>/resource",
			Sources: []string{"QEMU: hw/vfio/pci.c vfio_pci_size_rom", "QEMU: hw/pci/pci.c rombar, romfile", "Kata: src/runtime/pkg/govmm/qemu/qemu.go VFIODevice.QemuParams"},
		}, Judge: noOptionROM},
	}
}

// noOptionROM looks at what the command lines of the running VMs give them.
func noOptionROM(n *facts.Node) []finding.Finding {
	var found []finding.Finding
	var seen []facts.Fact
	looked := 0
	for _, v := range runtimes.VMMs(n) {
		for _, p := range v.Passed() {
			a, err := pci.ParseAddress(p.Address)
			if err != nil {
				continue // not of this node's domain 0, or not an address: nothing to look at
			}
			looked++
			f, ok := n.Snapshot.Function(a)
			if !ok {
				resource := facts.Fact{Path: "/" + path.Join(sysfs.FunctionPath(a), "resource"), How: "read", Status: facts.Absent}
				found = append(found, unknown("whether "+a.String()+" has an option ROM", resource)...)
				continue
			}
			resource := attribute(a, "resource", romOf(f))
			seen = append(seen, resource)
			if !p.WithROM || f.ROM == 0 {
				continue
			}
			said := fail(fmt.Sprintf("the VM of process %d sees the option ROM of %s", v.PID, a), resource, v.Cmdline)
			found = append(found, about(f, said)...)
		}
	}
	return orPassWith(found, looked, "function", "no VMM's command line names a function", seen)
}

func romOf(f *device.Function) string {
	if f.ROM == 0 {
		return "no option ROM"
	}
	return fmt.Sprintf("option ROM of %d bytes", f.ROM)
}
