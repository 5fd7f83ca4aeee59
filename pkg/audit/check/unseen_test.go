package check_test

import (
	"os"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/test/board"
)

// unseenFaults have no process in sight of those that a rule is about.
func unseenFaults() []fault {
	hidden := func(rule string, node func(testing.TB) *board.Tree, plant func(*board.Tree)) fault {
		return fault{rule: rule, about: "no processes to be seen", board: node, state: finding.Unknown, plant: func(t *board.Tree) {
			_ = os.Remove(t.Path("proc/1/ns/pid"))
			plant(t)
		}}
	}
	faults := []fault{
		hidden("HOST-017", board.Server, func(t *board.Tree) {
			stopAll(t)
			t.Put("sys/devices/system/node/online", "0-1\n")
		}),
		hidden("RST-005", board.Server, func(t *board.Tree) {
			rec := record(t, "t1", "train")
			stopAll(t)
			rec.State, rec.Reason = journal.Quarantined, "no reset"
			t.Save(rec)
		}),
	}
	for _, rule := range []string{"RT-006", "RT-007", "RT-019", "RT-023", "RT-028", "RT-034", "RT-036"} {
		faults = append(faults, hidden(rule, board.New, func(*board.Tree) {}))
	}
	for _, rule := range []string{"GPU-013", "RST-012", "RT-039"} {
		faults = append(faults, hidden(rule, board.Server, stopAll))
	}
	return faults
}

// stopAll ends the VMs of both tenants of the server.
func stopAll(t *board.Tree) {
	for tenant, name := range map[string]string{"t1": "train", "t2": "serve"} {
		t.Delete(procOf(record(t, tenant, name).Sandbox.VMM))
	}
}
