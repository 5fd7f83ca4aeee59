package check

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/facts"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
)

// vfioUdevChecks returns the check of rules that outlive a reboot.
func vfioUdevChecks() []Check {
	return []Check{{Rule: finding.Rule{
		ID: "VFIO-017", Title: "No udev rule gives VFIO's nodes to everybody", Severity: isolation.Medium,
		Why:     "an open VFIO node is DMA: whoever may open it has the device when no VM has",
		Fix:     "leave the nodes to root, as the kernel makes them, or to the group that VMMs run as",
		Verify:  "grep -rE 'vfio|iommu' /etc/udev/rules.d /usr/lib/udev/rules.d",
		Sources: []string{"udev(7)", "Linux: drivers/vfio/group.c, drivers/iommu/iommufd/main.c (modes of nodes)"},
	}, Judge: narrowRules}}
}

func narrowRules(n *facts.Node) []finding.Finding {
	var found []finding.Finding
	for _, r := range n.UdevRules() {
		if why := generosity(&r); why != "" && isOfVFIO(&r) {
			f := fail(fmt.Sprintf("a rule in %s gives VFIO's nodes to %s", r.File.Path, why), r.File)
			f[0].Object = r.File.Path
			found = append(found, f...)
		}
	}
	if len(found) == 0 {
		_, own := n.List("etc/udev/rules.d")
		_, system := n.List("usr/lib/udev/rules.d")
		return pass("no rule does", own, system)
	}
	return found
}

// isOfVFIO reports whether a rule is about nodes of groups or functions, or about
// iommufd. /dev/vfio/vfio is for everybody by design.
func isOfVFIO(r *facts.UdevRule) bool {
	exactly := func(word string) func(string) bool { return func(p string) bool { return p == word } }
	if r.Matches("KERNEL", exactly("vfio")) {
		return false
	}
	subsystem := r.Matches("SUBSYSTEM", func(p string) bool { return p == "vfio" || p == "vfio-dev" || p == "vfio*" })
	return subsystem || r.Matches("KERNEL", func(p string) bool { return p == "iommu" || strings.HasPrefix(p, "vfio") })
}

// generosity says who gets the nodes, empty for nobody in particular.
func generosity(r *facts.UdevRule) string {
	for _, mode := range r.Assigned("MODE") {
		if bits, err := strconv.ParseUint(mode, 8, 32); err == nil && bits&0o006 != 0 {
			return "everybody (MODE " + mode + ")"
		}
	}
	for _, group := range r.Assigned("GROUP") {
		if slices.Contains([]string{"users", "nogroup", "everyone", "plugdev", "video"}, group) {
			return "group " + group
		}
	}
	if slices.Contains(r.Assigned("TAG"), "uaccess") {
		return "who sits at the console (uaccess)"
	}
	return ""
}
