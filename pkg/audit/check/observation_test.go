package check_test

import (
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/test/board"
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
		{rule: "OBS-005", about: "the function no longer exists", board: board.Server, plant: func(t *board.Tree) {
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

// firstSegment is the only one of a board's ledger.
func firstSegment() string { return path.Join(ledger.DefaultDir, ledger.SegmentName(0)) }

// edit changes a board's ledger behind the plugin's back.
func edit(change func(lines []string) []string) func(*board.Tree) {
	return func(t *board.Tree) {
		lines := strings.SplitAfter(t.Text(firstSegment()), "\n")
		t.Put(firstSegment(), strings.Join(change(lines), ""))
	}
}

func ledgerFaults() []fault {
	onServer := func(rule, about string, plant func(*board.Tree)) fault {
		return fault{rule: rule, about: about, board: board.Server, plant: plant}
	}
	// Not to be read is not a file in a file's place: tests run as root, which ignores modes.
	unread := func(t *board.Tree) {
		key := path.Join(ledger.DefaultDir, ledger.PublicKeyFile)
		text := t.Text(key)
		t.Delete(ledger.DefaultDir)
		t.Put(key, text)
		t.Put(firstSegment()+"/no-file", "")
	}
	faults := []fault{
		onServer("OBS-001", "a name was changed", edit(func(l []string) []string {
			l[3] = strings.Replace(l[3], `"t1"`, `"t9"`, 1)
			return l
		})),
		onServer("OBS-001", "an event is gone", edit(func(l []string) []string { return append(l[:3:3], l[4:]...) })),
		onServer("OBS-001", "two lines have changed places", edit(func(l []string) []string {
			l[3], l[4] = l[4], l[3]
			return l
		})),
		onServer("OBS-001", "it ends in the middle of a write", edit(func(l []string) []string {
			last := len(l) - 2
			return append(l[:last-1:last-1], l[last-1][:40])
		})),
		onServer("OBS-001", "the plugin's journal is there and the ledger is not", func(t *board.Tree) { t.Delete(ledger.DefaultDir) }),
		onServer("OBS-001", "its events are gone", func(t *board.Tree) { t.Delete(firstSegment()) }),
		onServer("OBS-001", "its key is gone", func(t *board.Tree) { t.Delete(path.Join(ledger.DefaultDir, ledger.PublicKeyFile)) }),
		onServer("OBS-001", "its key is none", func(t *board.Tree) { t.Put(path.Join(ledger.DefaultDir, ledger.PublicKeyFile), "x\n") }),
		onServer("OBS-001", "it is another node's", func(t *board.Tree) {
			for _, name := range []string{firstSegment(), path.Join(ledger.DefaultDir, ledger.PublicKeyFile)} {
				t.Put(name, board.Fabric(t.TB).Text(name)) // each of another board: key and events don't fit
			}
		}),
		onServer("OBS-002", "there is a checkpoint to compare", func(*board.Tree) {}),
	}
	faults[len(faults)-1].state = finding.Manual
	faults = append(faults, fault{
		rule: "OBS-003", about: "an early event was damaged, and what follows can't be read", board: board.Server, state: finding.Unknown,
		plant: edit(func(l []string) []string {
			l[4] = strings.Replace(l[4], `"time"`, `"tine"`, 1)
			return l
		}),
	})
	for _, rule := range []string{"OBS-001", "OBS-002", "OBS-003"} {
		faults = append(faults, fault{rule: rule, about: "it can't be read", board: board.Server, state: finding.Unknown, plant: unread})
	}
	return faults
}

// rebook begins a board's ledger again without the events that drop selects.
func rebook(t *board.Tree, drop func(*ledger.Event) bool) {
	t.TB.Helper()
	var kept []ledger.Event
	for e, err := range ledger.Events(os.DirFS(t.Path(ledger.DefaultDir))) {
		if err != nil {
			t.TB.Fatal(err)
		}
		if !drop(e.Event) {
			kept = append(kept, *e.Event)
		}
	}
	t.Delete(ledger.DefaultDir)
	t.NewLedger()
	t.Record(kept...)
}

func toldFaults() []fault {
	without := func(about string, drop func(*ledger.Event) bool) fault {
		return fault{rule: "OBS-003", about: about, board: board.Server, plant: func(t *board.Tree) { rebook(t, drop) }}
	}
	train := func(e *ledger.Event) bool { return e.Claim != nil && e.Claim.Name == "train" }
	faults := []fault{
		without("a claim that no event is of", train),
		without("a binding that no event is of", func(e *ledger.Event) bool { return e.Type == ledger.Bind && train(e) }),
		without("a hand-over that no event is of", func(e *ledger.Event) bool { return e.Type == ledger.Open && train(e) }),
		without("a function that its claim's event does not name", func(e *ledger.Event) bool {
			if e.Type == ledger.Prepare && train(e) {
				e.Devices = nil
			}
			return false
		}),
		{rule: "OBS-003", about: "a record that is gone", board: board.Server, plant: func(t *board.Tree) {
			rec := record(t, "t1", "train")
			t.Delete("var/lib/kata-vfio/journal/" + rec.ID() + ".json")
		}},
		{rule: "OBS-003", about: "a function on another driver than was told", board: board.Server, device: "gpu0", plant: func(t *board.Tree) {
			t.GiveBack(t.Devices["gpu0"])
		}},
		{rule: "OBS-003", about: "a VM that runs on after its end was told", board: board.Server, device: "gpu0", plant: func(t *board.Tree) {
			rec := record(t, "t1", "train")
			t.Record(ledger.Event{Type: ledger.Close, Claim: board.LedgerClaim(rec), VM: &ledger.VM{Sandbox: rec.Sandbox.ID}})
		}},
		{rule: "OBS-003", about: "a function that somebody bound again", board: board.Server, device: "gpu0", plant: func(t *board.Tree) {
			rec := record(t, "t1", "train")
			fn := rec.Plan.Functions[0]
			t.Record(ledger.Event{Type: ledger.Bind, Claim: board.LedgerClaim(rec), Devices: []ledger.Device{{Address: fn.Address, DriverAfter: new(fn.Original.Driver)}}},
				ledger.Event{Type: ledger.Unprepare, Claim: board.LedgerClaim(rec)})
			t.Delete("var/lib/kata-vfio/journal/" + rec.ID() + ".json")
		}},
		{rule: "OBS-003", about: "a record that can't be read", board: board.Server, state: finding.Unknown, plant: func(t *board.Tree) {
			t.Put("var/lib/kata-vfio/journal/x.json", "{")
		}},
		{rule: "OBS-003", about: "no processes to be seen", board: board.Server, state: finding.Unknown, plant: func(t *board.Tree) {
			_ = os.Remove(t.Path("proc/1/ns/pid"))
		}},
		{rule: "OBS-003", about: "a standing binding", board: board.Switch, state: finding.Pass, plant: func(t *board.Tree) {}},
	}
	// A step that is under way does not contradict the journal.
	for _, state := range []journal.State{journal.Preparing, journal.Releasing, journal.Cleaned} {
		faults = append(faults, fault{rule: "OBS-003", about: "a claim that is " + string(state), board: board.Server, state: finding.Pass, plant: func(t *board.Tree) {
			rec := record(t, "t1", "train")
			rec.State = state
			t.Save(rec)
			t.Record(ledger.Event{Type: ledger.Unprepare, Claim: board.LedgerClaim(rec)})
		}})
	}
	return faults
}

// TestCoverageAdvisesByCause: privileges are advised where a read was refused, and
// what helps otherwise where it was not.
func TestCoverageAdvisesByCause(t *testing.T) {
	for name, c := range map[string]struct {
		plant      func(*board.Tree)
		want, none string
	}{
		"no securityfs": {func(t *board.Tree) { t.Delete("sys/kernel/security") }, "`mount -t securityfs none /sys/kernel/security`", "CAP_SYS"},
		"no processes":  {func(t *board.Tree) { _ = os.Remove(t.Path("proc/1/ns/pid")) }, "CAP_SYS_PTRACE", "mount"},
		"no config":     {func(t *board.Tree) { t.CutConfig(t.Devices["gpu0"]) }, "it lacks CAP_SYS_ADMIN", "mount"},
		"a damaged journal": {
			func(t *board.Tree) { t.Put("var/lib/kata-vfio/journal/x.json", "{") },
			"unreadable files: /var/lib/kata-vfio/journal/x.json", "CAP_SYS",
		},
	} {
		t.Run(name, func(t *testing.T) {
			tree := board.Server(t)
			c.plant(tree)
			for _, f := range audit(t, tree).Findings {
				if f.ID != "OBS-004" {
					continue
				}
				if f.State != finding.Fail || !strings.Contains(f.Remediation, c.want) || strings.Contains(f.Remediation, c.none) {
					t.Errorf("%s: %s: %s", f.State, f.Text, f.Remediation)
				}
			}
		})
	}
}

func coverageFaults() []fault {
	return []fault{
		{rule: "OBS-004", about: "processes were not in sight", board: board.Server, plant: func(t *board.Tree) { _ = os.Remove(t.Path("proc/1/ns/pid")) }},
		{rule: "OBS-004", about: "configuration space was cut off", board: board.Server, plant: func(t *board.Tree) { t.CutConfig(t.Devices["gpu0"]) }},
	}
}
