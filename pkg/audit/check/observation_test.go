package check_test

import (
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/audit/check/board"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
)

func observationFaults() []fault {
	return slices.Concat(ledgerFaults(), toldFaults(), coverageFaults(), agreementFaults())
}

func agreementFaults() []fault {
	return []fault{
		changed("OBS-005", "the function went back to its driver", func(t *board.Tree, rec *journal.Record) {
			rec.Plan.Functions[0].Target.Driver = "mlx5_vfio_pci"
		}),
		changed("OBS-005", "another group", func(_ *board.Tree, rec *journal.Record) { rec.Plan.Functions[0].Group++ }),
		{rule: "OBS-005", about: "the function is gone", board: board.Server, plant: func(t *board.Tree) {
			t.Delete(procOf(record(t, "t1", "train").Sandbox.VMM))
			t.Remove(t.Devices["gpu0"])
		}},
		{rule: "OBS-005", about: "no CDI spec", board: board.Server, plant: func(t *board.Tree) {
			t.Delete(board.SpecFile(record(t, "t1", "train")))
		}},
		{rule: "OBS-005", about: "a CDI spec of another device", board: board.Server, plant: func(t *board.Tree) {
			changeSpec(t, "t1", "train", `0000-gpu-`, `0000-other-`)
		}},
		{rule: "OBS-005", about: "a record from before the node's start", board: board.Server, plant: func(t *board.Tree) {
			rec := record(t, "t1", "train")
			rec.BootID = "00000000-0000-4000-8000-000000000000"
			t.Save(rec)
		}},
		{rule: "OBS-005", about: "a damaged record", board: board.Server, state: finding.Unknown, plant: func(t *board.Tree) {
			t.Put("var/lib/kata-vfio/journal/x.json", "{")
		}},
	}
}
