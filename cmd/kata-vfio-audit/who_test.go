package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/ledger/writer"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// twoTenants is a node's root with a ledger by which t1 got a function at 8:01, and t2 another one of the same NIC at 8:02.
func twoTenants(t *testing.T) string {
	t.Helper()
	root, minute := t.TempDir(), 0
	w, err := writer.Open(t.Context(), writer.Config{Dir: filepath.Join(root, ledger.DefaultDir), Node: "gpu-07", Now: func() (time.Time, int64) {
		minute++
		return time.Date(2026, 1, 2, 8, minute, 0, 0, time.UTC), int64(minute)
	}})
	if err != nil {
		t.Fatal(err)
	}
	pf := pci.Address{Bus: 0x5e}
	for i, tenant := range []string{"t1", "t2"} {
		_, err := w.Append(t.Context(), ledger.Event{
			Type: ledger.Prepare, Result: ledger.OK, Claim: &ledger.Claim{UID: "u-" + tenant, Namespace: tenant, Name: "c"},
			Pods:    []ledger.Pod{{UID: "pod-" + tenant, Name: "p"}},
			Devices: []ledger.Device{{Address: pci.Address{Bus: 0x5e, Device: 0x10, Function: uint8(i)}, PF: &pf}},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// TestTenancyAtMoment: tenants that came later are not neighbors, and a time in the future is an error.
func TestTenancyAtMoment(t *testing.T) {
	root := twoTenants(t)
	for at, want := range map[string]string{
		"2026-01-02T08:00:30Z": "who had a function at 2026-01-02T08:00:30Z: the ledger knows of no function\n",
		"2026-01-02T08:01:30Z": "who had a function at 2026-01-02T08:01:30Z: 1 tenancy on node gpu-07, 1 held now\n",
		"2026-01-02T08:02:30Z": "who had a function at 2026-01-02T08:02:30Z: 2 tenancies on node gpu-07, 2 held now\n",
	} {
		stdout, _, err := execute(t, "who", "--root", root, "--at", at)
		if err != nil || !strings.HasPrefix(stdout, want) || strings.Contains(stdout, "Near it") {
			t.Errorf("at %s: %v\n%s", at, err, stdout)
		}
	}
	if stdout, _, err := execute(t, "who", "--root", root); err != nil || !strings.Contains(stdout, "2 tenancies on node gpu-07, 2 held now\n") {
		t.Errorf("now: %v\n%s", err, stdout)
	}
	now := time.Date(2026, 1, 2, 9, 0, 0, 0, time.UTC)
	for at, ok := range map[string]bool{"": true, "2026-01-02T09:01:00Z": true, "2026-01-02T09:03:00Z": false, "2030-01-01T00:00:00Z": false, "now": false} {
		when, err := parseMoment(at, now)
		if (err == nil) != ok || err != nil && exitCode(err) != exitUsage || at == "" && !when.Equal(now) {
			t.Errorf("%q: %s, %v", at, when, err)
		}
	}
}

// TestTypoIsNoAnswer: what can be no name, what looks like none and is not found, and flags that don't fit together.
func TestTypoIsNoAnswer(t *testing.T) {
	root := twoTenants(t)
	for question, want := range map[string]int{
		"--pod t1/p": 0, "--pod pod-t1": 0, "--pod t1/other": 0, "--pod 6f3c1a52-0b1e-4f57-9d6e-0a1b2c3d4e5f": 0,
		"--claim c": 0, "--claim t1/c": 0, "--claim u-t2": 0, "--claim d": 0, "--pod t1/p --claim t1/c": 0,
		"--pod foo": exitUsage, "--pod /p": exitUsage, "--pod t1/": exitUsage, "--pod t1/p/q": exitUsage, "--near p": exitUsage, "--claim t1//c": exitUsage,
		"--device foo": exitUsage, "--pod=": exitUsage, "--device=": exitUsage, "--at=": exitUsage, "--history": exitUsage,
		"--since 24h": exitUsage, "-o ndjson": exitUsage, "-o table": exitUsage,
		"--events": 0, "--events --pod t1/p -o ndjson": 0, "--events --type reset": 0,
		"--events --near t1/p": exitUsage, "--events --at 2026-01-02T08:00:30Z": exitUsage, "--events --bundle b": exitUsage, "--events -o html": exitUsage,
	} {
		_, _, err := execute(t, append(append([]string{"who"}, strings.Fields(question)...), "--root", root)...)
		got := 0
		if err != nil {
			got = exitCode(err)
		}
		if got != want {
			t.Errorf("who %s: exit code %d, want %d: %v", question, got, want, err)
		}
	}
}

// TestFormerQuestionsPrintTheSame as the filters of `who`, with the same exit code.
func TestFormerQuestionsPrintTheSame(t *testing.T) {
	root := twoTenants(t)
	for former, now := range map[string]string{
		"pod t1/p":                      "who --pod t1/p",
		"pod t1/p -o json":              "who --pod t1/p -o json",
		"pod foo":                       "who --pod foo",
		"claim u-t2 -o yaml":            "who --claim u-t2 -o yaml",
		"neighbours t1/p -o json":       "who --near t1/p -o json",
		"device 0000:5e:10.1":           "who --device 0000:5e:10.1",
		"device 0000:5e:10.1 --history": "who --device 0000:5e:10.1 --history",
		"ledger show":                   "who --events",
		"ledger show -o table":          "who --events -o text",
		"ledger show --pod t2/p":        "who --events --pod t2/p",
		"ledger show --claim c -o yaml": "who --events --claim c -o yaml",
		"ledger show --device 0000:5e:10.0 --type prepare -o ndjson": "who --events --device 0000:5e:10.0 --type prepare -o ndjson",
		"ledger show --until 2026-01-02T08:01:30Z -o json":           "who --events --until 2026-01-02T08:01:30Z -o json",
	} {
		var out [2]string
		var code [2]int
		for i, line := range []string{former, now} {
			stdout, _, err := execute(t, append(strings.Fields(line), "--root", root)...)
			if out[i] = stdout; err != nil {
				code[i] = exitCode(err)
			}
		}
		if out[0] != out[1] || code[0] != code[1] || code[0] == 0 && out[0] == "" {
			t.Errorf("%s: exit code %d\n%s\n%s: exit code %d\n%s", former, code[0], out[0], now, code[1], out[1])
		}
	}
}

// TestFiltersAreCombined: each narrows the answer down, and a tenancy that had not begun is near nobody.
func TestFiltersAreCombined(t *testing.T) {
	root := twoTenants(t)
	const one, near = "1 tenancy on node gpu-07, 1 held now", "0000:5e:10.1 (claim t2/c) shares one PF with 0000:5e:10.0"
	for question, want := range map[string]struct {
		begins string
		near   bool
	}{
		"--pod t1/p --device 0000:5e:10.0":                {"pod t1/p, function 0000:5e:10.0: " + one, true},
		"--pod t1/p --device 0000:5e:10.1":                {"pod t1/p, function 0000:5e:10.1: the ledger knows of no function\n", false},
		"--near t1/p --at 2026-01-02T08:02:30Z":           {"pod t1/p at 2026-01-02T08:02:30Z: " + one, true},
		"--near t1/p --at 2026-01-02T08:01:30Z":           {"pod t1/p at 2026-01-02T08:01:30Z: " + one, false},
		"--claim t2/c --at 2026-01-02T08:01:30Z":          {"claim t2/c at 2026-01-02T08:01:30Z: the ledger knows of no function\n", false},
		"--device 0000:5e:10.0 --at 2026-01-02T08:01:30Z": {"function 0000:5e:10.0 at 2026-01-02T08:01:30Z: " + one, false},
	} {
		stdout, _, err := execute(t, append(append([]string{"who"}, strings.Fields(question)...), "--root", root)...)
		if err != nil || !strings.HasPrefix(stdout, want.begins) || strings.Contains(stdout, near) != want.near {
			t.Errorf("who %s: %v\n%s\nwant it to begin with %q; near: %t", question, err, stdout, want.begins, want.near)
		}
	}
}

// TestBundlesAndProofsAreForNobodyElse: they name tenants. The bundle tells who was near.
func TestBundlesAndProofsAreForNobodyElse(t *testing.T) {
	root, dir := twoTenants(t), t.TempDir()
	bundle, proof := filepath.Join(dir, "bundle"), filepath.Join(dir, "proof")
	for _, name := range []string{bundle, proof} {
		if err := os.WriteFile(name, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"who", "--near", "t1/p", "--bundle", bundle}, {"ledger", "prove", "1", "--file", proof}} {
		if _, _, err := execute(t, append(args, "--root", root)...); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{bundle, proof} {
		if info, err := os.Stat(name); err != nil || info.Mode() != 0o600 {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
	stdout, _, err := execute(t, "verify", "bundle", bundle)
	if err != nil || !strings.Contains(stdout, "0000:5e:10.1 (claim t2/c) shares one PF with 0000:5e:10.0") || !strings.Contains(stdout, "this bundle has no earlier events") {
		t.Errorf("%v\n%s", err, stdout)
	}
}
