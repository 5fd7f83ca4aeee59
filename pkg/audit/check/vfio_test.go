package check_test

import (
	"fmt"
	"slices"
	"strconv"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/audit/check/board"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/vfio"
)

func vfioFaults() []fault {
	return slices.Concat(holderFaults(), registerFaults(), moduleFaults(), bindingFaults(), udevFaults(), nodeOwnerFaults(), pinningFaults(), vfioKernelFaults())
}

// nodeOf returns the node of the group of a board's device.
func nodeOf(t *board.Tree, name string) string {
	group, _ := t.GroupOf(t.Devices[name])
	return vfio.GroupNode(group)
}

// record returns the record of a board's claim.
func record(t *board.Tree, tenant, name string) *journal.Record {
	t.TB.Helper()
	store := journal.OpenReadOnly(t.Path("var/lib/kata-vfio/journal"))
	rec, err := store.Load(tenant + "-" + name + "-0000-4000-8000-000000000000")
	if err != nil || rec == nil {
		t.TB.Fatalf("record of %s/%s: %v, %v", tenant, name, rec, err)
	}
	return rec
}

// stranger is a process that has a device open and nothing to do with its claim.
func stranger(t *board.Tree, device string) board.Process {
	return board.Process{
		Comm: "dpdk-testpmd", Exe: "/usr/bin/dpdk-testpmd", Arguments: []string{"dpdk-testpmd", "-l", "0-3"},
		Files: []string{"/dev/vfio/vfio", nodeOf(t, device), "anon_inode:[vfio-device]"},
	}
}

func holderFaults() []fault {
	held := "gpu0"
	end := func(t *board.Tree, p journal.Process) { t.Delete(procOf(p)) }
	return []fault{
		{rule: "VFIO-009", about: "a process that is no VMM of the claim", board: board.Server, device: held, plant: func(t *board.Tree) {
			end(t, record(t, "t1", "train").Sandbox.VMM)
			t.Start(stranger(t, held))
		}},
		{rule: "VFIO-009", about: "another process with the VMM's number", board: board.Server, plant: func(t *board.Tree) {
			rec := record(t, "t1", "train")
			rec.Sandbox.VMM.StartTime++
			rec.Sandbox.ID = "another"
			t.Save(rec)
		}},
		{rule: "VFIO-009", about: "another tenant's VMM", board: board.Server, plant: func(t *board.Tree) {
			rec := record(t, "t2", "serve")
			end(t, rec.Sandbox.VMM)
			rec.Plan.Devices[0].Address = t.Devices[held]
			other := record(t, "t1", "train")
			rec.Plan.Functions = append(rec.Plan.Functions, other.Plan.Functions...)
			t.StartVMM(rec)
		}},
		{rule: "VFIO-009", about: "no claim has it", board: board.Server, plant: func(t *board.Tree) {
			rec := record(t, "t1", "train")
			t.Delete("var/lib/kata-vfio/journal/" + rec.ID() + ".json")
		}},
		{rule: "VFIO-009", about: "a device that was passed on without its node", board: board.Server, plant: func(t *board.Tree) {
			t.Start(board.Process{Comm: "vfio-user", Files: []string{"anon_inode:[vfio-device]"}})
		}},
		{rule: "VFIO-009", about: "a container's processes are all that is seen", board: board.Server, state: finding.Unknown, plant: func(t *board.Tree) {
			t.Delete("proc/1/ns/pid")
			t.Symlink("proc/1/ns/pid", "pid:[4026532621]")
		}},
		{rule: "VFIO-010", about: "two sandboxes hold it", board: board.Server, device: held, plant: func(t *board.Tree) {
			p := stranger(t, held)
			p.Comm, p.Container, p.Pod = "cloud-hyperviso", "aa00000000000000000000000000000000000000000000000000000000000000", "other"
			t.Start(p)
		}},
		{rule: "VFIO-010", about: "two claims are prepared with it", board: board.Server, device: held, plant: func(t *board.Tree) {
			t.Give("t3", "other", t.Devices[held])
		}},
		{rule: "VFIO-011", about: "its claim is being released", board: board.Server, device: "gpu0", plant: func(t *board.Tree) {
			rec := record(t, "t1", "train")
			rec.State = journal.Releasing
			t.Save(rec)
		}},
		{rule: "VFIO-011", about: "its claim is of before the node's start", board: board.Server, plant: func(t *board.Tree) {
			rec := record(t, "t1", "train")
			rec.BootID = "00000000-0000-4000-8000-000000000000"
			t.Save(rec)
		}},
		{rule: "VFIO-011", about: "a VMM is left of a claim that is gone", board: board.Server, plant: func(t *board.Tree) {
			t.Delete("var/lib/kata-vfio/journal/" + record(t, "t1", "train").ID() + ".json")
		}},
		{rule: "VFIO-012", about: "a plain container has it", board: board.Server, plant: func(t *board.Tree) {
			rec := record(t, "t1", "train")
			end(t, rec.Sandbox.VMM)
			p := stranger(t, held)
			p.Comm, p.Container, p.Pod = "python3", rec.Sandbox.ID, rec.Plan.Claim.Pods[0].UID
			t.Start(p)
		}},
	}
}

func registerFaults() []fault {
	return []fault{
		{rule: "VFIO-013", about: "a process maps its registers", board: board.Server, device: "gpu0", plant: func(t *board.Tree) {
			t.Start(board.Process{Comm: "flash", Maps: []string{"/sys/devices/pci0000:3a/0000:3a:01.0/" + t.Devices["gpu0"].String() + "/resource0"}})
		}},
	}
}

func procOf(p journal.Process) string { return "proc/" + strconv.Itoa(p.PID) }

func nodeOwnerFaults() []fault {
	return []fault{
		{rule: "VFIO-007", about: "a node that all may open", board: board.Server, plant: func(t *board.Tree) {
			group, _ := t.GroupOf(t.Devices["gpu0"])
			t.Own(fmt.Sprintf("dev/vfio/%d", group), "20666", 0, 0)
		}},
		{rule: "VFIO-008", about: "iommufd of a user's", board: withIOMMUFD, plant: func(t *board.Tree) { t.Own("dev/iommu", "20660", 1000, 0) }},
		{rule: "VFIO-008", about: "root's alone", board: withIOMMUFD, state: finding.Pass, plant: func(*board.Tree) {}},
	}
}

// withIOMMUFD is a node with iommufd, whose nodes are as the kernel makes them.
func withIOMMUFD(tb testing.TB) *board.Tree {
	tb.Helper()
	t := board.New(tb)
	t.WithIOMMUFD()
	t.Own("dev/iommu", "20660", 0, 0)
	return t
}
