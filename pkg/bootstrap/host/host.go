// Package host has the requirements on a node: the kernel's command line, modules and their options, udev rules, huge pages,
// locked memory, and network managers that leave VFs alone. Before bootstrap changes anything, the package reports faults that
// no file can fix.
//
// [Detect] determines what kind of node it is: its system, firmware, boot loader and their tools. It only reads files, so it
// works for a running node and for an image on disk. An image does not show the processor, the firmware and what runs.
package host

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/blueprint"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/containers"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/kernelargs"
)

// header begins each file of bootstrap.
const header = "# Written by kata-vfio-bootstrap, which restores it when it differs. `kata-vfio-bootstrap revert` removes it.\n"

// Wanted returns the required files and settings of the node besides those of its boot loader, which [LoaderWanted] returns.
func Wanted(tree state.Tree, b *blueprint.Blueprint, p *Platform) state.Wanted {
	n := &node{tree: tree, blueprint: b, platform: p}
	n.preflight()
	n.startedCommands()
	n.speed()
	n.guestMemory()
	n.observed()
	n.modules()
	n.options()
	pfs := n.physicalFunctions()
	n.udev(pfs)
	n.earlyBinding()
	n.hugePages()
	n.lockedMemory()
	n.network()
	n.fabric()
	return n.wanted
}

// node collects the requirements of one node.
type node struct {
	tree      state.Tree
	blueprint *blueprint.Blueprint
	platform  *Platform
	wanted    state.Wanted
}

func (n *node) file(f state.File) {
	if f.Mode == 0 {
		f.Mode = 0o644
	}
	n.wanted.Files = append(n.wanted.Files, f)
}

// setting requires a running setting. It does nothing for an image, which has none.
func (n *node) setting(s state.Setting) {
	if n.platform.Live {
		n.wanted.Settings = append(n.wanted.Settings, s)
	}
}

func (n *node) problem(p state.Problem) { n.wanted.Problems = append(n.wanted.Problems, p) }

func (n *node) fact(part, name, value, source string) {
	n.wanted.Facts = append(n.wanted.Facts, state.Fact{Part: part, Name: name, Value: value, Source: source})
}

// text returns a file without trailing space, and false if it does not exist or can't be read. It follows links below the root.
// A link to /dev/null counts as an empty file. A file that can't be read is a problem.
func (n *node) text(part, name string) (string, bool) {
	real := n.real(name)
	if real == "dev/null" {
		return "", true
	}
	data, err := n.tree.ReadAtMost(real, 1<<20)
	if err == nil {
		return strings.TrimRight(string(data), " \t\r\n"), true
	}
	if !errors.Is(err, fs.ErrNotExist) {
		n.problem(state.Problem{Part: part, Code: rule.FileUnreadable, Fatal: true, Path: name, Text: err.Error(), Fix: "replace it with a readable file below the node's root"})
	}
	return "", false
}

// attribute returns an attribute of a function without trailing space, and false if it does not exist or can't be read.
// A function of the running node on which an operation hangs is a problem, and locked is set.
func (n *node) attribute(part, name string) (text string, there, locked bool) {
	data, locked, err := n.read(n.real(name))
	if locked {
		n.problem(state.LockedProblem(part, name))
		return "", true, true
	}
	if err != nil {
		text, there = n.text(part, name) // names the problem
		return text, there, false
	}
	return strings.TrimRight(string(data), " \t\r\n"), true, false
}

// read reads an attribute of a function. In an image, any file may be in its place, and is read as such.
func (n *node) read(name string) (data []byte, locked bool, err error) {
	if n.platform.Live {
		return state.ReadAttribute(n.tree, name, 1<<10)
	}
	data, err = n.tree.ReadAtMost(name, 1<<10)
	return data, false, err
}

// real returns the target of a path, with links followed below the root.
func (n *node) real(name string) string { return facts.FollowIn(n.tree, name) }

// observed records facts for the cluster's administrator, such as the command that sets the labels. A node may not set its own
// labels.
func (n *node) observed() {
	if len(n.blueprint.Labels) == 0 {
		return
	}
	n.fact("labels", "command", labelCommand(n.blueprint.Labels), "the blueprint")
}

// labelCommand returns the command that sets a node's labels, in a fixed order.
func labelCommand(labels map[string]string) string {
	words := []string{"kubectl label node NODE --overwrite"}
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		words = append(words, key+"="+labels[key])
	}
	return strings.Join(words, " ")
}

// lockedMemory removes the limit of locked memory for the VMMs that the runtime starts, because VFIO pins all of a
// guest's memory. VMMs inherit the limit from the service that starts the runtime. If no runtime is installed yet, its
// usual service is configured.
func (n *node) lockedMemory() {
	runtime := containers.FindRuntime(n.tree, n.blueprint.Containers.Runtime)
	units := containers.Units(n.tree, runtime)
	if len(units) == 0 {
		units = containers.UsualUnits(n.tree, runtime)
	}
	then := []state.FollowUp{state.UnitsReload, state.ContainerdRestart}
	if runtime == blueprint.RuntimeCRIO {
		then[1] = state.CRIORestart
	}
	for _, unit := range units {
		n.file(state.File{
			Part: "memlock", Path: fmt.Sprintf("etc/systemd/system/%s.d/50-kata-vfio.conf", unit),
			Content: []byte(header + "[Service]\nLimitMEMLOCK=infinity\n"),
			Why:     "lets VMMs lock their guests' memory", Then: then,
		})
	}
}

// network makes systemd-networkd ignore VFs by the property that bootstrap's udev rule sets. For NetworkManager, the
// rule sets another property.
func (n *node) network() {
	if !*n.blueprint.Network.LeaveVFsAlone || !n.platform.Networkd {
		return
	}
	n.file(state.File{
		// systemd-networkd takes the first file by name that matches an interface (systemd.network(5)).
		Part: "network", Path: "etc/systemd/network/05-kata-vfio-vf.network",
		Content: []byte(header + "[Match]\nProperty=" + vfProperty + "=1\n\n[Link]\nUnmanaged=yes\n"),
		Why:     "keeps systemd-networkd off VFs", Then: []state.FollowUp{state.NetworkReload},
	})
}

const hugePagesPart = "hugePages"

// hugePages reserves pages of 2 MiB at boot and now. Pages of 1 GiB come from the kernel's command line (boot.go)
// and are only verified here. sysctl supports neither sizes nor NUMA nodes: it sets pages of the default size on all
// nodes, and tmpfiles.d(5) sets the others.
func (n *node) hugePages() {
	var sysctl, tmpfiles strings.Builder
	for _, h := range n.blueprint.Kernel.HugePages {
		name := pagesFile(h)
		if !n.hasPages(h, name) {
			continue
		}
		n.setting(state.Setting{
			Part: hugePagesPart, Path: name, Value: strconv.Itoa(h.Count), AtBoot: h.Size == blueprint.HugePage1Gi,
			Why: fmt.Sprintf("%d huge pages of %s are reserved for VMs", h.Count, h.Size),
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

// hasPages reports whether the running node supports a size of pages on the NUMA node, and records a problem if it does
// not. Some kernels support pages of 1 GiB only after a boot with the argument.
func (n *node) hasPages(h blueprint.HugePages, name string) bool {
	if !n.platform.Live {
		return true
	}
	what := ""
	if _, there := n.text(hugePagesPart, name); !there && (h.Size != blueprint.HugePage1Gi || kernelargs.Has(n.platform.Cmdline, "hugepagesz=1G")) {
		what = fmt.Sprintf("huge pages of %s, but the node does not support them", h.Size)
	}
	if h.Node != nil {
		if _, there := n.text(hugePagesPart, numaNode(*h.Node)+"/meminfo"); !there {
			what, name = fmt.Sprintf("huge pages on NUMA node %d, which does not exist", *h.Node), numaNode(*h.Node)
		}
	}
	if what == "" {
		return true
	}
	n.problem(state.Problem{
		Part: hugePagesPart, Code: rule.HugePagesUnsupported, Fatal: true, Path: name, Text: fmt.Sprintf("the blueprint requires %s (there is no /%s)", what, name),
		Fix: "use sizes and NUMA nodes that exist (ls /sys/kernel/mm/hugepages /sys/devices/system/node), or enable them in the firmware and kernel",
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

// defaultIs2Mi reports whether vm.nr_hugepages counts pages of 2 MiB. Arm kernels with other base pages have other
// sizes.
func (n *node) defaultIs2Mi() bool {
	if !n.platform.Live {
		return n.platform.Arch != "arm64"
	}
	info, _ := n.text(hugePagesPart, "proc/meminfo")
	return strings.Join(strings.Fields(line(info, "Hugepagesize:")), " ") == "2048 kB"
}
