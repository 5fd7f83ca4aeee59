package bootstrap_test

import (
	"errors"
	"io/fs"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/blueprint"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
)

// record inspects the node at a time and returns the record that it leaves.
func (n *node) record(at time.Time) *state.Record {
	n.t.Helper()
	e := n.engine()
	e.Now = func() time.Time { return at }
	p, err := e.Plan(n.t.Context(), blueprint.Default())
	if err != nil {
		n.t.Fatal(err)
	}
	if err := e.Record(n.t.Context(), p); err != nil {
		n.t.Fatal(err)
	}
	r, err := state.ReadRecord(e.Tree)
	if err != nil {
		n.t.Fatal(err)
	}
	return r
}

func kinds(r *state.Record) map[string]string {
	all := map[string]string{}
	for _, d := range r.Differences {
		all[d.Path] = d.What
	}
	return all
}

// What was found is left on the node with its time: before apply, between it and the reboot, when somebody changes a file; and it is
// gone with each apply and revert, of which it knows nothing.
func TestRecordIsSavedOnNode(t *testing.T) {
	n := newNode(t, files("Debian 12"))
	n.put("proc/cmdline", "ro\n")
	first := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	const grub, modprobe = "etc/default/grub.d/zz-kata-vfio.cfg", "etc/modprobe.d/50-kata-vfio.conf"
	if r := n.record(first); r.Outcome != "changes needed" || kinds(r)["/"+grub] != "missing" || kinds(r)["/proc/cmdline"] != "setting" {
		t.Errorf("before apply: %+v", r)
	}
	n.apply(blueprint.Default())
	if _, err := state.ReadRecord(n.engine().Tree); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after apply: %v", err)
	}
	if r := n.record(first); r.Outcome != "reboot needed" || kinds(r)["/proc/cmdline"] != "reboot" {
		t.Errorf("after apply: %+v", r)
	}
	n.reboot()
	if r := n.record(first); r.Outcome != "fit" || len(r.Differences) != 0 || r.Kata != "4.1.0" {
		t.Errorf("after the reboot: %+v", r)
	}
	n.put(modprobe, "options vfio_pci disable_denylist=Y\n")
	n.put("proc/cmdline", "ro\n")
	n.record(first)
	r := n.record(first.Add(time.Hour))
	if diff := cmp.Diff(map[string]string{"/" + modprobe: "changed", "/proc/cmdline": "setting"}, kinds(r)); diff != "" {
		t.Errorf("after the drift (-want +got):\n%s", diff)
	}
	for _, d := range r.Differences {
		if d.What == "setting" && !d.Since.Equal(first) || d.What == "changed" && time.Since(d.Since) > time.Hour {
			t.Errorf("%s since %s", d.Path, d.Since)
		}
	}
	n.revert(modprobe)
	if _, err := state.ReadRecord(n.engine().Tree); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after revert: %v", err)
	}
}

// A problem that keeps a node from being made fit is in the record in words.
func TestRecordHasWhatIsInTheWay(t *testing.T) {
	n := newNode(t, files("Debian 12"))
	n.put("proc/cmdline", "ro\n")
	n.put("etc/default/grub", "GRUB_CMDLINE_LINUX=\"intel_iommu=off\"\n")
	r := n.record(time.Now())
	if r.Outcome != "can't be made fit" || len(r.Differences) == 0 || r.Differences[0].What != "problem" || r.Differences[0].Why == "" {
		t.Errorf("%+v", r)
	}
}
