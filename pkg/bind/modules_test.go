package bind_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/bind"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
)

// fakeModprobe puts a modprobe first on PATH that notes its arguments in the
// returned file and then runs the script.
func fakeModprobe(t *testing.T, script string) (arguments string) {
	t.Helper()
	dir := t.TempDir()
	arguments = filepath.Join(dir, "arguments")
	text := "#!/bin/sh\necho \"$@\" > " + arguments + "\n" + script + "\n"
	if err := os.WriteFile(filepath.Join(dir, "modprobe"), []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	return arguments
}

// TestModprobeArguments: on the node itself its own modprobe is found by PATH.
func TestModprobeArguments(t *testing.T) {
	file := fakeModprobe(t, "exit 0")
	if err := (bind.Modprobe{Root: "/"}).Load(t.Context(), "vfio_pci"); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff("-- vfio_pci\n", string(got)); diff != "" {
		t.Errorf("arguments (-want +got):\n%s", diff)
	}
}

// TestModprobeFails: what modprobe says is in the error, on one line.
func TestModprobeFails(t *testing.T) {
	fakeModprobe(t, `echo "modprobe: FATAL: Module vfio_pci is blacklisted." >&2
echo "modprobe: and more" >&2
exit 1`)
	err := bind.Modprobe{Root: "/"}.Load(t.Context(), "vfio_pci")
	want := "modprobe vfio_pci: exit status 1: modprobe: FATAL: Module vfio_pci is blacklisted.; modprobe: and more"
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

// TestModprobeSaysNothing: a silent failure leaves no dangling colon.
func TestModprobeSaysNothing(t *testing.T) {
	fakeModprobe(t, "exit 3")
	err := bind.Modprobe{Root: "/"}.Load(t.Context(), "vfio_pci")
	if err == nil || err.Error() != "modprobe vfio_pci: exit status 3" {
		t.Errorf("got %v, want modprobe's exit status", err)
	}
}

// TestModulesWithoutModprobe: an image without kmod says what to do on the node.
func TestModulesWithoutModprobe(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	err := bind.Modprobe{Root: "/"}.Load(t.Context(), "vfio_pci")
	if err == nil || !strings.Contains(err.Error(), "load it on the node (modprobe vfio_pci)") {
		t.Errorf("got %v, want the way to load it on the node", err)
	}
}

// TestModprobeEndsWithTheContext: a modprobe that hangs is killed.
func TestModprobeEndsWithTheContext(t *testing.T) {
	fakeModprobe(t, "exec sleep 600")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := (bind.Modprobe{Root: "/"}).Load(ctx, "vfio_pci"); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
}

// TestLoadStep: the step is done when the module's driver is registered, under
// its own spelling.
func TestLoadStep(t *testing.T) {
	k, _, e := newNode(t)
	load := plan.Step{Operation: plan.Load, Value: "nvgrace_gpu_vfio_pci"}
	k.AddModule("nvgrace-gpu-vfio-pci", sysfstest.Driver{VFIO: true})
	do(t, e, load, load)
	k.AddModule("mdev", sysfstest.Driver{})
	do(t, e, plan.Step{Operation: plan.Load, Value: "mdev"})
}

// silent loads nothing and says nothing.
type silent struct{}

func (silent) Load(context.Context, string) error { return nil }

func TestLoadThatRegistersNothing(t *testing.T) {
	k, fs, _ := newNode(t)
	e := bind.New(fs, nil, silent{}, k.Exclude)
	err := e.Do(t.Context(), plan.Step{Operation: plan.Load, Value: "xe_vfio_pci"})
	if err == nil || !strings.Contains(err.Error(), "registered no PCI driver of its name") {
		t.Errorf("got %v, want an error that the module registered no driver", err)
	}
}
