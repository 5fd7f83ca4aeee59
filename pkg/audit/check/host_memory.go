package check

import (
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/facts"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

func memoryChecks() []Check {
	return []Check{
		{Rule: finding.Rule{
			ID: "HOST-009", Title: "Ensure that guests' memory is not merged", Severity: isolation.Medium,
			Why:     "Write timing reveals which pages another guest has.",
			Fix:     "`echo 2 > /sys/kernel/mm/ksm/run`, and stop ksmtuned",
			Verify:  "cat /sys/kernel/mm/ksm/run",
			Sources: []string{"Linux: Documentation/admin-guide/mm/ksm.rst"},
		}, Judge: notMerged},
		{Rule: finding.Rule{
			ID: "HOST-011", Title: "Ensure that memory is cleared on allocation", Severity: isolation.Medium,
			Why:     "Otherwise data of one tenant can reach another through a kernel bug.",
			Fix:     "boot with `init_on_alloc=1`, and with `init_on_free=1` if its cost is acceptable",
			Verify:  "grep -o 'init_on_alloc=.' /proc/cmdline; grep INIT_ON_ALLOC /boot/config-$(uname -r)",
			Sources: []string{"Linux: Documentation/admin-guide/kernel-parameters.txt, init_on_alloc="},
		}, Judge: clearedMemory},
		{Rule: finding.Rule{
			ID: "HOST-012", Title: "Ensure that guests' memory is not swapped unencrypted", Severity: isolation.Medium,
			Why:     "Swap keeps guest memory after the guest ends.",
			Fix:     "`swapoff -a` and remove it from /etc/fstab, or swap to dm-crypt with a random key",
			Verify:  "cat /proc/swaps; lsblk -o NAME,TYPE,MOUNTPOINT",
			Sources: []string{"proc_swaps(5)", "crypttab(5): swap"},
		}, Judge: noPlainSwap},
		{Rule: finding.Rule{
			ID: "HOST-016", Title: "Ensure that the node's memory corrects errors", Severity: isolation.Medium,
			Why:     "Without ECC, a guest can flip bits of the host or other guests (Rowhammer).",
			Fix:     "install ECC memory, enable ECC in the firmware setup, and load the platform's EDAC driver",
			Verify:  "grep . /sys/devices/system/edac/mc/mc*/*/dimm_edac_mode /sys/devices/system/edac/mc/mc*/ue_count",
			Sources: []string{"Linux: Documentation/admin-guide/RAS/main.rst"},
		}, Judge: correctedMemory},
	}
}

func notMerged(n *facts.Node) Answer {
	run := n.Read("sys/kernel/mm/ksm/run")
	switch {
	case run.Status == facts.Absent:
		return notApplicable("the kernel has no KSM", run)
	case !run.OK():
		return unknown("whether KSM merges pages", run)
	case run.Is("1"):
		return fail("KSM is merging pages", run)
	}
	if shared := n.Read("sys/kernel/mm/ksm/pages_shared"); shared.OK() && !shared.Is("0") {
		return fail("KSM stopped, but pages are still merged", run, shared)
	}
	return pass("KSM does not run", run)
}

func clearedMemory(n *facts.Node) Answer {
	argument := n.BootArgument("init_on_alloc")
	config := n.Read("boot/config-" + n.Snapshot.Host.Kernel)
	standard := strings.Contains(config.Value, "CONFIG_INIT_ON_ALLOC_DEFAULT_ON=y\n")
	config.Value = fmt.Sprintf("CONFIG_INIT_ON_ALLOC_DEFAULT_ON: %t", standard)
	switch {
	case argument.Running.OK() && isYes(argument.Running.Value):
		return setLater(pass("init_on_alloc=1", argument.Running), &argument, "1")
	case argument.Running.OK():
		return pending(fail("init_on_alloc="+argument.Running.Value, argument.Running), &argument, "1")
	case !argument.Running.Known():
		return unknown("the kernel's command line", argument.Running)
	case !config.OK():
		return unknown("the kernel's default for init_on_alloc", config)
	case standard:
		return setLater(pass("the kernel's default", config), &argument, "1")
	}
	return pending(fail("the kernel does not clear pages on allocation: init_on_alloc is neither set nor its default", config), &argument, "1")
}

func noPlainSwap(n *facts.Node) Answer {
	swaps := n.Read("proc/swaps")
	if !swaps.OK() {
		return unknown("whether the node has swap", swaps)
	}
	var found Answer
	areas := 0
	for line := range strings.Lines(swaps.Value) {
		fields := strings.Fields(line)
		if len(fields) < 2 || fields[0] == "Filename" {
			continue
		}
		areas++
		said := judgeSwap(n, fields[0], fields[1], swaps)
		for i := range said {
			said[i].Object = fields[0]
		}
		found = append(found, said...)
	}
	switch {
	case areas == 0:
		return pass("the node has no swap", swaps)
	case len(found) == 0:
		return pass("all swap is in memory or encrypted", swaps)
	}
	return found
}

// judgeSwap says what is wrong with a swap area, nothing for one in memory (zram) or
// on dm-crypt.
func judgeSwap(n *facts.Node, name, kind string, swaps facts.Fact) Answer {
	device := strings.TrimPrefix(name, "/dev/")
	uuid := n.Read("sys/class/block/" + device + "/dm/uuid")
	switch {
	case kind == "file":
		return unknown("whether the file system of swap file "+name+" is encrypted", swaps)
	case strings.HasPrefix(device, "zram"):
		if backing := n.Read("sys/class/block/" + device + "/backing_dev"); backing.OK() && !backing.Is("none", "") {
			return fail(fmt.Sprintf("swap %s writes to %s", name, backing.Value), backing)
		}
		return nil
	case strings.HasPrefix(uuid.Value, "CRYPT-"):
		return nil
	case strings.HasPrefix(uuid.Value, "LVM-"):
		return unknown("whether the volume group below swap "+name+" is encrypted", swaps)
	}
	return fail(fmt.Sprintf("swap %s is not encrypted", name), swaps)
}

func correctedMemory(n *facts.Node) Answer {
	const dir = "sys/devices/system/edac/mc"
	names, list := n.List(dir)
	var modes, found Answer
	corrected := 0
	for _, controller := range names {
		if !strings.HasPrefix(controller, "mc") {
			continue
		}
		if errors := n.Read(dir + "/" + controller + "/ue_count"); errors.OK() && !errors.Is("0") {
			found = append(found, fail(fmt.Sprintf("memory controller %s counted %s uncorrectable errors", controller, errors.Value), errors)...)
		}
		modules, _ := n.List(dir + "/" + controller)
		for _, module := range modules {
			mode := n.Read(dir + "/" + controller + "/" + module + "/dimm_edac_mode")
			switch {
			case mode.Is("None"):
				modes = append(modes, fail(fmt.Sprintf("memory module %s of %s has no ECC", module, controller), mode)...)
			case mode.OK() && !mode.Is("Unknown", "Reserved"):
				corrected++
			}
		}
	}
	found = append(found, modes...)
	switch {
	case len(found) > 0:
		return found
	case corrected == 0:
		return say(finding.Unknown, "no EDAC driver shows a memory module: ECC or its driver is missing", []facts.Fact{list})
	}
	return pass(count(corrected, "memory module"), list)
}

func numaChecks() []Check {
	return []Check{
		{Rule: finding.Rule{
			ID: "HOST-017", Title: "Ensure that VMs can use memory on the NUMA nodes of their functions", Severity: isolation.Info,
			Why:     "Otherwise all DMA crosses the link between sockets, which slows down its users.",
			Fix:     "align them by the kubelet: topologyManagerPolicy `restricted` or `single-numa-node`, with memoryManagerPolicy `Static`",
			Verify:  "grep Mems_allowed_list /proc/<VMM>/status; cat /sys/bus/pci/devices/<address>/numa_node",
			Sources: []string{"Linux: proc_pid_status(5) Mems_allowed_list", "Kubernetes: Control Topology Management Policies on a node"},
		}, Judge: nearMemory},
	}
}

// nearMemory holds the functions of each VMM against the nodes from which its cpuset
// lets it have memory.
func nearMemory(n *facts.Node) Answer {
	online := n.Read("sys/devices/system/node/online")
	if !strings.ContainsAny(online.Value, "-,") {
		return notApplicable("the node has only one known NUMA node", online)
	}
	holdings, _ := n.Holdings()
	var found Answer
	var seen []facts.Fact
	looked := map[pci.Address]bool{}
	for _, h := range holdings {
		if !h.Process.VM {
			continue
		}
		allowed := allowedMemory(n, h.Process.PID)
		for _, a := range h.Devices {
			f, ok := n.Snapshot.Function(a)
			if !ok || f.NUMANode == nil || looked[a] {
				continue
			}
			looked[a] = true
			near := attribute(a, "numa_node", strconv.Itoa(*f.NUMANode))
			switch {
			case !allowed.OK():
				found = append(found, unknown("the NUMA nodes of the VM of "+a.String(), allowed).on(f)...)
			case !inList(allowed.Value, *f.NUMANode):
				text := fmt.Sprintf("%s is on NUMA node %d, but its VM has memory of %s only", a, *f.NUMANode, allowed.Value)
				found = append(found, fail(text, near, allowed).on(f)...)
			default:
				seen = append(seen, near, allowed)
			}
		}
	}
	return orPassWith(found, len(looked), "function", "no VM has a function with a known NUMA node", seen)
}

// allowedMemory returns the list of nodes that a process may have memory of.
func allowedMemory(n *facts.Node, pid int) facts.Fact {
	status := n.Read(path.Join("proc", strconv.Itoa(pid), "status"))
	for line := range strings.Lines(status.Value) {
		if list, ok := strings.CutPrefix(line, "Mems_allowed_list:"); ok {
			status.Value = strings.TrimSpace(list)
			return status
		}
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
