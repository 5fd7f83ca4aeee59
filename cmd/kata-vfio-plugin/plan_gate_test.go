package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestPlanRefusesWhatRunRefusesForTheAudit: the checks that `run` makes count for the
// plan, for `prepare` and for `template` too, unless --audit-taint is off.
func TestPlanRefusesWhatRunRefusesForTheAudit(t *testing.T) {
	root := newRoot(t)
	mode := filepath.Join(root, "sys/module/vfio/parameters/enable_unsafe_noiommu_mode")
	if err := os.MkdirAll(filepath.Dir(mode), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(mode, []byte("Y\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"plan", "--root", root, "-f", "testdata/one-claim.yaml"}
	if got := invoke(t, args...); got.code == 0 || !strings.Contains(got.stderr, "fails IOM-003 of the node's audit") {
		t.Errorf("%+v", got)
	}
	if got := invoke(t, append(args, "--audit-taint", "off")...); got.code != 0 {
		t.Errorf("without the checks: %+v", got)
	}
	dry := append([]string{"prepare", "--dry-run"}, args[1:]...)
	if got := invoke(t, dry...); got.code == 0 || !strings.Contains(got.stderr, "fails IOM-003 of the node's audit") {
		t.Errorf("prepare: %+v", got)
	}
	if got := invoke(t, append(dry, "--audit-taint", "off")...); got.code != 0 {
		t.Errorf("prepare without the checks: %+v", got)
	}
	const warning = "would be published with a taint: 0000:21:02.0 fails IOM-003 of the node's audit"
	if got := invoke(t, "template", "--root", root); got.code != 0 || !strings.Contains(got.stderr, warning) {
		t.Errorf("template: %+v", got)
	}
	if got := invoke(t, "template", "--root", root, "--audit-taint", "off"); got.code != 0 || strings.Contains(got.stderr, warning) {
		t.Errorf("template without the checks: %+v", got)
	}
	if got := invoke(t, append(args, "--audit-taint", "grave")...); got.code != exitUsage {
		t.Errorf("of a severity that is none: %+v", got)
	}
}

// TestPlanRefusesWhatAVMThatRunsHasNoRoomFor: plan and prepare are told as `run` is how VMs get their devices, and template, which warns.
func TestPlanRefusesWhatAVMThatRunsHasNoRoomFor(t *testing.T) {
	args := []string{"--root", newRoot(t), "-f", "testdata/one-claim.yaml", "--audit-taint", "off"}
	for _, c := range []struct {
		flags   []string
		refused bool
	}{
		{nil, false},
		{[]string{"--hot-plug"}, true},
		{[]string{"--hot-plug", "--hot-plug-window", "0"}, false},
		{[]string{"--hot-plug-window", "1"}, false}, // which VMs boot with
	} {
		for _, verb := range [][]string{{"plan"}, {"prepare", "--dry-run"}} {
			got := invoke(t, slices.Concat(verb, args, c.flags)...)
			if refused := strings.Contains(got.stderr, "128 GiB"); refused != c.refused || (got.code != 0) != c.refused {
				t.Errorf("%v %v: %+v", verb, c.flags, got)
			}
		}
		got := invoke(t, append([]string{"template", "--root", args[1], "--audit-taint", "off"}, c.flags...)...)
		if warned := strings.Contains(got.stderr, "128 GiB"); warned != c.refused || got.code != 0 {
			t.Errorf("template %v: %+v", c.flags, got)
		}
	}
}

// TestPlanSaysWhichWaiversAcceptNothing: a waiver of the wrong scope, or one that can't be read, is not passed over in silence.
func TestPlanSaysWhichWaiversAcceptNothing(t *testing.T) {
	root := newRoot(t)
	file := filepath.Join(root, "etc/kata-vfio/waivers.yaml")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	for content, want := range map[string]string{
		"waivers:\n- {rule: IOM-003, scope: 0000:ff:00.0, until: 2999-01-01, reason: r, author: a}\n": `warning: the waiver of IOM-003 for "0000:ff:00.0" accepts nothing`,
		"waivers:\n- {rule: IOM-003}\n": "warning: no failure is accepted: waivers of " + file + " can't be read: line 2: scope is missing",
		"waivers:\n":                    "",
	} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		got := invoke(t, "plan", "--root", root, "-f", "testdata/one-claim.yaml")
		if said := strings.Contains(got.stderr, "waiver"); want != "" && !strings.Contains(got.stderr, want) || want == "" && said {
			t.Errorf("with %q, plan says %q, want %q", content, got.stderr, want)
		}
	}
}
