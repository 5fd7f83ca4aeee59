package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/kata-vfio/kata-vfio/pkg/audit/fleet"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// ending ends a run when it has written so many lines.
type ending struct {
	bytes.Buffer
	lines int
	end   context.CancelFunc
}

func (e *ending) Write(p []byte) (int, error) {
	n, err := e.Buffer.Write(p)
	if bytes.Count(e.Bytes(), []byte("\n")) >= e.lines {
		e.end()
	}
	return n, err
}

// TestIntervalRunsUntilEnded: each report is a line and replaces the file, which
// is what `cluster` reads.
func TestIntervalRunsUntilEnded(t *testing.T) {
	root, out := unsafeServer(t).Root(), filepath.Join(t.TempDir(), "audit")
	ctx, cancel := context.WithCancel(t.Context())
	stdout, stderr := &ending{lines: 1, end: cancel}, &bytes.Buffer{}
	err := run(ctx, []string{"node", "--root", root, "--every", "1h", "--out", out, "--node-name", "n1"}, stdout, stderr)
	if err != nil || stderr.Len() > 0 {
		t.Fatalf("%v, %s", err, stderr)
	}
	kept, err := os.ReadFile(filepath.Join(out, "n1.json"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(stdout.String(), string(kept)); diff != "" {
		t.Errorf("the file is not what was written to the log:\n%s", diff)
	}
	reports, err := fleet.ReadReports(nil, []string{out}, "")
	if err != nil || len(reports) != 1 || reports[0].Subject.Name != "n1" {
		t.Errorf("read back: %d reports, %v", len(reports), err)
	}
	left, _ := os.ReadDir(out)
	if len(left) != 1 {
		t.Errorf("there is more than the report: %v", left)
	}
}

// looking ends a run at its first line, and records the content of the file at that time.
type looking struct {
	file string
	end  context.CancelFunc
	kept []byte
	line []byte
}

func (l *looking) Write(line []byte) (int, error) {
	defer l.end()
	var err error
	l.line = bytes.Clone(line)
	l.kept, err = os.ReadFile(l.file)
	return len(line), err
}

// TestIntervalLogNamesReportFile: the log's line comes after the file.
func TestIntervalLogNamesReportFile(t *testing.T) {
	root, out := unsafeServer(t).Root(), filepath.Join(t.TempDir(), "audit")
	ctx, cancel := context.WithCancel(t.Context())
	stdout, stderr := &looking{file: filepath.Join(out, "n1.json"), end: cancel}, &bytes.Buffer{}
	err := run(ctx, []string{"node", "--root", root, "--every", "1h", "--out", out, "--node-name", "n1"}, stdout, stderr)
	if err != nil || stderr.Len() > 0 {
		t.Fatalf("%v, %s", err, stderr)
	}
	if !bytes.Equal(stdout.kept, stdout.line) {
		t.Errorf("the file has %d bytes when the line of %d is written", len(stdout.kept), len(stdout.line))
	}
}

// TestIntervalKeepsItsTime: the interval varies by a tenth, and a signal ends the wait.
func TestIntervalKeepsItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var at []time.Time
		start := time.Now()
		repeat(ctx, time.Hour, func(context.Context) {
			if at = append(at, time.Now()); len(at) == 100 {
				cancel()
			}
		})
		if !at[0].Equal(start) || time.Since(at[99]) != 0 {
			t.Errorf("the first after %s, the end %s after the last", at[0].Sub(start), time.Since(at[99]))
		}
		apart := map[time.Duration]bool{}
		for i, when := range at[1:] {
			took := when.Sub(at[i])
			apart[took] = true
			if took < 54*time.Minute || took > 66*time.Minute {
				t.Errorf("%s between two", took)
			}
		}
		if len(apart) < 50 {
			t.Errorf("only %d different times", len(apart))
		}
	})
}

// TestIntervalContinuesAfterFailure: a node that can't be read now may be readable later.
func TestIntervalContinuesAfterFailure(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	stderr := &ending{lines: 1, end: cancel}
	if err := run(ctx, []string{"node", "--root", filepath.Join(t.TempDir(), "none"), "--every", "1h"}, &bytes.Buffer{}, stderr); err != nil {
		t.Errorf("%v; want nothing but the end", err)
	}
}

// TestIntervalReadsWaiversEachTime: changes apply while it runs, and no waiver counts while the file can't be read.
func TestIntervalReadsWaiversEachTime(t *testing.T) {
	waivers := func(id string) string {
		return "waivers: [{rule: " + id + ", scope: '*', until: '2999-12-31', reason: x, author: y}]"
	}
	all, err := rule.ReadCatalogue()
	if err != nil {
		t.Fatal(err)
	}
	j := &judging{waivers: put(t, waivers("IOM-003")), rules: all}
	for _, step := range []struct {
		content, rule string
		ok            bool
	}{{waivers("IOM-003"), "IOM-003", true}, {waivers("K8S-012"), "K8S-012", true}, {"waivers: [", "", false}, {waivers("IOM-001"), "IOM-001", true}} {
		if err := os.WriteFile(j.waivers, []byte(step.content), 0o600); err != nil {
			t.Fatal(err)
		}
		err := j.rereadWaivers()
		id := ""
		for _, w := range j.accepted {
			id += w.Rule
		}
		if (err == nil) != step.ok || id != step.rule {
			t.Errorf("%s: %v, accepted %q", step.content, err, id)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	stderr, cmd := &ending{lines: 1, end: cancel}, &cobra.Command{}
	cmd.SetContext(ctx)
	cmd.SetErr(stderr)
	if err := (&tree{root: t.TempDir()}).watch(cmd, &judging{waivers: t.TempDir(), rules: all}, &repeated{every: time.Hour}); err != nil {
		t.Error(err)
	}
	if !strings.HasPrefix(stderr.String(), "audit: no waivers apply: --waivers: ") {
		t.Errorf("it says %q", stderr)
	}
}

func TestIntervalRefusesContradictions(t *testing.T) {
	for _, args := range [][]string{
		{"--every", "1s"},
		{"--every", "-1h"},
		{"--every", "1h", "-o", "html"},
		{"--every", "1h", "--file", "x"},
		{"--out", "x"},
		{"--node-name", "../x"},
		{"--node-name", "."},
	} {
		if _, _, err := execute(t, append([]string{"node", "--root", t.TempDir()}, args...)...); err == nil || exitCode(err) != exitUsage {
			t.Errorf("%v: %v", args, err)
		}
	}
}
