package host

import (
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

const speedPart = "speed"

// speed advises newer kernels and QEMUs if they start VMs with devices faster. It prevents nothing.
func (n *node) speed() {
	if n.platform.Kernel == "" {
		return
	}
	if len(n.blueprint.VirtualFunctions) > 0 {
		n.advise(speedPart, rule.SlowStart, facts.ParallelOpens(), "VFs of one PF are opened one after the other (VFIO-022)")
	}
	if !n.platform.Live || !n.largeBARs() {
		return
	}
	if !n.platform.Modules["iommufd"].There() {
		n.advise(speedPart, rule.SlowStart, facts.LargeMappings(), "large BARs are mapped by pages of 4 KiB (VFIO-023)")
	}
	n.qemu()
}

// advise reports a problem if the kernel lacks a change. If it can't tell whether the kernel has the change, it records a fact.
func (n *node) advise(part string, code rule.Code, c facts.KernelChange, without string) {
	kernel := facts.Kernel{Release: n.platform.Kernel}
	if n.platform.Live {
		kernel.Version, _ = n.text(part, "proc/version")
	}
	switch c.In(kernel) {
	case facts.ChangeMissing:
		n.problem(state.Problem{Part: part, Code: code, Text: fmt.Sprintf("kernel %s lacks %s, so %s", kernel.Release, c, without), Fix: c.Fix()})
	case facts.ChangeUnknown:
		n.fact(part, c.Commit, "can't tell whether kernel "+kernel.Release+" has it; ask its distribution", kernelSource(n.platform))
	case facts.ChangeIn:
	}
}

func kernelSource(p *Platform) string {
	if p.Live {
		return "/proc/sys/kernel/osrelease, /proc/version"
	}
	return "/usr/lib/modules"
}

// kataVersions is part of Kata's release archive.
const kataVersions = "opt/kata/versions.yaml"

func (n *node) qemu() {
	text, ok := n.text(speedPart, kataVersions)
	if !ok {
		return
	}
	version, err := facts.KataQEMU([]byte(text))
	if err == nil && facts.AlignsMappings(version) == facts.ChangeMissing {
		n.problem(state.Problem{
			Part: speedPart, Code: rule.SlowStart, Path: kataVersions, Fix: facts.QEMUFix,
			Text: fmt.Sprintf("Kata's QEMU is %s, which does not align mappings of BARs (RT-033)", version),
		})
	}
}

// largeBARs reports whether a function of the node has a BAR of [facts.LargeBAR] bytes or more.
func (n *node) largeBARs() bool {
	const devices = "sys/bus/pci/devices"
	names, err := n.tree.ReadDir(devices)
	if err != nil {
		return false
	}
	for _, name := range names {
		table, _ := n.text(speedPart, path.Join(devices, name, "resource"))
		for line := range strings.Lines(table) {
			if fields := strings.Fields(line); len(fields) == 3 && spans(fields[0], fields[1]) >= facts.LargeBAR {
				return true
			}
		}
	}
	return false
}

// spans returns the size of a range of addresses as sysfs shows it: "0x0000380000000000 0x0000381fffffffff". It is 0 for an
// unused BAR, whose first and last address are 0.
func spans(first, last string) uint64 {
	from, err1 := strconv.ParseUint(first, 0, 64)
	to, err2 := strconv.ParseUint(last, 0, 64)
	if err1 != nil || err2 != nil || to <= from {
		return 0
	}
	return to - from + 1
}
