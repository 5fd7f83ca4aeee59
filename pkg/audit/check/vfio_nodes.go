package check

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/facts/runtimes"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// vfioNodeChecks are about VFIO's nodes and its code, and about the devices of the journal, Kata and containers.
func vfioNodeChecks() []Check {
	return []Check{
		{ID: "VFIO-007", Judge: groupNodesAreRoots},
		{ID: "VFIO-008", Judge: functionNodesAreRoots},
		{ID: "VFIO-018", Judge: pinningBounded},
		{ID: "VFIO-016", Judge: kernelFixed},
		{ID: kataSandboxes, Judge: sandboxesHaveTheirOwn},
		{ID: "VFIO-020", Judge: sandboxesAgree},
		{ID: "VFIO-021", Judge: ownNodes},
	}
}

func groupNodesAreRoots(n *facts.Node) Answer {
	nodes, list := pathsIn(n, "dev/vfio")
	if !list.Known() {
		return unknown("which group nodes there are", list)
	}
	// The container node is open to all users by design (Documentation/driver-api/vfio.rst), and devices is the directory
	// of the function nodes.
	return rootsAlone(n, "group node", toOpen(), slices.DeleteFunc(nodes, func(node string) bool { return node == "dev/vfio/vfio" || node == "dev/vfio/devices" }))
}

func functionNodesAreRoots(n *facts.Node) Answer {
	nodes, list := pathsIn(n, "dev/vfio/devices")
	if !list.Known() {
		return unknown("which function nodes there are", list)
	}
	if n.Exists("dev/iommu").OK() {
		// A process maps memory for a function node by /dev/iommu, so both need the same owner.
		nodes = append(nodes, "dev/iommu")
	}
	return rootsAlone(n, "function node", toOpen(), nodes)
}

// pathsIn returns the paths of the files in a directory, and its list.
func pathsIn(n *facts.Node, dir string) ([]string, facts.Fact) {
	names, list := n.List(dir)
	var paths []string
	for _, name := range names {
		paths = append(paths, path.Join(dir, name))
	}
	return paths, list
}

// access is something that only root should be able to do to a file.
type access struct {
	// verb is the access in words, and others says who besides root has it.
	verb   string
	others func(*facts.Stat) string
}

func toWrite() access { return access{"write to", (*facts.Stat).Writers} }

// toOpen is for device nodes. VFIO and IPMI don't look at how a node was opened: whoever may read it can make every request.
func toOpen() access { return access{"open", (*facts.Stat).Openers} }

// rootsAlone fails for each file to which others than root have the access.
func rootsAlone(n *facts.Node, what string, to access, paths []string) Answer {
	found, looked := accessible(n, to, paths)
	return conclude(found, looked, what, "there is no "+what, one(itself))
}

// accessible returns a failure for each path to which other users than root have the access, and the checked paths.
func accessible(n *facts.Node, to access, paths []string) (found Answer, looked []facts.Fact) {
	var silent []facts.Fact
	found = over(paths, func(name string) Answer {
		stat, file := n.Stat(name)
		if file.Status == facts.Absent {
			return nil
		}
		looked = append(looked, file)
		if !file.OK() {
			silent = append(silent, file)
			return nil
		}
		return othersMay(to, stat, file, "")
	})
	if len(silent) > 0 {
		found = append(found, unknown("who can "+to.verb+" "+count(len(silent), "path"), silent...)...)
	}
	return found, looked
}

// othersMay fails if other users than root have the access to a file. what describes the consequence.
func othersMay(to access, stat facts.Stat, file facts.Fact, what string) Answer {
	who := to.others(&stat)
	if who == "" {
		return nil
	}
	return fail(fmt.Sprintf("%s%s: %s", what, file.Path, who), file).object(file.Path)
}

func narrowRules(n *facts.Node) Answer {
	var dirs []facts.Fact
	for i, dir := range facts.UdevDirs() {
		if _, seen := n.List(dir); i == 0 || seen.Status != facts.Absent { // most nodes have only two of these directories
			dirs = append(dirs, seen)
		}
	}
	return over(n.UdevRules(), func(r facts.UdevRule) Answer {
		why := generosity(&r)
		if why == "" || !isOfVFIO(&r) {
			return nil
		}
		return fail(fmt.Sprintf("a rule in %s opens VFIO nodes to %s", r.File.Path, why), r.File).object(r.File.Path)
	}).or(pass("no such rule", dirs...))
}

// isOfVFIO reports whether a rule is about nodes of groups or functions, or about iommufd. /dev/vfio/vfio is open to all
// users by design (Documentation/driver-api/vfio.rst).
func isOfVFIO(r *facts.UdevRule) bool {
	exactly := func(word string) func(string) bool { return func(p string) bool { return p == word } }
	if r.Matches("KERNEL", exactly("vfio")) {
		return false
	}
	subsystem := r.Matches("SUBSYSTEM", func(p string) bool { return p == "vfio" || p == "vfio-dev" || p == "vfio*" })
	return subsystem || r.Matches("KERNEL", func(p string) bool { return p == "iommu" || strings.HasPrefix(p, "vfio") })
}

// generosity names the ordinary users to which the rule gives the nodes; empty if there are none.
func generosity(r *facts.UdevRule) string {
	for _, mode := range r.Assigned("MODE") {
		if bits, err := strconv.ParseUint(mode, 8, 32); err == nil && bits&0o006 != 0 {
			return "everybody (MODE " + mode + ")"
		}
	}
	// Distributions put ordinary users into these groups, or processes without privileges.
	for _, group := range r.Assigned("GROUP") {
		if slices.Contains([]string{"users", "nogroup", "everyone", "plugdev", "video"}, group) {
			return "group " + group
		}
	}
	if slices.Contains(r.Assigned("TAG"), "uaccess") {
		return "the user at the console (uaccess)"
	}
	return ""
}

// kernelFault is a known fault of VFIO that a guest or its VMM can use.
type kernelFault struct {
	// name has its CVEs, and what is its effect.
	name, what string
	// fixed are the releases of kernel.org with the fix: the first of mainline, then the first of each older branch, if
	// published.
	fixed []string
}

// kernelFaults are the faults that were known when this version was written, the latest first. A kernel with all these
// fixes may still have a later fault.
func kernelFaults() []kernelFault {
	return []kernelFault{
		{"CVE-2024-26812, CVE-2024-27437", "unhandled or stuck legacy interrupts", []string{"6.9"}},
		{
			"CVE-2024-26810", "a race in masking legacy interrupts",
			[]string{"6.9", "6.8.3", "6.7.12", "6.6.24", "6.1.84", "5.15.154", "5.10.215", "5.4.274"},
		},
		{"CVE-2020-12888", "access to memory of a disabled device", []string{"5.8"}},
		{"CVE-2019-3882", "unlimited mappings", []string{"5.1"}},
	}
}

// kernelFixed never passes: distributions backport fixes without changing the kernel's number, and no list contains faults that are
// not known yet. It names the known faults that the number excludes, so that a person only has to look for the others.
func kernelFixed(n *facts.Node) Answer {
	functions := assignable(n)
	if len(functions) == 0 {
		return notApplicable(noneAssignable)
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
			open = append(open, fmt.Sprintf("%s (%s; fixed upstream in %s)", fault.name, fault.what, strings.Join(fault.fixed, ", ")))
		}
	}
	text := fmt.Sprintf("kernel %s is newer than the fixes of %s; ask its distribution about later faults", release.Value, strings.Join(done, ", "))
	if len(open) > 0 {
		text = fmt.Sprintf("the version of kernel %s does not show whether it has the fixes of %s; ask its distribution", release.Value, strings.Join(open, "; "))
	}
	return say(finding.Manual, text, []facts.Fact{release}).reaching(addresses(functions)...)
}

// fixedIn reports whether the release number shows that a kernel has the fix: it is not older than the mainline release,
// or the stable release of its branch, that has it.
func (k *kernelFault) fixedIn(release string) bool {
	runs := facts.KernelNumber(release)
	if runs == nil {
		return false
	}
	for i, fixed := range k.fixed {
		first := facts.KernelNumber(fixed)
		branch := runs[0] == first[0] && runs[1] == first[1]
		if branch && runs[2] >= first[2] || i == 0 && slices.Compare(runs, first) > 0 {
			return true
		}
	}
	return false
}

// ownNodes checks the VFIO nodes of all containers. Privileged containers of the infrastructure have all nodes, and are
// left out: they are trusted with the node.
func ownNodes(n *facts.Node) Answer {
	all, listed := allContainers(n)
	containers := slices.DeleteFunc(slices.Clone(all), func(c runtimes.Container) bool { return c.Info.Privileged && len(devicesIn(n, c.Info.Namespace)) == 0 })
	return over(containers, func(c runtimes.Container) Answer { return strangeNodes(n, &c) }).
		or(hiddenBundles(listed, "which containers have VFIO nodes")).or(pass(count(len(containers), "container"), listed...))
}

// allContainers returns the containers of pods and those without a pod, which only a running containerd reports. An answer of
// containerd that can't be read is among the facts.
func allContainers(n *facts.Node) ([]runtimes.Container, []facts.Fact) {
	containers, listed := runtimes.Containers(n)
	running, asked := runtimes.Running(n)
	switch {
	case running == nil && !asked.Known():
		return containers, append(listed, asked)
	case running == nil:
		return containers, listed
	}
	for i := range running.Containers {
		if c := running.Containers[i]; c.Namespace == "" {
			containers = append(containers, runtimes.Container{Info: c, Bundle: fmt.Sprintf("containerd: %s/%s", c.Space, c.ID)})
		}
	}
	return containers, listed
}

// strangeNodes fails for each VFIO node of a container whose functions no claim of its namespace has.
func strangeNodes(n *facts.Node, c *runtimes.Container) Answer {
	own := devicesIn(n, c.Info.Namespace)
	return over(c.Info.Devices, func(device string) Answer {
		node := n.VFIONode(&c.Info, device)
		behind := n.Behind(node)
		// A group's node gives access to a claim's function and to the functions that are assigned with it, so one match is enough.
		if len(behind) == 0 || slices.ContainsFunc(behind, func(a pci.Address) bool { return slices.Contains(own, a) }) {
			return nil
		}
		shown := node
		if device != node {
			shown += " as " + device
		}
		text := fmt.Sprintf("%s has %s, which is %s. No claim of its namespace has it", whose(c), shown, strings.Join(words(behind), " and "))
		return fail(text, facts.Fact{Path: c.Bundle, Value: shown, How: "read"}).object(whose(c)).reaching(behind...)
	})
}

// whose names a container by its pod, or by its namespace in containerd.
func whose(c *runtimes.Container) string {
	if c.Info.Pod == "" {
		return fmt.Sprintf("container %s/%.12s of no pod", c.Info.Space, c.Info.ID)
	}
	return fmt.Sprintf("a container of pod %s/%s", c.Info.Namespace, c.Info.Pod)
}
