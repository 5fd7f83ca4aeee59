package check

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

const (
	vulnerabilities = "sys/devices/system/cpu/vulnerabilities"
	hwVuln          = "Linux: Documentation/admin-guide/hw-vuln/"
)

// cpuChecks are about the CPU, and the memory near it.
func cpuChecks() []Check {
	return []Check{
		{ID: "HOST-004", Judge: flawsMitigated},
		{ID: "HOST-005", Judge: noOptOut},
		{ID: "HOST-006", Judge: noSharedCore},
		{ID: "HOST-007", Judge: kvmGuards},
		ofSettings("HOST-008"),
		{ID: "HOST-010", Judge: oneMicrocode},
		{ID: "HOST-017", Judge: nearMemory},
	}
}

// flaws returns the CPU's vulnerabilities with the kernel's status of each.
func flaws(n *facts.Node) ([]facts.Fact, facts.Fact) {
	_, dir := n.List(vulnerabilities)
	return n.Glob(vulnerabilities, "*"), dir
}

// flawsMitigated reports flaws one by one. HOST-006 reports those of SMT.
func flawsMitigated(n *facts.Node) Answer {
	files, dir := flaws(n)
	if len(files) == 0 {
		return unknown("the CPU's flaws", dir)
	}
	return over(files, func(f facts.Fact) Answer {
		name := path.Base(f.Path)
		switch open := unmitigated(f.Value); {
		case !f.OK():
			return unknown(name, f).object(name)
		case open != "":
			return fail(fmt.Sprintf("%s: %s", name, open), f).object(name)
		case strings.HasPrefix(f.Value, "Unknown"):
			return unknown(name+" (the hypervisor decides, or the kernel does not know the CPU)", f).object(name)
		}
		return nil
	}).or(pass(count(len(files), "known flaw")+", all mitigated", dir))
}

// unmitigated returns the part of a line according to which guests can use the flaw. It is empty if there is none.
// Semicolons separate the parts. A part begins with a word and a colon if it is about one side of the flaw
// (arch/x86/kernel/cpu/bugs.c):
//
//	Mitigation: PTE Inversion; VMX: vulnerable
//	Mitigation: Enhanced / Automatic IBRS; IBPB: conditional; BHI: Vulnerable
//	KVM: Vulnerable
//	Mitigation: Vulnerable, KVM: Not affected
//
// The last line is about the node's own processes: KVM protects guests.
func unmitigated(line string) string {
	for part := range strings.SplitSeq(line, ";") {
		part = strings.TrimSpace(part)
		_, kvm, about := strings.Cut(part, ", KVM: ")
		switch {
		case about && !strings.HasPrefix(kvm, "Vulnerable"):
		case strings.HasPrefix(part, "Vulnerable"), strings.Contains(part, ": Vulnerable"), strings.HasPrefix(part, "VMX: vulnerable"):
			return part
		}
	}
	return ""
}

func noSharedCore(n *facts.Node) Answer {
	active := n.Read("sys/devices/system/cpu/smt/active")
	switch {
	case active.Status == facts.Absent:
		return notApplicable("the CPU has no SMT", active)
	case !active.OK():
		return unknown("whether SMT is on", active)
	case active.Is("0"):
		return pass("SMT is off", active)
	}
	files, _ := flaws(n)
	seen := []facts.Fact{active, n.Read("sys/devices/system/cpu/smt/control")}
	var names []string
	for _, f := range files {
		// The kernel adds the words for flaws by which a thread reads the data of its core's other thread, such as MDS
		// (arch/x86/kernel/cpu/bugs.c).
		if strings.Contains(f.Value, "SMT vulnerable") {
			names = append(names, path.Base(f.Path))
			seen = append(seen, f)
		}
	}
	if len(names) > 0 {
		return fail("SMT is on, and makes the CPU vulnerable: "+strings.Join(names, ", "), seen...)
	}
	return say(finding.Manual, "SMT is on: the kernel knows no SMT flaw of this CPU, but threads share caches; check whether VMs have whole cores", seen)
}

// notAffected reports whether the CPU does not have the flaw.
func notAffected(n *facts.Node, flaw string) bool {
	return n.Read(vulnerabilities + "/" + flaw).Is("Not affected")
}

func kvmGuards(n *facts.Node) Answer {
	flush, pages := n.Parameter("kvm_intel", "vmentry_l1d_flush"), n.Parameter("kvm", "nx_huge_pages")
	var found Answer
	if flush.Running.Is("never") && !notAffected(n, "l1tf") {
		found = pending(fail("KVM never flushes the L1 cache on guest entry", flush.Running), &flush, "cond", "always")
	}
	// The parameter reads as a boolean, or as "never" (get_nx_huge_pages in arch/x86/kvm/mmu/mmu.c).
	if pages.Running.OK() && isAny(pages.Running.Value, []string{"N", "never"}) && !notAffected(n, "itlb_multihit") {
		found = append(found, pending(fail("guests' huge pages are executable", pages.Running), &pages, "auto", "force", "Y")...)
	}
	switch {
	case len(found) > 0:
		return found
	case !flush.Running.Known() || !pages.Running.Known():
		return unknown("KVM's protections", flush.Running, pages.Running)
	case !flush.Running.OK() && !pages.Running.OK():
		return notApplicable("KVM is not loaded, or this CPU needs neither", pages.Running)
	}
	return pass("in force where needed", flush.Running, pages.Running)
}

func oneMicrocode(n *facts.Node) Answer {
	kinds, seen := n.Processors()
	switch {
	case !seen.OK():
		return unknown("the CPUs' microcode", seen)
	case len(kinds) == 0:
		return notApplicable("the kernel shows no microcode version", seen)
	}
	version := func(p facts.Processor) facts.Fact {
		seen := seen
		seen.Value = "microcode " + strings.Join(p.Microcode, " ")
		return seen
	}
	// Each kind has versions of its own, so only CPUs of one kind are compared.
	return over(kinds, func(p facts.Processor) Answer {
		if len(p.Microcode) < 2 {
			return nil
		}
		return fail(fmt.Sprintf("CPUs of family/model/stepping %s run microcode %s", p.Name, strings.Join(p.Microcode, " and ")), version(p))
	}).or(pass(count(len(kinds), "kind")+" of CPU", version(kinds[0])))
}

// optOut is an argument that switches a mitigation off.
type optOut struct {
	name string
	// off are the values that switch it off, alone or in a list; "" is the bare word.
	off []string
	// flaw is the file of the flaw that it exposes; empty for all.
	flaw string
}

// optOuts are the parameters that Documentation/admin-guide/kernel-parameters.txt lists for mitigations=off, with their
// other spellings, and the attack vectors of Documentation/admin-guide/hw-vuln/attack_vector_controls.rst that begin in
// a guest.
func optOuts() []optOut {
	off := []string{"off"}
	bare := []string{""}
	return []optOut{
		{"mitigations", []string{"off", "no_guest_host", "no_guest_guest", "no_cross_thread"}, ""},
		{"nopti", bare, "meltdown"},
		{"pti", off, "meltdown"},
		{"kpti", []string{"0", "off", "n", "no"}, "meltdown"},
		{"nospectre_v1", bare, "spectre_v1"},
		{"nospectre_v2", bare, "spectre_v2"},
		{"spectre_v2", off, "spectre_v2"},
		{"spectre_v2_user", off, "spectre_v2"},
		{"spectre_bhi", off, "spectre_v2"},
		{"nospectre_bhb", bare, "spectre_v2"},
		{"nospec_store_bypass_disable", bare, "spec_store_bypass"},
		{"spec_store_bypass_disable", off, "spec_store_bypass"},
		{"ssbd", []string{"force-off"}, "spec_store_bypass"},
		{"l1tf", off, "l1tf"},
		{"kvm-intel.vmentry_l1d_flush", []string{"never"}, "l1tf"},
		{"mds", off, "mds"},
		{"tsx_async_abort", off, "tsx_async_abort"},
		{"srbds", off, "srbds"},
		{"mmio_stale_data", off, "mmio_stale_data"},
		{"reg_file_data_sampling", off, "reg_file_data_sampling"},
		{"gather_data_sampling", off, "gather_data_sampling"},
		{"retbleed", off, "retbleed"},
		{"spec_rstack_overflow", off, "spec_rstack_overflow"},
		{"indirect_target_selection", off, "indirect_target_selection"},
		{"tsa", off, "tsa"},
		{"vmscape", off, "vmscape"},
		{"kvm.nx_huge_pages", []string{"off", "never"}, "itlb_multihit"},
	}
}

// disables reports whether the value switches the mitigation off. Some parameters take lists, such as
// "auto,no_guest_host".
func (o *optOut) disables(value string) bool {
	words := strings.FieldsFunc(value, func(r rune) bool { return r == ',' || r == ';' })
	if value == "" {
		// The bare word is one value, but FieldsFunc returns none for it.
		words = []string{""}
	}
	return slices.ContainsFunc(words, func(w string) bool { return slices.Contains(o.off, w) })
}

func noOptOut(n *facts.Node) Answer {
	cmdline := n.Cmdline()
	if !cmdline.OK() {
		return unknown("the kernel's command line", cmdline)
	}
	return over(optOuts(), func(o optOut) Answer {
		// Without the flaw, there is no mitigation to switch off.
		if o.flaw != "" && notAffected(n, o.flaw) {
			return nil
		}
		return o.judge(n, cmdline)
	}).or(pass("no mitigation is disabled", cmdline))
}

func (o *optOut) judge(n *facts.Node, cmdline facts.Fact) Answer {
	argument := n.BootArgument(o.name)
	now := argument.Running.OK() && o.disables(argument.Running.Value)
	next, set := argument.Next()
	later := set && o.disables(next)
	text, then := "the kernel runs with "+o.name, "not set on disk: the next boot may be without it"
	if shown := cmp.Or(argument.Running.Value, next); shown != "" {
		text += "=" + shown
	}
	switch {
	case !now && !later:
		return nil
	case !now:
		text, then = "the next boot uses "+strings.TrimSuffix(o.name+"="+next, "="), "comes with the next boot"
	case later:
		then = "also set on disk: it returns with every boot"
	}
	return fail(text, cmdline).pending(then).object(o.name).seen(argument.Configured...)
}

// nearMemory compares the NUMA node of each VMM's functions with the nodes from which its cpuset allows memory.
func nearMemory(n *facts.Node) Answer {
	online := n.Read("sys/devices/system/node/online")
	// A list of several nodes has a range or a comma: "0-1", "0,2".
	if !strings.ContainsAny(online.Value, "-,") {
		return notApplicable("the node has only one known NUMA node", online)
	}
	holdings, _ := n.Holdings()
	var seen []facts.Fact
	looked := map[pci.Address]bool{}
	found := over(holdings, func(h facts.OpenHandle) Answer {
		return over(functionsAt(n, h.Devices), func(f *device.Function) Answer {
			if !h.Process.VM || f.NUMANode == nil || looked[f.Address] {
				return nil
			}
			looked[f.Address] = true
			allowed := allowedMemory(n, h.Process.PID)
			near := attribute(f.Address, "numa_node", strconv.Itoa(*f.NUMANode))
			switch {
			case !allowed.OK():
				return unknown("the NUMA nodes of the VM of "+f.Address.String(), allowed).on(f)
			case !inList(allowed.Value, *f.NUMANode):
				return fail(fmt.Sprintf("%s is on NUMA node %d, but its VM has memory of %s only", f.Address, *f.NUMANode, allowed.Value), near, allowed).on(f)
			}
			seen = append(seen, near, allowed)
			return nil
		})
	})
	if hidden := unseenHolders(n, "which memory VMs may have"); len(hidden) > 0 {
		return append(found, hidden...)
	}
	return orPassWith(found, len(looked), "function", "no VM has a function with a known NUMA node", seen)
}

// allowedMemory returns the list of nodes that a process may have memory of.
func allowedMemory(n *facts.Node, pid int) facts.Fact {
	status := n.Read(sysfs.Process(pid, "status"))
	if list, ok := sysfs.StatusField(status.Value, "Mems_allowed_list"); ok {
		status.Value = list
		return status
	}
	if status.OK() {
		status.Status, status.Err, status.Value = facts.Broken, "it has no Mems_allowed_list", ""
	}
	return status
}

// inList reports whether a list of the kernel's ("0-1,3") has the number.
func inList(list string, number int) bool {
	for part := range strings.SplitSeq(list, ",") {
		low, high, isRange := strings.Cut(strings.TrimSpace(part), "-")
		if !isRange {
			high = low
		}
		first, err := strconv.Atoi(low)
		last, err2 := strconv.Atoi(high)
		if err == nil && err2 == nil && first <= number && number <= last {
			return true
		}
	}
	return false
}
