//go:build lab

// Package aftermath_test looks at the machine after the host has cut its power, changed its topology or pulled a device,
// and at what a new plugin makes of it. The host tells what to expect in a file.
package aftermath_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/node"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/test/lab/tests/crash/victim"
	kernel "github.com/kata-vfio/kata-vfio/test/lab/tests/node"
	"github.com/kata-vfio/kata-vfio/test/lab/tests/stage"
	"github.com/kata-vfio/kata-vfio/test/lab/topology"
)

func TestMain(m *testing.M) { victim.Main(m) }

// expected reads what the host says.
func expected(t *testing.T) victim.Aftermath {
	t.Helper()
	text, err := os.ReadFile("/host/" + victim.AftermathFile)
	if err != nil {
		t.Fatal(err)
	}
	var a victim.Aftermath
	if err := json.Unmarshal(text, &a); err != nil {
		t.Fatal(err)
	}
	return a
}

// TestBefore checks that the machine has nothing of ours yet.
func TestBefore(t *testing.T) {
	n := stage.Open(t, stage.Config())
	if strays, err := n.Recover(t.Context()); err != nil || len(strays.Orphans) > 0 {
		t.Errorf("Recover = %+v, %v", strays, err)
	}
}

// TestAfterReset finds the record that was written before the reset, in its state or in an earlier one, and everything else
// as the boot made it. Recover forgets the record and touches nothing, and the claim can be prepared again.
func TestAfterReset(t *testing.T) {
	want, before := expected(t), stage.Bindings(t)
	n := stage.Open(t, stage.Config())
	rec := load(t, n, want)
	if specs, err := n.Parts.Specs.Claims(); err != nil || len(specs) > 0 {
		t.Errorf("CDI specs before Recover: %v, %v", specs, err)
	}
	r, err := n.Recover(t.Context())
	if err != nil || len(r.Unfinished) > 0 || len(r.Quarantined) > 0 || len(r.Orphans) > 0 || len(r.Kept) > 0 {
		t.Errorf("Recover = %+v, %v", r, err)
	}
	if gone := len(r.Undone) + len(r.Released); rec != nil && gone != 1 {
		t.Errorf("Recover = %+v, want one claim off the node", r)
	}
	stage.Unchanged(t, before)
	stage.Empty(t, n)
	checkFiles(t, want, rec)
	if _, ok := stage.Scan(t).Function(stage.Address(t, want.Addresses[0])); ok {
		prepareAnew(t, n, want, rec)
	}
	stage.Unchanged(t, before)
}

// handedOver reports whether a VM may have had the devices of a record that is found in that state, and no reset was proven
// since. That it was prepared may not have reached the disk.
func handedOver(rec *journal.Record) bool { return rec != nil && rec.State != journal.Cleaned }

// checkFiles checks what is left in the journal: the marks of devices that a tenant may have had, and no other file.
func checkFiles(t *testing.T, want victim.Aftermath, rec *journal.Record) {
	t.Helper()
	dir := filepath.Join("/", node.DefaultStateDir, "journal")
	rest := slices.DeleteFunc(stage.Files(t, dir), func(name string) bool { return name == "unclean" })
	if len(rest) > 0 {
		t.Errorf("files left in the journal: %v", rest)
	}
	var marks []string
	if handedOver(rec) {
		for _, a := range want.Addresses {
			marks = append(marks, a+".json")
		}
	}
	if got := stage.Files(t, filepath.Join(dir, "unclean")); !slices.Equal(got, marks) {
		t.Errorf("marked as not clean: %v, want %v", got, marks)
	}
}

// load checks the record of another boot, nil if none is expected.
func load(t *testing.T, n *node.Node, want victim.Aftermath) *journal.Record {
	t.Helper()
	rec, err := n.Parts.Journal.Load(want.UID)
	if err != nil {
		t.Fatal(err)
	}
	switch {
	case rec == nil && want.State == "":
		return nil
	case rec == nil || !slices.Contains(upTo(want.State), rec.State):
		t.Fatalf("the record is %+v, want one in a state of %q", rec, upTo(want.State))
	}
	if boot := kernel.Read(t, "/proc/sys/kernel/random/boot_id"); rec.BootID == boot {
		t.Errorf("the record is of this boot, %s", boot)
	}
	t.Logf("found a record in state %s, with group %d", rec.State, rec.Plan.Functions[0].Group)
	return rec
}

// upTo returns the states that a record may be found in after it had the last: only the first is waited for on disk.
func upTo(last journal.State) []journal.State {
	all := []journal.State{journal.Preparing, journal.Prepared, journal.Releasing, journal.Cleaned}
	return all[:slices.Index(all, last)+1]
}

// prepareAnew prepares the same claim in this boot, with this boot's group.
func prepareAnew(t *testing.T, n *node.Node, want victim.Aftermath, old *journal.Record) {
	t.Helper()
	rec, err := n.Preparer.Prepare(t.Context(), stage.Request(t, want.UID, want.Addresses...))
	if err != nil {
		t.Fatal(err)
	}
	if proven := len(rec.Proofs) == 1; proven != handedOver(old) {
		t.Errorf("the record %+v is followed by proofs %+v before the next tenant", old, rec.Proofs)
	}
	fn := rec.Plan.Functions[0]
	if got := strconv.Itoa(fn.Group); got != kernel.Group(t, want.Addresses[0]) {
		t.Errorf("%s is prepared in group %s, the kernel says %s", fn.Address, got, kernel.Group(t, want.Addresses[0]))
	}
	if old != nil && want.Renumbered && fn.Group == old.Plan.Functions[0].Group {
		t.Errorf("the group of %s is %d, as before: the topology did not change", fn.Address, fn.Group)
	}
	if path := stage.Nodes(t, want.UID)[0]; path != stage.WantNode(t, want.Addresses[0]) {
		t.Errorf("the CDI spec names %s, want %s", path, stage.WantNode(t, want.Addresses[0]))
	}
	if _, err := n.Preparer.Unprepare(t.Context(), want.UID); err != nil {
		t.Fatal(err)
	}
}

// TestAfterUnplug: the device of a prepared claim was pulled. A new Prepare and Recover say so and what to do, and
// Unprepare lets the claim go, without a proof of a reset.
func TestAfterUnplug(t *testing.T) {
	want := expected(t)
	n := stage.Open(t, stage.Config())
	before := stage.Bindings(t)
	gone := stage.Address(t, want.Addresses[0])
	r, err := n.Recover(t.Context())
	if err != nil || len(r.Unfinished) != 1 {
		t.Fatalf("Recover = %+v, %v; want one claim unfinished", r, err)
	}
	stage.Says(t, r.Unfinished[0], gone.String(), "delete its pod")
	req, err := stage.NewRequest(stage.Scan(t), want.UID)
	if err != nil {
		t.Fatal(err)
	}
	rec, err := n.Parts.Journal.Load(want.UID)
	if err != nil || rec == nil {
		t.Fatalf("the record is %v, %v", rec, err)
	}
	req.Devices = stage.Devices(rec)
	_, err = n.Preparer.Prepare(t.Context(), req)
	stage.Says(t, err, gone.String(), "delete its pod")
	release, err := n.Preparer.Unprepare(t.Context(), want.UID)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range release.Proofs {
		for _, a := range p.Set {
			if a == gone {
				t.Errorf("there is a proof of a reset of %s, which is gone", gone)
			}
		}
	}
	before[topology.GPU2] = plan.Binding{} // the other device of the claim, which has no driver of its own
	stage.Unchanged(t, before)
	works(t, n, stage.Address(t, topology.GPU2))
}

// works checks that another device can still be had.
func works(t *testing.T, n *node.Node, other pci.Address) {
	t.Helper()
	const uid = "another"
	if _, err := n.Preparer.Prepare(t.Context(), stage.Request(t, uid, other.String())); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Preparer.Unprepare(t.Context(), uid); err != nil {
		t.Fatal(err)
	}
}
