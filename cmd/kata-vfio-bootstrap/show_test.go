package main

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/host"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
)

// TestPlanFitsTheTerminal: no line of plan's tables is longer than the terminal, and each file keeps its row and its status.
func TestPlanFitsTheTerminal(t *testing.T) {
	o := &options{root: image(t)}
	e, err := o.open()
	if err != nil {
		t.Fatal(err)
	}
	p, err := o.look(t.Context(), e)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	if len(p.Files) < 5 || len(p.Facts) < 3 {
		t.Fatalf("the plan has %d files and %d facts, too few for a test", len(p.Files), len(p.Facts))
	}
	for _, width := range []int{80, 100, 120, 160} {
		out := &printer{width: width}
		facts(out, p)
		overview(out, p)
		text := out.text.String()
		for line := range strings.Lines(text) {
			if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > width {
				t.Errorf("at %d columns, a line has %d:\n%s", width, n, line)
			}
		}
		for _, f := range p.Files {
			if !strings.Contains(text, "/"+f.Path) {
				t.Errorf("at %d columns, no row of %s:\n%s", width, f.Path, text)
			}
		}
		if got, want := strings.Count(text, "create"), len(p.Files); got < want-1 {
			t.Errorf("at %d columns, %d files have a status, want about %d:\n%s", width, got, want, text)
		}
		if testing.Verbose() {
			t.Logf("at %d columns:\n%s", width, text)
		}
	}
}

// TestNoticeIsFirst: how far bootstrap goes stands above everything else, and Talos' config is whole at each width.
func TestNoticeIsFirst(t *testing.T) {
	p := &bootstrap.Plan{
		Notice: "Bootstrap changes nothing on Talos.", Facts: []state.Fact{{Part: "platform", Name: "system", Value: "Talos"}},
		Talos: &host.TalosConfig{Schematic: "customization: {}\n", MachineConfig: "machine:\n  udev:\n    rules:\n    - '" + strings.Repeat("x", 90) + "'\n"},
	}
	for _, show := range []func(*printer, *bootstrap.Plan){printPlan, printVerify} {
		out := &printer{width: 80}
		if show(out, p); !strings.HasPrefix(out.text.String(), "! Bootstrap changes nothing on Talos.\n") {
			t.Errorf("got %q, want the notice first", out.text.String())
		}
	}
	out := &printer{width: 80}
	if printPlan(out, p); !strings.Contains(out.text.String(), p.Talos.MachineConfig) || !strings.Contains(out.text.String(), p.Talos.Schematic) {
		t.Errorf("got %s, want the schematic and the machine config as they are", out.text.String())
	}
}

// TestPlanShowsProblemsBeforeDiffs: diffs may fill many screens, and --summary leaves them out.
func TestPlanShowsProblemsBeforeDiffs(t *testing.T) {
	p := &bootstrap.Plan{
		Files:    []bootstrap.FilePlan{{Path: "etc/x", Part: "modules", Status: bootstrap.ToDo, Action: "create", Diff: "--- /dev/null\n+++ wanted/etc/x\n@@ -0,0 +1,1 @@\n+x\n"}},
		Problems: []state.Problem{{Code: "FileDamaged", Fatal: true, Text: "a file is damaged.", Fix: "correct it"}},
	}
	out := &printer{}
	printPlan(out, p)
	text := out.text.String()
	if problem, diff := strings.Index(text, "✗ a file is damaged (FileDamaged)\n    Correct it"), strings.Index(text, "+++ wanted/etc/x"); problem < 0 || diff < problem {
		t.Errorf("got the problem at %d and the diff at %d, want the problem first:\n%s", problem, diff, text)
	}
	out = &printer{summary: true}
	printPlan(out, p)
	if text := out.text.String(); strings.Contains(text, "+++") || !strings.Contains(text, "1 file changes.") {
		t.Errorf("got a summary with the diff, or without its count:\n%s", text)
	}
}

func TestResultSaysWhatWasDone(t *testing.T) {
	out := &printer{}
	printResult(out, &bootstrap.Result{Changed: []bootstrap.FilePlan{{Path: "a", Action: "create"}, {Path: "b", Action: "change"}, {Path: "c", Action: "take back"}}}, false)
	for _, want := range []string{"/a", "created", "/b", "changed", "/c", "reverted"} {
		if !strings.Contains(out.text.String(), want) {
			t.Errorf("got %s, want %q", out.text.String(), want)
		}
	}
}
