package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/inventory"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/ledger/writer"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sanitize"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// seedStages leaves a device that waits, one in its stage, one whose stage found data, and one with other firmware.
func seedStages(t *testing.T, root string) {
	t.Helper()
	store, err := journal.Open(filepath.Join(root, "var/lib/kata-vfio/journal"))
	if err != nil {
		t.Fatal(err)
	}
	tenant := journal.ClaimName{UID: oneUID1, Namespace: "team-a", Name: "train"}
	stage := journal.Stage{Claim: journal.ClaimName{UID: "57a6e", Namespace: "kata-vfio-sanitizing", Name: "s"}, Pod: "s", PodUID: "p", Profile: "memory", Since: "2026-11-28T06:00:00Z"}
	firmware := sanitize.Measurement{Name: "vbios", Algorithm: sanitize.Version, Value: "6.6"}
	for bus, m := range map[uint8]journal.SanitizeMark{
		0x3b: {},
		0x50: {Stage: &stage, Interrupted: 1},
		0x62: {Failed: &journal.FailedStage{Stage: stage, Verdict: sanitize.Dirty, Reason: "bar0: the memory at offset 0x10 is not what was written"}},
		0x70: {Failed: &journal.FailedStage{
			Stage: stage, Verdict: sanitize.Dirty, Reason: "firmware changed", Proof: &journal.SanitizeProof{},
			Changes: []sanitize.Change{{Name: "vbios", Was: &sanitize.Measurement{Name: "vbios", Algorithm: sanitize.Version, Value: "1.0"}, Is: &firmware}},
		}},
	} {
		m.Address, m.Claim, m.Since = pci.Address{Bus: bus}, tenant, "2026-11-28T05:00:00Z"
		if err := store.MarkUnsanitized(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
}

// seedStageResult leaves the result of the failed stages in the ledger.
func seedStageResult(t *testing.T, root string) {
	t.Helper()
	w, err := writer.Open(t.Context(), writer.Config{Dir: filepath.Join(root, "var/lib/kata-vfio/ledger"), Node: "node-1", BootID: "boot-1"})
	if err != nil {
		t.Fatal(err)
	}
	claim := &ledger.Claim{UID: "57a6e", Namespace: "kata-vfio-sanitizing", Name: "s"}
	if _, err := w.Append(t.Context(), ledger.Event{Type: ledger.Prepare, Result: ledger.OK, Claim: claim}, ledger.Event{
		Type: ledger.Sanitize, Result: ledger.Failed, Claim: claim, Sanitize: &ledger.Sanitization{
			Profile: "memory", Image: "sha256:12ab", Verdict: "Dirty",
			Checks: []ledger.SanitizeCheck{{
				Name: "bar0", Method: "FillVerifyZeroVerify", Verdict: "Dirty", Bytes: 4096, Seconds: 1.5, Reason: "the memory at offset 0x10 is not what was written",
			}},
			Firmware: []ledger.FirmwareMeasurement{{Name: "rom", Algorithm: "sha256", Value: "ab"}},
		},
	}); err != nil {
		t.Fatal(err)
	}
}

// TestStagesAreShown asks the commands that read what waits, runs and failed.
func TestStagesAreShown(t *testing.T) {
	root := newRoot(t)
	seedStages(t, root)
	seedStageResult(t, root)
	before := tree(t, root)
	for name, tt := range map[string]struct {
		args string
		code int
		want []string
	}{
		"status": {"status", 0, []string{
			"0000:3b:00.0 waits for its sanitizing stage, after claim team-a/train (" + oneUID1 + "), 2026-11-28T05:00:00Z",
			"0000:50:00.0 is in its sanitizing stage (memory, pod kata-vfio-sanitizing/s) since 2026-11-28T06:00:00Z", "stages that were interrupted: 1",
			"0000:62:00.0 is quarantined: its sanitizing stage is Dirty: bar0",
		}},
		"status for machines":    {"status -o json", 0, []string{`"sanitizing": [`, `"state": "Waiting"`, `"state": "Running"`, `"state": "Failed"`}},
		"list":                   {"quarantine list", 0, []string{"0000:62:00.0", "stage memory", "team-a/train"}},
		"list for machines":      {"quarantine list -o json", 0, []string{`"image": "sha256:12ab"`, `"bytes": 4096`}},
		"explain what ran":       {"quarantine explain 0000:62:00.0", 0, []string{"image      sha256:12ab", "Dirty  bar0 by FillVerifyZeroVerify, 4096 bytes in 1.5 s: the memory at offset 0x10", "measured  rom: sha256 ab"}},
		"explain for machines":   {"quarantine explain 0000:62:00.0 -o json", 0, []string{`"result": {`, `"method": "FillVerifyZeroVerify"`}},
		"explain, no ledger":     {"quarantine explain 0000:62:00.0 --ledger-dir nowhere", 0, []string{"What the sanitizer answered is not known: the ledger has no result"}},
		"accept, what ran":       {"quarantine accept-firmware 0000:62:00.0 --dry-run", 0, []string{"image      sha256:12ab"}},
		"explain dirty memory":   {"quarantine explain 0000:62:00.0", 0, []string{"offset 0x10", "claim team-a/train", "quarantine clear 0000:62:00.0", "replace the device"}},
		"explain by the claim":   {"quarantine explain " + oneUID1, 0, []string{"quarantined, because"}},
		"explain new firmware":   {"quarantine explain gpu-0000-70-00-0", 0, []string{"vbios: version 6.6, was version 1.0", "accept-firmware 0000:70:00.0"}},
		"explain what waits":     {"quarantine explain 0000:3b:00.0", 2, []string{"nothing of that name is quarantined"}},
		"clear, dry":             {"quarantine clear 0000:62:00.0 --dry-run", 0, []string{"Would end the quarantine of 0000:62:00.0: another sanitizing stage runs."}},
		"clear, for machines":    {"quarantine clear 0000:62:00.0 --dry-run -o json", 0, []string{"{\n  \"address\": \"0000:62:00.0\",\n  \"outcome\": \"another sanitizing stage runs\"\n}\n"}},
		"clear as it is, dry":    {"quarantine clear 0000:62:00.0 --dry-run --without-proof", 0, []string{"free without a proof"}},
		"clear without a reason": {"quarantine clear 0000:62:00.0", 2, []string{"--reason is empty"}},
		"accept, dry":            {"quarantine accept-firmware 0000:70:00.0 --dry-run", 0, []string{"vbios: version 6.6"}},
		"accept what waits":      {"quarantine accept-firmware 0000:3b:00.0 --reason x", 2, []string{"no sanitizing stage of that device failed, and its firmware has not changed"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := invoke(t, append(strings.Fields(tt.args), "--root", root)...)
			for _, want := range tt.want {
				if !strings.Contains(got.stdout+got.stderr, want) {
					t.Errorf("got\n%s%s, want %q", got.stdout, got.stderr, want)
				}
			}
			if got.code != tt.code {
				t.Errorf("got exit code %d, want %d", got.code, tt.code)
			}
		})
	}
	sameTree(t, before, tree(t, root))
}

// TestRecordedFirmwareIsShown: a change that kept no tenant away is shown before it is accepted, without a quarantine.
func TestRecordedFirmwareIsShown(t *testing.T) {
	root := newRoot(t)
	store, err := journal.Open(filepath.Join(root, "var/lib/kata-vfio/journal"))
	if err != nil {
		t.Fatal(err)
	}
	fs, err := sysfs.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = fs.Close() })
	snap, err := inventory.Scan(t.Context(), fs)
	if err != nil {
		t.Fatal(err)
	}
	gpu := pci.Address{Bus: 0x3b}
	f, _ := snap.Function(gpu)
	was, is := sanitize.Measurement{Name: "vbios", Algorithm: sanitize.Version, Value: "1.0"}, sanitize.Measurement{Name: "vbios", Algorithm: sanitize.Version, Value: "6.6"}
	proof := journal.SanitizeProof{
		Address: gpu, Identity: snap.Identify(f), Profile: "memory", Time: "2026-11-28T06:00:00Z",
		Firmware: []sanitize.Measurement{is}, Changed: []sanitize.Change{{Name: "vbios", Was: &was, Is: &is}},
	}
	if err := store.MarkSanitized(t.Context(), proof); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		args string
		code int
		want string
	}{
		{"quarantine accept-firmware gpu-0000-3b-00-0 --dry-run", 0, "vbios: version 6.6, was version 1.0"},
		{"quarantine accept-firmware 0000:3b:00.0", 2, "--reason"},
		{"quarantine accept-firmware 0000:62:00.0 --reason update", 2, "its firmware has not changed"},
	} {
		got := invoke(t, append(strings.Fields(tt.args), "--root", root)...)
		if got.code != tt.code || !strings.Contains(got.stdout+got.stderr, tt.want) {
			t.Errorf("%s: got exit code %d and\n%s%s, want %d and %q", tt.args, got.code, got.stdout, got.stderr, tt.code, tt.want)
		}
	}
}
