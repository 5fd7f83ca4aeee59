package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/drift"
)

// keep returns a keeper of an image with what it says.
func keep(t *testing.T, root, apply string) (k *keeper, said *bytes.Buffer) {
	t.Helper()
	said = &bytes.Buffer{}
	return &keeper{options: &options{root: root}, stdout: said, stderr: said, apply: apply, every: shortest}, said
}

func (k *keeper) look(t *testing.T, first bool) {
	t.Helper()
	e, err := k.open()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = e.Close() }()
	if err := k.once(t.Context(), e, first); err != nil {
		t.Error(err)
	}
}

func recorded(t *testing.T, root string) *drift.Record {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, drift.File))
	if err != nil {
		t.Fatal(err)
	}
	r, err := drift.Parse(text)
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
		k.look(t, true)
		if got := recorded(t, root).Outcome; got != c.atFirst {
			t.Errorf("%s, at first: %s, want %s", c.apply, got, c.atFirst)
		}
		put(t, filepath.Join(root, ours), "options vfio_pci disable_denylist=Y\n")
		k.look(t, false)
		if got := recorded(t, root).Outcome; got != c.later {
			t.Errorf("%s, later: %s, want %s", c.apply, got, c.later)
		}
	}
}

func TestRunTellsEachStateOnce(t *testing.T) {
	root := image(t)
	k, said := keep(t, root, applyNever)
	k.look(t, true)
	if !strings.Contains(said.String(), "50-kata-vfio.conf is not as wanted") {
		t.Errorf("at first it says %s", said)
	}
	said.Reset()
	k.look(t, false)
	if said.Len() > 0 {
		t.Errorf("again it says %s", said)
	}
	k.apply = applyAlways
	k.look(t, false)
	if text := said.String(); !strings.Contains(text, "Done.") || !strings.Contains(text, "The node is as the blueprint says.") {
		t.Errorf("having mended it says %s", text)
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
	if _, err := os.Stat(filepath.Join(root, drift.File)); err == nil {
		t.Error("verify wrote a record that nobody asked for")
	}
	if _, stderr, code := try(t, "verify", "--record", "--root", root); code != exitChanges || recorded(t, root).Outcome != string(bootstrap.ChangesNeeded) {
		t.Errorf("code %d: %s", code, stderr)
	}
}

func TestWhoEntersTheNodeDoesSoOnce(t *testing.T) {
	for _, c := range []struct {
		args, want string
		blueprint  bool
	}{
		{"x run --enter-node", "x run --enter-node --enter-node=false", false},
		{"x run --enter-node -f /config/b.yaml", "x run --enter-node -f /config/b.yaml --enter-node=false --blueprint=-", true},
		{"x revert --enter-node -- /etc/x", "x revert --enter-node --enter-node=false -- /etc/x", false},
	} {
		if diff := cmp.Diff(strings.Fields(c.want), entered(strings.Fields(c.args), c.blueprint)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.args, diff)
		}
	}
}
