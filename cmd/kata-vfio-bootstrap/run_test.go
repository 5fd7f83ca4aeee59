package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
)

// keep returns a keeper of an image and its output.
func keep(t *testing.T, root, apply string) (k *keeper, said *bytes.Buffer) {
	t.Helper()
	said = &bytes.Buffer{}
	return &keeper{options: &options{root: root}, stdout: said, stderr: said, apply: apply, every: shortest, now: time.Now}, said
}

func (k *keeper) look(t *testing.T) {
	t.Helper()
	e, err := k.options.open()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = e.Close() }()
	if err := k.once(t.Context(), e); err != nil {
		t.Error(err)
	}
}

func recorded(t *testing.T, root string) *state.Record {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, state.RecordFile))
	if err != nil {
		t.Fatal(err)
	}
	r, err := state.ParseRecord(text)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestRunAppliesWhenItIsToldTo(t *testing.T) {
	const ours = "etc/modprobe.d/50-kata-vfio.conf"
	for _, c := range []struct{ apply, atFirst, later string }{
		{applyNever, "changes needed", "changes needed"}, {applyOnce, "fit", "changes needed"}, {applyAlways, "fit", "fit"},
	} {
		root := image(t)
		k, _ := keep(t, root, c.apply)
		k.look(t)
		if got := recorded(t, root).Outcome; got != c.atFirst {
			t.Errorf("%s, at first: %s, want %s", c.apply, got, c.atFirst)
		}
		put(t, filepath.Join(root, ours), "options vfio_pci disable_denylist=Y\n")
		k.look(t)
		if got := recorded(t, root).Outcome; got != c.later {
			t.Errorf("%s, later: %s, want %s", c.apply, got, c.later)
		}
	}
}

// A first look at which nothing can be done does not use Once up.
func TestOnceIsUntilAnApplyHasSucceeded(t *testing.T) {
	root := image(t)
	const shim = "opt/kata/bin/containerd-shim-kata-v2"
	if err := os.Remove(filepath.Join(root, shim)); err != nil {
		t.Fatal(err)
	}
	k, _ := keep(t, root, applyOnce)
	k.look(t)
	if got := recorded(t, root).Outcome; got != "can't be made fit" {
		t.Fatalf("without Kata: %s", got)
	}
	put(t, filepath.Join(root, shim), "ELF")
	k.look(t)
	if got := recorded(t, root).Outcome; got != "fit" {
		t.Errorf("with Kata: %s", got)
	}
	put(t, filepath.Join(root, "etc/modprobe.d/50-kata-vfio.conf"), "options vfio_pci disable_denylist=Y\n")
	k.look(t)
	if got := recorded(t, root).Outcome; got != "changes needed" {
		t.Errorf("later: %s", got)
	}
}

// An apply whose tool fails is done again.
func TestOnceTriesAgainAfterAnError(t *testing.T) {
	k, said := keep(t, image(t), applyOnce)
	k.options.chrootTools = true
	e, err := k.options.open()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = e.Close() }()
	for range 2 {
		said.Reset()
		if err := k.once(t.Context(), e); err == nil || !strings.Contains(said.String(), "failed: /usr/sbin/update-grub") {
			t.Errorf("error %v, it says %s", err, said)
		}
	}
}

// If another program changes the same file each time, it is fixed at growing intervals.
func TestAlwaysBacksOffFromAnotherWriter(t *testing.T) {
	root := image(t)
	k, said := keep(t, root, applyAlways)
	k.every = 10 * time.Minute
	start := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	var fixedAt []int
	for minute := 0; minute <= 240; minute += 10 {
		k.now = func() time.Time { return start.Add(time.Duration(minute) * time.Minute) }
		put(t, filepath.Join(root, "etc/modprobe.d/50-kata-vfio.conf"), "options vfio_pci disable_denylist=Y\n")
		k.look(t)
		if recorded(t, root).Outcome == "fit" {
			fixedAt = append(fixedAt, minute)
		}
	}
	if diff := cmp.Diff([]int{0, 10, 20, 40, 80, 140, 200}, fixedAt); diff != "" {
		t.Errorf("fixed at minutes (-want +got):\n%s", diff)
	}
	if !strings.Contains(said.String(), "another program keeps changing /etc/modprobe.d/50-kata-vfio.conf; the next fix is in 40m0s at the earliest") {
		t.Errorf("it says %s", said)
	}
	k.now = func() time.Time { return start.Add(24 * time.Hour) }
	k.look(t)
	if got := recorded(t, root).Outcome; got != "fit" || k.fixed.pause != 0 {
		t.Errorf("a day later: %s, pause %s", got, k.fixed.pause)
	}
}

// A look that fails is not hidden behind what an earlier one has found.
func TestLookThatFailsIsRecorded(t *testing.T) {
	root := image(t)
	k, _ := keep(t, root, applyAlways)
	k.look(t)
	put(t, filepath.Join(root, bootstrap.BlueprintFile), "kind: Node\n")
	e, err := k.options.open()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = e.Close() }()
	if err := k.once(t.Context(), e); err == nil {
		t.Error("no error")
	}
	if r := recorded(t, root); r.Outcome != state.Unknown || !strings.Contains(r.Differences[0].Why, "kind: want NodeBlueprint") {
		t.Errorf("record %+v", r)
	}
	if _, _, code := try(t, "verify", "--record", "--root", root); code != exitUsage {
		t.Errorf("verify: code %d", code)
	}
}

func TestRunTellsEachStateOnce(t *testing.T) {
	root := image(t)
	k, said := keep(t, root, applyNever)
	k.look(t)
	if !strings.Contains(said.String(), "50-kata-vfio.conf does not match the blueprint") {
		t.Errorf("at first it says %s", said)
	}
	said.Reset()
	k.look(t)
	if said.Len() > 0 {
		t.Errorf("again it says %s", said)
	}
	k.apply = applyAlways
	k.look(t)
	if text := said.String(); !strings.Contains(text, "Done, except for the manual steps above.") || !strings.Contains(text, "All files match the blueprint") {
		t.Errorf("after the fix it says %s", text)
	}
}

func TestRunEndsWhenItIsTold(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	k, _ := keep(t, image(t), applyNever)
	k.every = time.Hour
	ended := make(chan error, 1)
	go func() { ended <- k.run(ctx) }()
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestRunRefusesWhatCantBeMeant(t *testing.T) {
	for _, args := range []string{"run --apply sometimes", "run --every 1s", "run -o xml", "run -f /nonexistent", "run --enter-node", "verify --enter-node"} {
		if _, stderr, code := try(t, append(strings.Fields(args), "--root", image(t))...); code != exitUsage || stderr == "" {
			t.Errorf("%s: code %d: %s", args, code, stderr)
		}
	}
}

func TestVerifyLeavesWhatItFoundWhereThatIsAskedFor(t *testing.T) {
	root := image(t)
	if _, stderr, code := try(t, "verify", "--root", root); code != exitChanges {
		t.Fatalf("code %d: %s", code, stderr)
	}
	if _, err := os.Stat(filepath.Join(root, state.RecordFile)); err == nil {
		t.Error("verify wrote a record that nobody asked for")
	}
	if _, stderr, code := try(t, "verify", "--record", "--root", root); code != exitChanges || recorded(t, root).Outcome != string(bootstrap.ChangesNeeded) {
		t.Errorf("code %d: %s", code, stderr)
	}
}

func TestRunEntersNodeOnce(t *testing.T) {
	for args, want := range map[string]string{
		"x run --enter-node -f /config/b.yaml": "x run --enter-node -f /config/b.yaml --entered",
		"x revert --enter-node -- /etc/x":      "x revert --enter-node --entered -- /etc/x",
	} {
		if diff := cmp.Diff(strings.Fields(want), entered(strings.Fields(args))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", args, diff)
		}
	}
}

// TestEndOfProgramInNodeIsTold: a program that was killed printed nothing, and has no exit code.
func TestEndOfProgramInNodeIsTold(t *testing.T) {
	for _, end := range []struct {
		script, want string
		code         int
	}{
		{"exit 0", "", 0},
		{"exit 3", "", exitChanges},
		{"exit 255", "", 255},
		{"kill -KILL $$", "the program in the node was ended: signal: killed; run it again", 1},
	} {
		var stderr strings.Builder
		err := asEnded(exec.CommandContext(t.Context(), "sh", "-c", end.script).Run())
		if err == nil {
			t.Errorf("%s: this process would do the work again", end.script)
			continue
		}
		if code := fail(&stderr, err); code != end.code || !strings.Contains(stderr.String(), end.want) || end.want == "" && stderr.Len() > 0 {
			t.Errorf("%s: code %d, want %d; printed %q, want %q", end.script, code, end.code, stderr.String(), end.want)
		}
	}
	if err := asEnded(errors.New("no hostPID")); err.Error() != "enter the node: no hostPID" || exitCode(err) != 1 {
		t.Errorf("a program that did not start: code %d, %v", exitCode(err), err)
	}
}

// input is the standard input of the rest of the test.
func input(t *testing.T, text string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "input")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	was := os.Stdin
	os.Stdin = f
	t.Cleanup(func() {
		os.Stdin = was
		_ = f.Close() // it was only read from
	})
}

// TestProgramInNodeReadsBlueprintFromInput: what the process in the pod passes on is a command line that the one in the node takes,
// however the blueprint is named in it.
func TestProgramInNodeReadsBlueprintFromInput(t *testing.T) {
	for _, blueprint := range []string{"--blueprint=/pod/b.yaml", "--blueprint /pod/b.yaml", "-f /pod/b.yaml", "-f -", ""} {
		t.Run(blueprint, func(t *testing.T) {
			input(t, "apiVersion: bootstrap.kata-vfio.dev/v1alpha1\nkind: NodeBlueprint\nname: from-the-pod\n")
			args := entered(append([]string{"verify", "--enter-node"}, strings.Fields(blueprint)...))
			stdout, stderr, code := try(t, append(args, "--root", image(t), "-o", "json")...)
			if got := strings.Contains(stdout, "from-the-pod"); code != exitChanges || got != (blueprint != "") {
				t.Errorf("code %d, the blueprint from the input is used: %t; %s%s", code, got, stdout, stderr)
			}
		})
	}
}
