package check

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/facts"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// vfioKernelChecks are about the kernel's own code.
func vfioKernelChecks() []Check {
	return []Check{
		{Rule: finding.Rule{
			ID: "VFIO-016", Title: "The kernel has the fixes of VFIO's known faults", Severity: isolation.High, Static: true,
			Why: "a guest that has a device reaches VFIO's code in the node's kernel through its VMM: the faults that are known take the node and all of its tenants down",
			Fix: "see in the distribution's security tracker, or in its kernel's changelog, that the running kernel has the fixes; update it and reboot where it has not",
			Verify: "uname -r; zgrep -h -e CVE-2024-26810 -e CVE-2024-26812 -e CVE-2024-27437 -e CVE-2020-12888 -e CVE-2019-3882 " +
				"/usr/share/doc/linux-image-$(uname -r)/changelog*.gz; rpm -q --changelog kernel-core-$(uname -r) | grep CVE",
			Sources: []string{
				"CVE-2024-26810", "CVE-2024-26812", "CVE-2024-27437", "CVE-2020-12888", "CVE-2019-3882",
				"Linux: drivers/vfio/pci/vfio_pci_intrs.c", "Linux: drivers/vfio/vfio_iommu_type1.c",
			},
		}, Judge: kernelFixed},
	}
}

// kernelFault is a known fault of VFIO that a guest or its VMM can use.
type kernelFault struct {
	// name is its CVEs, what what it does.
	name, what string
	// fixed are the releases of kernel.org with the fix: the first of mainline, then the
	// first of each older branch, where that is published.
	fixed []string
}

// kernelFaults are those known when this was written, the latest first. The list
// ages: a kernel that has all of these may lack the next one.
func kernelFaults() []kernelFault {
	return []kernelFault{
		{"CVE-2024-26812, CVE-2024-27437", "legacy interrupts that nobody takes, or that stay off", []string{"6.9"}},
		{
			"CVE-2024-26810", "a race of masking legacy interrupts",
			[]string{"6.9", "6.8.3", "6.7.12", "6.6.24", "6.1.84", "5.15.154", "5.10.215", "5.4.274"},
		},
		{"CVE-2020-12888", "access to memory of a device that is switched off", []string{"5.8"}},
		{"CVE-2019-3882", "mappings without a bound", []string{"5.1"}},
	}
}

// kernelFixed never passes: distributions put fixes into kernels whose number says
// nothing of them, and what is not known yet no list has. It says which of the known
// faults the number excludes, so that a person looks for the others alone.
func kernelFixed(n *facts.Node) []finding.Finding {
	var devices []pci.Address
	for _, f := range assignable(n) {
		devices = append(devices, f.Address)
	}
	if len(devices) == 0 {
		return notApplicable("tenants can get no function of this node")
	}
	release := n.Read("proc/sys/kernel/osrelease")
	if !release.OK() {
		return unknown("which kernel runs", release)
	}
	var open, done []string
	for _, fault := range kernelFaults() {
		if fault.fixedIn(release.Value) {
			done = append(done, fault.name)
		} else {
			open = append(open, fmt.Sprintf("%s (%s; kernel.org's fix is in %s)", fault.name, fault.what, strings.Join(fault.fixed, ", ")))
		}
	}
	text := fmt.Sprintf("kernel %s is newer than the fixes of %s: whether it has those of later faults its distribution says", release.Value, strings.Join(done, ", "))
	if len(open) > 0 {
		text = fmt.Sprintf("the number of kernel %s does not say whether it has the fixes of %s: its distribution does", release.Value, strings.Join(open, "; "))
	}
	return concerning(devices, say(finding.Manual, text, []facts.Fact{release}))
}

// fixedIn reports whether a kernel of that release has the fix by its number alone: it
// is no older than mainline's, or than that of its own branch.
func (k *kernelFault) fixedIn(release string) bool {
	runs, ok := kernelNumber(release)
	if !ok {
		return false
	}
	for i, fixed := range k.fixed {
		first, _ := kernelNumber(fixed)
		branch := runs[0] == first[0] && runs[1] == first[1]
		if branch && runs[2] >= first[2] || i == 0 && compareNumbers(runs, first) > 0 {
			return true
		}
	}
	return false
}

// kernelNumber returns the three numbers that a release begins with; a last one that
// is missing is zero. A release candidate is none: it may be older than the fix.
func kernelNumber(release string) (number [3]int, ok bool) {
	base, suffix := release, ""
	if end := strings.IndexAny(release, "-+~_"); end >= 0 { // "6.12.107+deb13-amd64"
		base, suffix = release[:end], release[end:]
	}
	parts := strings.Split(base, ".")
	if len(parts) < 2 || strings.HasPrefix(suffix, "-rc") {
		return number, false
	}
	for i, part := range parts[:min(len(parts), 3)] {
		n, err := strconv.Atoi(part)
		if err != nil {
			return number, false
		}
		number[i] = n
	}
	return number, true
}

func compareNumbers(a, b [3]int) int {
	for i := range a {
		if a[i] != b[i] {
			return a[i] - b[i]
		}
	}
	return 0
}
