package check

import (
	"fmt"
	"path"
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/facts/runtimes"
)

// vfioSpeedChecks are about causes of slow starts of VMs with devices. None is about isolation.
func vfioSpeedChecks() []Check {
	return []Check{
		{ID: "VFIO-022", Judge: opensInParallel},
		{ID: "VFIO-023", Judge: mapsLargeBARs},
	}
}

// qemuSpeedCheck returns the check of QEMU's part in slow starts.
func qemuSpeedCheck() Check {
	return Check{ID: "RT-033", Judge: alignsMappings}
}

// opensInParallel is about nodes whose VMs can get several VFs of one PF.
func opensInParallel(n *facts.Node) Answer {
	vfs := map[string]int{}
	several := false
	for _, f := range assignable(n) {
		if f.VF != nil {
			vfs[f.VF.PF.String()]++
			several = several || vfs[f.VF.PF.String()] > 1
		}
	}
	if !several {
		return notApplicable("no PF has two assignable VFs")
	}
	return hasChange(n, facts.ParallelOpens(), "opens VFs of one PF one after the other")
}

// mapsLargeBARs is about nodes that use VFIO's type 1 IOMMU, which maps BARs.
func mapsLargeBARs(n *facts.Node) Answer {
	large := largeBARs(n)
	switch {
	case len(large) == 0:
		return notApplicable(noLargeBAR)
	case n.Snapshot.Host.IOMMUFD:
		return notApplicable("the node has iommufd, which does not map BARs")
	}
	return hasChange(n, facts.LargeMappings(), "maps BARs by pages of 4 KiB").reaching(addresses(large)...)
}

// hasChange reports whether the running kernel has a change. If a distribution may have added the change, a person has to decide.
func hasChange(n *facts.Node, c facts.KernelChange, without string) Answer {
	release, version := n.Read("proc/sys/kernel/osrelease"), n.Read("proc/version")
	if !release.OK() {
		return unknown("which kernel runs", release)
	}
	switch c.In(facts.Kernel{Release: release.Value, Version: version.Value}) {
	case facts.ChangeIn:
		return pass("kernel "+release.Value+" has "+c.String(), release)
	case facts.ChangeMissing:
		return fail(fmt.Sprintf("kernel %s lacks %s: it %s", release.Value, c, without), release).seen(shownIf(version)...)
	case facts.ChangeUnknown:
	}
	text := fmt.Sprintf("can't tell whether kernel %s has %s; ask its distribution", release.Value, c)
	return say(finding.Manual, text, append([]facts.Fact{release}, shownIf(version)...))
}

func shownIf(f facts.Fact) []facts.Fact {
	if !f.OK() {
		return nil
	}
	return []facts.Fact{f}
}

const noLargeBAR = "no assignable function has a BAR of 8 GiB or more"

func largeBARs(n *facts.Node) []*device.Function {
	large := func(b device.BAR) bool { return b.Size >= facts.LargeBAR }
	return slices.DeleteFunc(assignable(n), func(f *device.Function) bool { return !slices.ContainsFunc(f.BARs, large) })
}

// alignsMappings reads the version of the QEMU in Kata's releases. No file shows the version of other programs.
func alignsMappings(n *facts.Node) Answer {
	if len(largeBARs(n)) == 0 {
		return notApplicable(noLargeBAR)
	}
	return eachConfigured(n, runtimes.TakesDevices, func(_ *runtimes.Handler, k *runtimes.Kata) Answer {
		if k.VMM() != "qemu" {
			return pass("", k.Hypervisor("path").Fact())
		}
		return qemuAligns(n, k.Hypervisor("path"))
	})
}

func qemuAligns(n *facts.Node, program runtimes.Setting) Answer {
	version := qemuVersion(n, program)
	switch facts.AlignsMappings(version.Value) {
	case facts.ChangeIn:
		return pass("", program.Fact(), version)
	case facts.ChangeMissing:
		return fail(fmt.Sprintf("QEMU is %s, which does not align mappings of BARs", version.Value), program.Fact(), version)
	case facts.ChangeUnknown:
	}
	return say(finding.Manual, fmt.Sprintf("can't tell whether %s is QEMU 9.2 or later: no file shows its version; run it with --version", program.Text()), []facts.Fact{program.Fact()})
}

// qemuVersion reads the version of a QEMU, which only Kata's releases say. It is empty for other programs.
func qemuVersion(n *facts.Node, program runtimes.Setting) facts.Fact {
	// Kata's archive has the program as bin/NAME, and the versions in its top directory.
	versions := n.Read(path.Join(path.Dir(path.Dir(program.Text())), "versions.yaml"))
	version := ""
	if base := path.Base(program.Text()); versions.OK() && (base == "qemu-system-x86_64" || base == "qemu-system-aarch64") {
		version, _ = facts.KataQEMU([]byte(versions.Value))
	}
	versions.Value = version
	return versions
}
