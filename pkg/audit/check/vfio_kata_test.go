package check_test

import (
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/audit/check/board"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
)

// trained is the record of the claim that the server's gpu0 is given to.
func trained(t *board.Tree) *journal.Record { return record(t, "t1", "train") }

// vfioKataFaults are what Kata's own states and the journal contradict each other in.
func vfioKataFaults() []fault {
	damaged := func(rule string) fault {
		return fault{rule: rule, about: "a state that can't be read", board: board.Server, state: finding.Unknown, plant: func(t *board.Tree) {
			t.Put(board.StateFile(trained(t)), "{")
		}}
	}
	return []fault{
		{rule: "VFIO-019", about: "a function that no claim has", board: board.Server, device: "nic0/vf1", plant: func(t *board.Tree) {
			addToState(t, t.Devices["nic0/vf1"].String())
		}},
		{rule: "VFIO-019", about: "a function of another pod's claim", board: board.Server, device: "gpu1", plant: func(t *board.Tree) {
			addToState(t, t.Devices["gpu1"].String())
		}},
		damaged("VFIO-019"), damaged("VFIO-020"),
		{rule: "VFIO-020", about: "a state whose VM is gone", board: board.Server, device: "gpu0", plant: func(t *board.Tree) {
			stop(t)
		}},
		{rule: "VFIO-020", about: "a claim whose sandbox is gone", board: board.Server, plant: func(t *board.Tree) {
			t.Delete("run/vc/sbs/" + trained(t).Sandbox.ID)
			stop(t)
		}},
		{rule: "VFIO-020", about: "a VM that starts", board: board.Server, state: finding.Pass, plant: func(t *board.Tree) {
			id := trained(t).Sandbox.ID
			t.Delete("run/vc/sbs/" + id)
			stop(t)
			t.Put("run/containerd/io.containerd.runtime.v2.task/k8s.io/"+id+"/config.json",
				`{"annotations": {"io.kubernetes.cri.sandbox-namespace": "t1", "io.kubernetes.cri.sandbox-name": "train"}}`)
		}},
	}
}

// addToState has the sandbox of the tenant t1 have another function by Kata's state.
func addToState(t *board.Tree, address string) {
	name := board.StateFile(trained(t))
	t.Put(name, strings.Replace(t.Text(name), `"VFIODevs":[`, `"VFIODevs":[{"BDF":"`+address+`","Bus":"rp1","GuestPciPath":{},"Type":1},`, 1))
}

// stop ends the VM of the tenant t1.
func stop(t *board.Tree) {
	t.Delete(procOf(trained(t).Sandbox.VMM))
}

// TestWithoutKatasStateNothingIsSaid of a claim whose VM runs.
func TestWithoutKatasStateNothingIsSaid(t *testing.T) {
	tree := board.Server(t)
	tree.Delete("run/vc")
	for _, f := range audit(t, tree).Findings {
		if f.ID == "VFIO-020" && f.State != finding.NotApplicable || f.ID == "VFIO-019" && f.State != finding.Pass {
			t.Errorf("%s: %s: %s", f.ID, f.State, f.Text)
		}
	}
}
