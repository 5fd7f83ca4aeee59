package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
)

// TestQuarantineOfADeviceThatMoved: the node starts again with another bus number for the GPU. The commands say both
// addresses, and take the present one.
func TestQuarantineOfADeviceThatMoved(t *testing.T) {
	k := sysfstest.New(t)
	was, now := k.AddGPU(0x3b), pci.Address{Bus: 0x3c}
	o := &options{}
	o.node.Root = k.Root()
	snap := o.snapshot(t.Context())
	gpu, _ := snap.Function(was)
	store, err := journal.Open(filepath.Join(k.Root(), "var/lib/kata-vfio/journal"))
	if err != nil {
		t.Fatal(err)
	}
	rec := &journal.Record{Kind: journal.Claim, State: journal.Quarantined, BootID: snap.Host.BootID, Reason: "does not answer", Plan: plan.Plan{
		Claim:     plan.Ref{UID: oneUID1},
		Devices:   []plan.Device{{Name: "gpu-0000-3b-00-0", Address: was}},
		Functions: []plan.Function{{Address: was, Identity: snap.Identify(gpu), Original: plan.Binding{Driver: "nvidia"}}},
	}}
	if err := store.Save(rec); err != nil {
		t.Fatal(err)
	}
	k.MoveBus(0x3b, now.Bus)
	k.Reboot()

	list := invoke(t, "quarantine", "list", "--root", k.Root())
	if !strings.Contains(list.stdout, "0000:3b:00.0 (now 0000:3c:00.0)") {
		t.Errorf("list: %+v", list)
	}
	if got := invoke(t, "quarantine", "list", "--root", k.Root(), "-o", "json"); !strings.Contains(got.stdout, `"0000:3b:00.0": "0000:3c:00.0"`) {
		t.Errorf("list -o json: %+v", got)
	}
	explain := invoke(t, "quarantine", "explain", "0000:3c:00.0", "--root", k.Root())
	if !strings.Contains(explain.stdout, "clear 0000:3c:00.0 --reason") {
		t.Errorf("explain by the present address: %+v", explain)
	}
	steps := invoke(t, "quarantine", "clear", "0000:3c:00.0", "--dry-run", "--root", k.Root())
	if steps.code != 0 || strings.Contains(steps.stdout, "0000:3b:00.0") || !strings.Contains(steps.stdout, "0000:3c:00.0") {
		t.Errorf("clear --dry-run: %+v", steps)
	}
	release := invoke(t, "unprepare", oneUID1, "--dry-run", "--root", k.Root())
	if release.code != 0 || strings.Contains(release.stdout, "0000:3b:00.0") || !strings.Contains(release.stdout, "0000:3c:00.0") {
		t.Errorf("unprepare --dry-run: %+v", release)
	}
	if got := invoke(t, "__complete", "quarantine", "explain", "--root", k.Root(), ""); !strings.HasPrefix(got.stdout, "0000:3c:00.0\t") {
		t.Errorf("completion: %+v", got)
	}
	k.Remove(now)
	if got := invoke(t, "quarantine", "list", "--root", k.Root()); !strings.Contains(got.stdout, "0000:3b:00.0 (gone)") {
		t.Errorf("list without the device: %+v", got)
	}
}

// TestMarksOfADeviceThatMoved: status and completion say where drained devices and those that are not clean are in this boot. If the
// node's functions can't be read, status still has all marks, with their former addresses.
func TestMarksOfADeviceThatMoved(t *testing.T) {
	k := sysfstest.New(t)
	was := k.AddGPU(0x3b)
	o := &options{}
	o.node.Root = k.Root()
	snap := o.snapshot(t.Context())
	gpu, _ := snap.Function(was)
	id := snap.Identify(gpu)
	store, err := journal.Open(filepath.Join(k.Root(), "var/lib/kata-vfio/journal"))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(
		store.MarkNeedsReset(t.Context(), journal.ResetMark{Address: was, Identity: id, Why: "no reset"}),
		store.MarkDrained(t.Context(), journal.Drain{Address: was, Identity: id, Reason: "fan"}),
		store.MarkUnsanitized(t.Context(), journal.SanitizeMark{Address: was, Identity: id}),
	); err != nil {
		t.Fatal(err)
	}
	k.MoveBus(0x3b, 0x3c)
	k.Reboot()
	shown := func(root, address string) {
		t.Helper()
		got := invoke(t, "status", "--root", root)
		for _, want := range []string{"has had no proven reset", "is drained since", "waits for its sanitizing stage"} {
			if !strings.Contains(got.stdout, "\n"+address+" "+want) {
				t.Errorf("status lacks %s %s:\n%s%s", address, want, got.stdout, got.stderr)
			}
		}
		if got := invoke(t, "status", "--root", root, "-o", "json"); strings.Count(got.stdout, `"address": "`+address+`"`) != 3 {
			t.Errorf("status -o json: %+v, want %s three times", got, address)
		}
	}
	shown(k.Root(), "0000:3c:00.0")
	if got := invoke(t, "__complete", "undrain", "--root", k.Root(), ""); !strings.HasPrefix(got.stdout, "0000:3c:00.0\t") {
		t.Errorf("completion: %+v", got)
	}
	journalAlone := t.TempDir() // without sysfs
	if err := os.CopyFS(filepath.Join(journalAlone, "var/lib/kata-vfio/journal"), os.DirFS(filepath.Join(k.Root(), "var/lib/kata-vfio/journal"))); err != nil {
		t.Fatal(err)
	}
	shown(journalAlone, "0000:3b:00.0")
}
