package check

import (
	"fmt"
	"path"

	"github.com/kata-vfio/kata-vfio/pkg/audit/facts"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
)

// nodeOwnerChecks returns the checks of who may open VFIO's nodes.
func nodeOwnerChecks() []Check {
	const why = "whoever opens a node before the VM does has the function, and its DMA"
	return []Check{
		{Rule: finding.Rule{
			ID: "VFIO-007", Title: "Only root opens the nodes of VFIO's groups", Severity: isolation.High,
			Why: why, Fix: "`chown root:root` and `chmod 0600` the node, and mend the udev rule that set it (VFIO-017)",
			Verify: "ls -l /dev/vfio", Sources: []string{"Linux: drivers/vfio/group.c (vfio_devnode)"},
		}, Judge: func(n *facts.Node) []finding.Finding {
			return rootsAlone(n, "nodes of groups", namesIn(n, "dev/vfio", func(name string) bool { return name != "vfio" && name != "devices" }))
		}},
		{Rule: finding.Rule{
			ID: "VFIO-008", Title: "Only root opens the nodes of VFIO's functions and of iommufd", Severity: isolation.High,
			Why: why, Fix: "`chown root:root` the node and `chmod` it 0600 (0660 for /dev/iommu), and mend the udev rule that set it (VFIO-017)",
			Verify: "ls -l /dev/iommu /dev/vfio/devices", Sources: []string{"Linux: drivers/iommu/iommufd/main.c"},
		}, Judge: func(n *facts.Node) []finding.Finding {
			nodes := namesIn(n, "dev/vfio/devices", func(string) bool { return true })
			if n.Exists("dev/iommu").OK() {
				nodes = append(nodes, "dev/iommu")
			}
			return rootsAlone(n, "nodes of functions", nodes)
		}},
	}
}

// specOwnerCheck is about who may write CDI specs.
func specOwnerCheck() Check {
	return Check{Rule: finding.Rule{
		ID: "CDI-001", Title: "Only root writes CDI specs", Severity: isolation.Critical,
		Why:     "a spec brings devices, mounts, and hooks that run as root on the node",
		Fix:     "`chown root:root` and `chmod go-w` the file or directory",
		Verify:  "ls -ld /etc/cdi /run/cdi /etc/cdi/* /run/cdi/*",
		Sources: []string{"CDI: SPEC.md"},
	}, Judge: func(n *facts.Node) []finding.Finding {
		specs, dirs := n.Specs()
		var paths []string
		for _, d := range dirs {
			paths = append(paths, d.Path)
		}
		for i := range specs {
			paths = append(paths, specs[i].File.Path)
		}
		return rootsAlone(n, "specs and their directories", paths)
	}}
}

func namesIn(n *facts.Node, dir string, is func(string) bool) []string {
	var paths []string
	names, _ := n.List(dir)
	for _, name := range names {
		if is(name) {
			paths = append(paths, path.Join(dir, name))
		}
	}
	return paths
}

// rootsAlone fails for each file that others than root may write to.
func rootsAlone(n *facts.Node, what string, paths []string) []finding.Finding {
	var found []finding.Finding
	var silent, looked []facts.Fact
	for _, name := range paths {
		stat, file := n.Stat(name)
		switch {
		case file.Status == facts.Absent:
			continue
		case !file.OK():
			silent = append(silent, file)
		case stat.Writers() != "":
			found = append(found, objectOf(file.Path, fail(fmt.Sprintf("%s: %s", file.Path, stat.Writers()), file))...)
		}
		looked = append(looked, file)
	}
	if len(silent) > 0 {
		found = append(found, unknown("who may write to "+count(len(silent), "path"), silent...)...)
	}
	switch {
	case len(looked) == 0:
		return notApplicable("there are no " + what)
	case len(found) == 0:
		return showing(pass(fmt.Sprintf("%d %s", len(looked), what)), looked, one(itself))
	}
	return found
}
