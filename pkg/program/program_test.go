package program_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/program"
)

// script makes a program of a shell script, and returns it with its directory.
func script(t *testing.T, text string) (program.Program, string) {
	t.Helper()
	dir := t.TempDir()
	p := program.Program{Path: filepath.Join(dir, "scripted"), Env: []string{"DIR=" + dir, "PATH=/usr/bin:/bin"}}
	if err := os.WriteFile(p.Path, []byte("#!/bin/sh\n"+text+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	return p, dir
}

// TestProgramThatEnds, with success or not, leaves behind what it said.
func TestProgramThatEnds(t *testing.T) {
	for text, want := range map[string]*program.Ended{
		`cat; echo "$1 $PWD" >&2`:        {Stdout: []byte("question"), Stderr: []byte("-x /\n")},
		`echo no; exit 3`:                {Code: 3, Stdout: []byte("no\n")},
		`true`:                           {},
		`head -c 5000 /dev/zero >&2`:     {Stderr: make([]byte, 1024)},
		`head -c 1048576 /dev/zero`:      {Stdout: make([]byte, 1<<20)},
		`echo "$LD_PRELOAD_OF_TEST" >&2`: {Stderr: []byte("\n")},
	} {
		t.Setenv("LD_PRELOAD_OF_TEST", "x")
		p, _ := script(t, text)
		got, err := p.Run(t.Context(), []byte("question"), "-x")
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got.Code != want.Code || string(got.Stdout) != string(want.Stdout) || string(got.Stderr) != string(want.Stderr) {
			t.Errorf("%s: code %d, %.40q and %.40q; want %d, %.40q and %.40q", text, got.Code, got.Stdout, got.Stderr, want.Code, want.Stdout, want.Stderr)
		}
	}
}

// TestProgramOfUnknownOutcome: the caller can tell it from one that did nothing.
func TestProgramOfUnknownOutcome(t *testing.T) {
	for text, want := range map[string]string{
		`kill -9 $$`:                            "signal: killed",
		`yes`:                                   "the answer of scripted has more than 1048576 bytes",
		`echo about to >&2; sleep 600`:          `scripted was killed: the caller has gone (it printed "about to")`,
		`sleep 600 & echo $! >$DIR/child; wait`: "scripted was killed: the caller has gone",
		`sleep 600 & echo $! >$DIR/child; exit`: "WaitDelay",
	} {
		p, dir := script(t, text)
		limit := time.Minute
		if strings.Contains(want, "the caller has gone") {
			limit = 300 * time.Millisecond
		}
		ctx, cancel := context.WithTimeoutCause(t.Context(), limit, errors.New("the caller has gone"))
		begun := time.Now()
		got, err := p.Run(ctx, nil)
		cancel()
		_, idle := errors.AsType[*program.NotStartedError](err)
		if got != nil || err == nil || idle || !strings.Contains(err.Error(), want) || time.Since(begun) > 8*time.Second {
			t.Errorf("%s: %v, %v after %s; want %q", text, got, err, time.Since(begun), want)
		}
		if child, err := os.ReadFile(filepath.Join(dir, "child")); err == nil && !ends(strings.TrimSpace(string(child))) {
			t.Errorf("%s: its child still runs", text)
		}
	}
}

// ends waits for the end of a process that was killed.
func ends(pid string) bool {
	for range 500 {
		stat, err := os.ReadFile("/proc/" + pid + "/stat")
		if err != nil || strings.Contains(string(stat), ") Z ") {
			return true
		}
		time.Sleep(10 * time.Millisecond)
	}
	return false
}

// TestProgramThatIsNotStarted did nothing: because it is not there, or because the caller has gone before.
func TestProgramThatIsNotStarted(t *testing.T) {
	there, _ := script(t, "true")
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for name, c := range map[string]struct {
		ctx  context.Context
		p    program.Program
		want error
	}{
		"missing":             {t.Context(), program.Program{Path: "/none/scripted"}, fs.ErrNotExist},
		"the caller has gone": {over, there, context.Canceled},
	} {
		got, err := c.p.Run(c.ctx, nil)
		if _, idle := errors.AsType[*program.NotStartedError](err); got != nil || !idle || !errors.Is(err, c.want) {
			t.Errorf("%s: %v, %v; want a NotStartedError with %v", name, got, err, c.want)
		}
	}
}

// TestSaid ends a sentence with the beginning of an output.
func TestSaid(t *testing.T) {
	for output, want := range map[string]string{
		"":                         "",
		"no\nsocket\n":             ` (it printed "no\nsocket")`,
		strings.Repeat("x", 1<<12): ` (it printed "` + strings.Repeat("x", 1<<10) + `")`,
	} {
		if diff := cmp.Diff(want, program.Said([]byte(output))); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}
