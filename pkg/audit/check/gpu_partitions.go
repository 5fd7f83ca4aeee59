package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/fabric"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// partitionChecks compare the active partitions with the journal.
func partitionChecks() []Check {
	return []Check{
		{ID: "GPU-002", Judge: onePartition},
		{ID: "GPU-021", Judge: partitionsAreClaims},
	}
}

// activePartitions are the active partitions of a board, with the functions of their GPUs.
type activePartitions struct {
	board *fabric.Board
	list  fabric.List
	seen  []facts.Fact
}

// readPartitions returns the active partitions as Fabric Manager listed them to the plugin last. Without them, why says what
// is missing.
func readPartitions(n *facts.Node) (active activePartitions, why string) {
	state, mapped := n.FabricState(), n.BoardMap()
	active.seen = []facts.Fact{state.Fact, mapped.Fact}
	switch {
	case state.Fact.Status == facts.Absent:
		return active, "no file shows the active partitions"
	case state.Value == nil:
		return active, "the file of the active partitions can't be read"
	case state.Value.Away != "":
		return active, "Fabric Manager could not be asked: " + state.Value.Away
	case !mapped.Fact.Known():
		return active, "the map of modules is of no use: " + mapped.Fact.Err
	}
	board, err := fabric.NewBoard(state.Value.Partitions, mapped.Value)
	if err != nil {
		return active, err.Error()
	}
	active.board, active.list = board, board.Partitions().Active()
	return active, ""
}

// onePartition fails for a prepared claim whose GPUs are in no active partition, or in one with other GPUs. The partition of another
// claim is rightly inactive: the plugin deactivates it before the reset. If the list of partitions is not available, onePartition fails
// for a number of GPUs that no partition has: boards have partitions of 1, 2, 4, 8 and 16 GPUs.
func onePartition(n *facts.Node) Answer {
	b := newFabric(n)
	if len(b.switches) == 0 {
		return b.missing()
	}
	active, why := readPartitions(n)
	judge := func(rec *journal.Record, gpus []pci.Address) Answer {
		switch {
		case why != "":
			return oddNumber(rec, gpus)
		case isPrepared(n, rec):
			return active.wrong(rec, gpus)
		}
		return nil
	}
	var held []pci.Address
	found := over(n.Records(), func(rec *journal.Record) Answer {
		gpus := slices.DeleteFunc(rec.Plan.Addresses(), func(a pci.Address) bool { return !slices.Contains(b.gpus, a) })
		held = append(held, gpus...)
		return judge(rec, gpus).object("claim " + rec.Plan.Claim.Namespace + "/" + rec.Plan.Claim.Name).reaching(gpus...)
	})
	switch {
	case len(held) == 0:
		return notApplicable("no claim has a GPU of the fabric")
	case len(found) > 0:
		return found
	case why == "":
		return pass(count(len(active.list), "active partition")+", each of one claim", append(active.seen, n.Journal())...)
	case b.owner(n) != "":
		return pass("all GPUs of the board belong to one tenant", n.Journal())
	}
	text := why + ": compare `fmpm -l` with the GPUs of each claim"
	if tenants := n.Owners(held...); len(tenants) > 1 {
		text = fmt.Sprintf("%s share a fabric, and %s", strings.Join(tenants, " and "), text)
	}
	_, mode := fabricSetting(n.FabricConfig(), "FABRIC_MODE")
	return say(finding.Manual, text, append(active.seen, mode, n.Journal())).reaching(held...)
}

// oddNumber fails for a number of GPUs that is not a power of two. Powers of two, and zero, have at most one bit set.
func oddNumber(rec *journal.Record, gpus []pci.Address) Answer {
	if len(gpus)&(len(gpus)-1) == 0 {
		return nil
	}
	return fail(fmt.Sprintf("claim %s has %s, which no partition has", rec.Plan.Claim, count(len(gpus), "GPU")), stateFact(rec))
}

// wrong fails if a GPU of a claim is in no active partition, or in one that has a GPU that is not the claim's, even if it is free.
func (p *activePartitions) wrong(rec *journal.Record, gpus []pci.Address) Answer {
	for _, a := range gpus {
		seen := append(slices.Clone(p.seen), stateFact(rec))
		module, ok := p.board.Module(a)
		if !ok {
			return fail(fmt.Sprintf("GPU %s of claim %s is in no partition that Fabric Manager knows", a, rec.Plan.Claim), seen...)
		}
		partition := p.list.Holding(module)
		if partition == nil {
			return fail(fmt.Sprintf("GPU %s of claim %s is in no active partition", a, rec.Plan.Claim), seen...)
		}
		for _, member := range p.board.Addresses(partition) {
			if !slices.Contains(gpus, member) {
				return fail(fmt.Sprintf("partition %s joins GPU %s of claim %s with %s, which is not the claim's", partition, a, rec.Plan.Claim, member), seen...)
			}
		}
	}
	return nil
}

// partitionsAreClaims fails for an active partition of which no claim has a GPU.
func partitionsAreClaims(n *facts.Node) Answer {
	if b := newFabric(n); len(b.switches) == 0 {
		return b.missing()
	}
	active, why := readPartitions(n)
	switch {
	case active.seen[0].Status == facts.Absent:
		return notApplicable("the plugin gives no partitions", active.seen[0])
	case why != "":
		return unknown("which partitions are active: "+why, active.seen...)
	}
	found := over(active.list, func(p fabric.Partition) Answer {
		gpus := active.board.Addresses(&p)
		if slices.ContainsFunc(gpus, func(a pci.Address) bool { return len(n.TenanciesAt(a)) > 0 }) {
			return nil
		}
		return fail(fmt.Sprintf("partition %s is active, and no claim has its GPUs", &p), append(active.seen, n.Journal())...).
			object("partition " + p.String()).reaching(gpus...)
	})
	return found.or(pass(count(len(active.list), "active partition")+", each of a claim", append(active.seen, n.Journal())...))
}
