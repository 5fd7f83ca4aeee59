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

func numaChecks() []Check {
	return []Check{
		{Rule: finding.Rule{
			ID: "HOST-017", Title: "VMs may have memory on the NUMA nodes of their functions", Severity: isolation.Info,
			Why:     "all DMA of the function goes over the link between sockets: slow for its tenant, and felt by all others who use that link",
			Fix:     "have the kubelet align them: topologyManagerPolicy `restricted` or `single-numa-node`, with memoryManagerPolicy `Static`",
			Verify:  "grep Mems_allowed_list /proc/<VMM>/status; cat /sys/bus/pci/devices/<address>/numa_node",
			Sources: []string{"Linux: proc_pid_status(5) Mems_allowed_list", "Kubernetes: Control Topology Management Policies on a node"},
		}, Judge: nearMemory},
	}
}

// nearMemory holds the functions of each VMM against the nodes from which its cpuset
// lets it have memory.
func nearMemory(n *facts.Node) []finding.Finding {
	online := n.Read("sys/devices/system/node/online")
	if !strings.ContainsAny(online.Value, "-,") {
		return notApplicable("the node has one NUMA node, or does not say how many", online)
	}
	holdings, _ := n.Holdings()
	var found []finding.Finding
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
				found = append(found, about(f, unknown("from which NUMA nodes the VM of "+a.String()+" has memory", allowed))...)
			case !inList(allowed.Value, *f.NUMANode):
				text := fmt.Sprintf("%s is at NUMA node %d, and its VM has memory of %s alone", a, *f.NUMANode, allowed.Value)
				found = append(found, about(f, fail(text, near, allowed))...)
			default:
				seen = append(seen, near, allowed)
			}
		}
	}
	return orPassWith(found, len(looked), "function", "no VM has a function whose NUMA node is known", seen)
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
