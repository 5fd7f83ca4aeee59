package check

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/facts"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/vfio"
)

// vfioChecks returns the checks of group VFIO: functions are with VFIO as they
// should be, and with the VMMs of their claims.
func vfioChecks() []Check {
	return slices.Concat(vfioModuleChecks(), vfioBindingChecks(), vfioHolderChecks(), vfioNodeChecks())
}

// vfioModuleChecks are about vfio-pci's parameters.
func vfioModuleChecks() []Check {
	parameters := "grep -H . /sys/module/vfio_pci/parameters/*; grep -r 'vfio.pci' /etc/modprobe.d /proc/cmdline"
	source := []string{"Linux: drivers/vfio/pci/vfio_pci.c"}
	return []Check{
		{Rule: finding.Rule{
			ID: "VFIO-001", Title: "Ensure that vfio-pci's denylist is in force", Severity: isolation.High, Cheap: true,
			Why:    "The list contains devices with errata that an untrusted user can exploit.",
			Fix:    "remove disable_denylist from modprobe.d and the command line, and reload the module",
			Verify: parameters, Sources: source,
		}, Judge: vfioPCI("disable_denylist", "the denylist is disabled", "N").judge},
		{Rule: finding.Rule{
			ID: "VFIO-002", Title: "Ensure that a PF in user space can't create VFs", Severity: isolation.High, Cheap: true,
			Why:    "The holder of the PF would control VFs that others use.",
			Fix:    "`echo N > /sys/module/vfio_pci/parameters/enable_sriov`, and remove it from modprobe.d",
			Verify: parameters, Sources: source,
		}, Judge: vfioPCI("enable_sriov", "a VM or process with a PF can create VFs", "N").judge},
		{Rule: finding.Rule{
			ID: "VFIO-015", Title: "Ensure that vfio-pci masks interrupts at the function and disables legacy VGA", Severity: isolation.Low, Cheap: true,
			Why:    "Masking at the interrupt controller affects other devices on the line. All cards share the legacy VGA range.",
			Fix:    "put `options vfio-pci nointxmask=N disable_vga=Y` into /etc/modprobe.d, and reload the module",
			Verify: parameters, Sources: source,
		}, Judge: legacyOff},
	}
}

func vfioPCI(name, bad, good string) parameter {
	return parameter{module: "vfio_pci", name: name, good: []string{good}, bad: bad, none: "vfio-pci is not loaded, or lacks this parameter"}
}

// legacyOff asks for VGA only where a card of that class is assignable.
func legacyOff(n *facts.Node) Answer {
	said := vfioPCI("nointxmask", "interrupts are masked at the interrupt controller", "N").judge(n)
	vga := slices.ContainsFunc(assignable(n), func(f *device.Function) bool { return f.Class.Sub() == pci.ClassVGA })
	if !vga || said[0].State == finding.Fail {
		return said
	}
	legacy := vfioPCI("disable_vga", fmt.Sprintf("the holder of a VGA card can reach the legacy range of all cards (class %04x)", uint16(pci.ClassVGA)), "Y").judge(n)
	if legacy[0].State == finding.NotApplicable { // a kernel without CONFIG_VFIO_PCI_VGA
		return said
	}
	return legacy
}

// vfioBindingChecks are about how functions came to VFIO's drivers.
func vfioBindingChecks() []Check {
	bound := "ls -l /sys/bus/pci/drivers/vfio-pci; grep -Hv null /sys/bus/pci/devices/*/driver_override"
	return []Check{
		{Rule: finding.Rule{
			ID: "VFIO-003", Title: "Ensure that vfio-pci takes no function by ID", Severity: isolation.Medium,
			Why:     "IDs match every function of a model, including one that is plugged in later.",
			Fix:     "remove vfio-pci.ids from the command line and modprobe.d; the plugin binds by driver_override",
			Verify:  "grep -o 'vfio.pci.ids=[^ ]*' /proc/cmdline; grep -r 'vfio.pci.*ids=' /etc/modprobe.d",
			Sources: []string{"Linux: drivers/vfio/pci/vfio_pci.c (the parameter has no file in sysfs)"},
		}, Judge: noIDs},
		{Rule: finding.Rule{
			ID: "VFIO-004", Title: "Ensure that each function on vfio-pci has a visible reason", Severity: isolation.Medium, Cheap: true,
			Why:     "An ID written to new_id leaves no trace and binds every function of the model.",
			Fix:     "write the ID to /sys/bus/pci/drivers/vfio-pci/remove_id, and unbind the function",
			Verify:  bound,
			Sources: []string{"Linux: Documentation/ABI/testing/sysfs-bus-pci"},
		}, Judge: boundForAReason},
		{Rule: finding.Rule{
			ID: "VFIO-005", Title: "Ensure that driver_override, driverctl's files and drivers agree", Severity: isolation.Medium, Cheap: true,
			Why:     "A stale override binds the function to another driver after a hot plug or bus reset.",
			Fix:     "`echo > driver_override`, and `driverctl unset-override` if driverctl set it",
			Verify:  bound + "; grep -r . /etc/driverctl.d",
			Sources: []string{"Linux: Documentation/ABI/testing/sysfs-bus-pci"},
		}, Judge: overridesAgree},
		{Rule: finding.Rule{
			ID: "VFIO-006", Title: "Ensure that the plugin knows every function on a VFIO driver", Severity: isolation.Medium, Cheap: true,
			Why:    "Nothing resets or watches an unknown function, and the first process that opens its node controls it.",
			Fix:    "unbind it, or add it to the node config",
			Verify: bound,
		}, Judge: noOrphans},
		{Rule: finding.Rule{
			ID: "VFIO-014", Title: "Ensure that no function uses a UIO driver", Severity: isolation.High, Cheap: true,
			Why:     "UIO gives a process registers and DMA without an IOMMU.",
			Fix:     "unbind the function, unload the module, and use vfio-pci",
			Verify:  "ls -l /sys/bus/pci/drivers/uio_pci_generic /sys/bus/pci/drivers/igb_uio",
			Sources: []string{"Linux: drivers/uio/uio_pci_generic.c"},
		}, Judge: noUIO},
	}
}

// configuredIDs returns the ids that vfio-pci is configured to take, and where.
func configuredIDs(n *facts.Node) []facts.Fact {
	setting := n.Parameter("vfio-pci", "ids")
	ids := setting.Configured
	for _, value := range n.Arguments("vfio-pci.ids") {
		ids = append(ids, facts.Fact{Path: n.Cmdline().Path, Value: value, How: "read"})
	}
	return slices.DeleteFunc(ids, func(f facts.Fact) bool { return f.Value == "" })
}

func noIDs(n *facts.Node) Answer {
	ids := configuredIDs(n)
	if len(ids) == 0 {
		if line := n.Cmdline(); !line.OK() {
			return unknown("which IDs vfio-pci takes", line)
		}
		_, files := n.List("etc/modprobe.d")
		return pass("no IDs are set", n.Cmdline(), files)
	}
	last := ids[len(ids)-1]
	taken := slices.DeleteFunc(n.Functions(), func(f *device.Function) bool { return !matchesIDs(f, ids) })
	return fail(fmt.Sprintf("%s makes vfio-pci take every function with the IDs %s", last.Path, last.Value), ids...).reaching(addresses(taken)...)
}

// matchesIDs reports whether a function has one of the ids: "vendor:device" and
// more, in hexadecimal, separated by commas.
func matchesIDs(f *device.Function, ids []facts.Fact) bool {
	name := fmt.Sprintf("%04x:%04x", uint16(f.Vendor), uint16(f.Device))
	return slices.ContainsFunc(ids, func(fact facts.Fact) bool {
		for id := range strings.SplitSeq(strings.ToLower(fact.Value), ",") {
			if id == name || strings.HasPrefix(id, name+":") {
				return true
			}
		}
		return false
	})
}

// onVFIO asks about each function that a VFIO driver has.
func onVFIO(n *facts.Node, wrong func(*device.Function) Answer) Answer {
	found := over(functionsWhere(n, func(f *device.Function) bool { return f.Locked || onVFIODriver(f) }), func(f *device.Function) Answer {
		if f.Locked {
			return unknown(fmt.Sprintf("the driver of %s (an operation on it hangs in the kernel)", f.Address)).on(f)
		}
		return wrong(f).on(f)
	})
	return conclude(found, functionsWhere(n, onVFIODriver), "function", "no function is on a VFIO driver", boundBy)
}

func driverFact(f *device.Function) facts.Fact {
	seen := link(f.Address, "driver", f.Driver)
	if f.Driver == "" {
		seen.Status = facts.Absent
	}
	return seen
}

// boundBy is a function's driver and its override.
func boundBy(f *device.Function) []facts.Fact { return []facts.Fact{driverFact(f), overrideFact(f)} }

func overrideFact(f *device.Function) facts.Fact {
	return attribute(f.Address, "driver_override", cmp.Or(f.DriverOverride, "(null)"))
}

// isKnown reports whether the plugin's files have the function.
func isKnown(n *facts.Node, f *device.Function) bool {
	offered, _ := n.IsOffered(f.Address)
	return offered || n.IsBound(f.Address) || len(n.TenanciesOf(f.Address)) > 0
}

// boundForAReason is about vfio-pci alone: its variants take no function without an
// override (include/linux/pci.h PCI_DRIVER_OVERRIDE_DEVICE_VFIO).
func boundForAReason(n *facts.Node) Answer {
	ids := configuredIDs(n)
	return onVFIO(n, func(f *device.Function) Answer {
		if f.Driver != device.GenericVFIO || f.DriverOverride != "" || isKnown(n, f) || matchesIDs(f, ids) {
			return nil
		}
		return fail(fmt.Sprintf("%s is on vfio-pci without an override, IDs or a record of the plugin", f.Address), driverFact(f), overrideFact(f))
	})
}

func noOrphans(n *facts.Node) Answer {
	return onVFIO(n, func(f *device.Function) Answer {
		what := "whether the plugin knows " + f.Address.String()
		dir := n.Journal()
		switch {
		case isKnown(n, f):
			return nil
		case !dir.Known():
			return unknown(what, dir)
		case len(n.Damaged) > 0:
			return unknown(what, n.Damaged...)
		}
		return fail(fmt.Sprintf("%s is on %s without a record of the plugin", f.Address, f.Driver), driverFact(f))
	})
}

func overridesAgree(n *facts.Node) Answer {
	found := append(staleKept(n), over(functionsWhere(n, anyFunction), func(f *device.Function) Answer {
		if f.DriverOverride == "" || f.Driver == "" || f.DriverOverride == f.Driver {
			return nil
		}
		return fail(fmt.Sprintf("%s is on %s, but its driver_override is %s", f.Address, f.Driver, f.DriverOverride), driverFact(f), overrideFact(f)).on(f)
	})...)
	all := n.Functions()
	said := showing(found.or(pass(count(len(n.Snapshot.Functions), "function"))), all, boundBy)
	if len(found) == 0 {
		said[0].LeftOut += len(n.Snapshot.Functions) - len(all)
	}
	return said
}

// staleKept returns the files of driverctl's that say other than the overrides now.
func staleKept(n *facts.Node) Answer {
	return over(n.Glob("etc/driverctl.d", "pci-*"), func(kept facts.Fact) Answer {
		addr, err := pci.ParseAddress(strings.TrimPrefix(path.Base(kept.Path), "pci-"))
		f, ok := n.Snapshot.Function(addr)
		if err != nil || !ok || !kept.OK() || f.Locked || kept.Value == f.DriverOverride {
			return nil
		}
		return fail(fmt.Sprintf("driverctl binds %s to %s at boot, but its driver_override is %s",
			f.Address, kept.Value, cmp.Or(f.DriverOverride, "nothing")), kept, overrideFact(f)).on(f)
	})
}

func noUIO(n *facts.Node) Answer {
	_, generic := n.List("sys/bus/pci/drivers/uio_pci_generic")
	_, igb := n.List("sys/bus/pci/drivers/igb_uio")
	return over(functionsWhere(n, func(f *device.Function) bool {
		return device.SameDriver(f.Driver, "uio_pci_generic") || device.SameDriver(f.Driver, "igb_uio")
	}), func(f *device.Function) Answer {
		return fail(fmt.Sprintf("%s is on %s", f.Address, f.Driver), driverFact(f)).on(f)
	}).or(pass("none uses UIO", generic, igb))
}

func registersUnmapped(n *facts.Node) Answer {
	if len(assignable(n)) == 0 {
		return notApplicable(noneAssignable)
	}
	users, seen := n.Users()
	found := over(users, func(u vfio.Usage) Answer {
		return over(functionsAt(n, u.Registers), func(f *device.Function) Answer {
			if !n.IsAvailable(f.Address) {
				return nil
			}
			maps := facts.Fact{Path: fmt.Sprintf("/proc/%d/maps", u.PID), Value: "resource file of " + f.Address.String(), How: "process", Needs: facts.OfProcesses}
			return fail(fmt.Sprintf("%s maps registers of %s", &u, f.Address), maps).on(f).object(processName(&u))
		})
	})
	if !seen.OK() {
		return append(found, unknown("which registers processes map", seen)...)
	}
	return found.or(pass("no process maps any", seen))
}

func narrowRules(n *facts.Node) Answer {
	_, own := n.List("etc/udev/rules.d")
	_, system := n.List("usr/lib/udev/rules.d")
	return over(n.UdevRules(), func(r facts.UdevRule) Answer {
		why := generosity(&r)
		if why == "" || !isOfVFIO(&r) {
			return nil
		}
		return fail(fmt.Sprintf("a rule in %s opens VFIO nodes to %s", r.File.Path, why), r.File).object(r.File.Path)
	}).or(pass("no such rule", own, system))
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

// generosity names the users that get the nodes; empty if the rule gives them to none.
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
		return "the user at the console (uaccess)"
	}
	return ""
}

// vfioNodeChecks are about VFIO's nodes, its code, and what the journal, Kata and containers have.
func vfioNodeChecks() []Check {
	return []Check{
		{Rule: finding.Rule{
			ID: "VFIO-007", Title: "Ensure that only root can open VFIO group nodes", Severity: isolation.High,
			Why: "Whoever opens a node before the VM controls the function and its DMA.", Fix: "`chown root:root` and `chmod 0600` the node, and correct the udev rule that set it (VFIO-017)",
			Verify: "ls -l /dev/vfio", Sources: []string{"Linux: drivers/vfio/group.c (vfio_devnode)"},
		}, Judge: groupNodesAreRoots},
		{Rule: finding.Rule{
			ID: "VFIO-008", Title: "Ensure that only root can open VFIO function nodes and iommufd", Severity: isolation.High,
			Why: "Whoever opens a node before the VM controls the function and its DMA.", Fix: "`chown root:root` and `chmod 0600` the node (0660 for /dev/iommu), and correct the udev rule that set it (VFIO-017)",
			Verify: "ls -l /dev/iommu /dev/vfio/devices", Sources: []string{"Linux: drivers/iommu/iommufd/main.c"},
		}, Judge: functionNodesAreRoots},
		{Rule: finding.Rule{
			ID: "VFIO-018", Title: "Ensure that a cgroup limits the memory that a VMM can pin", Severity: isolation.Low,
			Why:     "A VMM without a limit can exhaust the node's memory by pinning it.",
			Fix:     "set a memory limit on the pod and an overhead on its RuntimeClass; place the VMM in the pod's cgroup (sandbox_cgroup_only = true)",
			Verify:  "cat /proc/<pid>/cgroup /proc/<pid>/limits; cat /sys/fs/cgroup/<cgroup>/memory.max, and that of the cgroups above",
			Sources: []string{"Linux: drivers/vfio/vfio_iommu_type1.c vfio_lock_acct", "Linux: mm/util.c __account_locked_vm"},
		}, Judge: pinningBounded},
		{Rule: finding.Rule{
			ID: "VFIO-016", Title: "Ensure that the kernel has the fixes of known VFIO faults", Severity: isolation.High, Static: true,
			Why: "A guest with a device can use these faults to stop the host and all its tenants.",
			Fix: "look for the fixes in the distribution's security tracker or the kernel's changelog; update and reboot if any is missing",
			Verify: "uname -r; zgrep -h -e CVE-2024-26810 -e CVE-2024-26812 -e CVE-2024-27437 -e CVE-2020-12888 -e CVE-2019-3882 " +
				"/usr/share/doc/linux-image-$(uname -r)/changelog*.gz; rpm -q --changelog kernel-core-$(uname -r) | grep CVE",
			Sources: []string{
				"CVE-2024-26810", "CVE-2024-26812", "CVE-2024-27437", "CVE-2020-12888", "CVE-2019-3882",
				"Linux: drivers/vfio/pci/vfio_pci_intrs.c", "Linux: drivers/vfio/vfio_iommu_type1.c",
			},
		}, Judge: kernelFixed},
		{Rule: finding.Rule{
			ID: kataSandboxes, Title: "Ensure that Kata's sandboxes have only functions of their own claims", Severity: isolation.Critical,
			Why:     "A function without a claim bypassed the plugin and is never reset. One of another claim is in the wrong VM.",
			Fix:     "delete the sandbox's pod; find out what added the function (RT-003, CDI-002, an SR-IOV CNI plugin), and reset it before it is assigned again",
			Verify:  seeSandboxes,
			Sources: []string{"Kata 4.1: virtcontainers/persist/api SandboxState", "Kata 4.1: runtime-rs virt_container SandboxState"},
		}, Judge: sandboxesHaveTheirOwn},
		{Rule: finding.Rule{
			ID: "VFIO-020", Title: "Ensure that Kata's sandboxes match the prepared claims", Severity: isolation.Medium,
			Why:     "A claim without its sandbox blocks its function. Kata's cleanup of a stale state can hit another tenant.",
			Fix:     "delete the claim's pod; without a pod, the kubelet unprepares the claim within minutes. Remove a stale sandbox directory when its processes have ended",
			Verify:  seeSandboxes,
			Sources: []string{"Kata 4.1: virtcontainers/persist/fs Destroy"},
		}, Judge: sandboxesAgree},
		{Rule: finding.Rule{
			ID: "VFIO-021", Title: "Ensure that a container has VFIO nodes of its own namespace's claims only", Severity: isolation.High,
			Why:     "Whoever opens the node controls the device. NRI does not check containers of other clients of containerd, or without the plugin.",
			Fix:     "end the named container, and find out what started it",
			Verify:  "ctr namespaces ls; ctr -n NAMESPACE containers info ID | jq '.Spec.linux.devices'",
			Sources: []string{"Linux: Documentation/driver-api/vfio.rst"},
		}, Judge: ownNodes},
	}
}

func groupNodesAreRoots(n *facts.Node) Answer {
	nodes := pathsIn(n, "dev/vfio")
	return rootsAlone(n, "group node", slices.DeleteFunc(nodes, func(node string) bool { return node == "dev/vfio/vfio" || node == "dev/vfio/devices" }))
}

func functionNodesAreRoots(n *facts.Node) Answer {
	nodes := pathsIn(n, "dev/vfio/devices")
	if n.Exists("dev/iommu").OK() {
		nodes = append(nodes, "dev/iommu")
	}
	return rootsAlone(n, "function node", nodes)
}

// pathsIn returns the paths of what is in a directory.
func pathsIn(n *facts.Node, dir string) []string {
	names, _ := n.List(dir)
	var paths []string
	for _, name := range names {
		paths = append(paths, path.Join(dir, name))
	}
	return paths
}

// rootsAlone fails for each file that others than root may write to.
func rootsAlone(n *facts.Node, what string, paths []string) Answer {
	found, looked := writable(n, paths)
	return conclude(found, looked, what, "there is no "+what, one(itself))
}

// writable returns a failure for each path that other users than root may write to, and the checked paths.
func writable(n *facts.Node, paths []string) (found Answer, looked []facts.Fact) {
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
		return othersMay(stat, file, "")
	})
	if len(silent) > 0 {
		found = append(found, unknown("who can write to "+count(len(silent), "path"), silent...)...)
	}
	return found, looked
}

// othersMay fails if others than root may write to a file. what says what they get by that.
func othersMay(stat facts.Stat, file facts.Fact, what string) Answer {
	if stat.Writers() == "" {
		return nil
	}
	return fail(fmt.Sprintf("%s%s: %s", what, file.Path, stat.Writers()), file).object(file.Path)
}

// kernelFault is a known fault of VFIO that a guest or its VMM can use.
type kernelFault struct {
	// name is its CVEs, what what it does.
	name, what string
	// fixed are the releases of kernel.org with the fix: the first of mainline, then the
	// first of each older branch, where that is published.
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

// kernelFixed never passes: distributions put fixes into kernels whose number says
// nothing of them, and what is not known yet no list has. It says which of the known
// faults the number excludes, so that a person looks for the others alone.
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
	runs, ok := kernelNumber(release)
	if !ok {
		return false
	}
	for i, fixed := range k.fixed {
		first, _ := kernelNumber(fixed)
		branch := runs[0] == first[0] && runs[1] == first[1]
		if branch && runs[2] >= first[2] || i == 0 && slices.Compare(runs[:], first[:]) > 0 {
			return true
		}
	}
	return false
}

// kernelNumber returns the three numbers at the begin of a release; a missing last number is zero. A release candidate
// has none, because it may be older than the fix.
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
