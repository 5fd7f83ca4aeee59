package host

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/blueprint"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/kernelargs"
)

const hugePagesPart = "hugePages"

// hugePages reserves pages of 2 MiB at boot, and now. Those of 1 GiB come by the
// kernel's command line (package boot); here it is only seen whether they have come.
// sysctl knows no sizes and no NUMA nodes: it is for pages of the default size on all
// nodes, and tmpfiles.d(5) for the rest.
func (n *node) hugePages() {
	var sysctl, tmpfiles strings.Builder
	for _, h := range n.blueprint.Kernel.HugePages {
		name := pagesFile(h)
		if !n.hasPages(h, name) {
			continue
		}
		n.setting(state.Setting{
			Part: hugePagesPart, Path: name, Value: strconv.Itoa(h.Count), AtBoot: h.Size == blueprint.HugePage1Gi,
			Why: fmt.Sprintf("%d huge pages of %s are kept for VMs", h.Count, h.Size),
		})
		switch {
		case h.Size == blueprint.HugePage1Gi:
		case h.Node == nil && n.defaultIs2Mi():
			fmt.Fprintf(&sysctl, "vm.nr_hugepages = %d\n", h.Count)
		default:
			fmt.Fprintf(&tmpfiles, "w /%s - - - - %d\n", name, h.Count)
		}
	}
	for _, f := range []struct{ path, content string }{
		{"etc/sysctl.d/50-kata-vfio.conf", sysctl.String()}, {"etc/tmpfiles.d/kata-vfio.conf", tmpfiles.String()},
	} {
		if f.content != "" {
			n.file(state.File{Part: hugePagesPart, Path: f.path, Content: []byte(header + f.content), Why: "reserves huge pages at boot"})
		}
	}
}

// hasPages names pages of a size, or on a NUMA node, that the running node does not
// have. It would take no setting for them, and never have any. Some kernels know pages
// of 1 GiB only once they are started with the argument.
func (n *node) hasPages(h blueprint.HugePages, name string) bool {
	if !n.platform.Live {
		return true
	}
	what := ""
	if _, there := n.text(hugePagesPart, name); !there && (h.Size != blueprint.HugePage1Gi || kernelargs.Has(n.platform.Cmdline, "hugepagesz=1G")) {
		what = fmt.Sprintf("huge pages of %s, and the node knows none", h.Size)
	}
	if h.Node != nil {
		if _, there := n.text(hugePagesPart, numaNode(*h.Node)+"/meminfo"); !there {
			what, name = fmt.Sprintf("huge pages on the NUMA node %d, and the node has none of that number", *h.Node), numaNode(*h.Node)
		}
	}
	if what == "" {
		return true
	}
	n.problem(state.Problem{
		Part: hugePagesPart, Fatal: true, Path: name, Text: fmt.Sprintf("the blueprint wants %s (there is no /%s)", what, name),
		Fix: "name sizes and NUMA nodes that are there (ls /sys/kernel/mm/hugepages /sys/devices/system/node), or have the firmware and kernel offer them",
	})
	return false
}

func numaNode(number int) string { return fmt.Sprintf("sys/devices/system/node/node%d", number) }

func pagesFile(h blueprint.HugePages) string {
	dir := "sys/kernel/mm"
	if h.Node != nil {
		dir = numaNode(*h.Node)
	}
	return fmt.Sprintf("%s/hugepages/hugepages-%dkB/nr_hugepages", dir, h.Size.KiB())
}

// defaultIs2Mi reports whether vm.nr_hugepages counts pages of 2 MiB. Arm's kernels
// have other sizes with other base pages.
func (n *node) defaultIs2Mi() bool {
	if !n.platform.Live {
		return n.platform.Arch != "arm64"
	}
	info, _ := n.text(hugePagesPart, "proc/meminfo")
	return strings.Join(strings.Fields(line(info, "Hugepagesize:")), " ") == "2048 kB"
}
