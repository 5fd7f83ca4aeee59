package bind_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/bind"
)

// modprobe is a program that notes in /said how it was run, and fails with the
// words of /complaint if there are any.
const modprobe = `package main

import (
	"os"
	"strings"
)

func main() {
	dir, _ := os.Getwd()
	lines := []string{strings.Join(os.Args, " "), strings.Join(os.Environ(), " "), dir, ""}
	if err := os.WriteFile("/said", []byte(strings.Join(lines, "\n")), 0o644); err != nil {
		panic(err)
	}
	if words, err := os.ReadFile("/complaint"); err == nil {
		os.Stderr.Write(words)
		os.Exit(1)
	}
}
`

// nodeRoot is another root than ours, in which the kernel's modprobe is a
// program of its own, as a container sees the node's.
func nodeRoot(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	put(t, root, "main.go", modprobe)
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", "nix/bin/modprobe", "main.go")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // the root has no libraries
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build modprobe: %v, want nil: %s", err, out)
	}
	put(t, root, "proc/sys/kernel/modprobe", "/nix/bin/modprobe\n")
	return root
}

func put(t *testing.T, root, name, text string) {
	t.Helper()
	path := filepath.Join(root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestNodesModprobeRunsInTheNodesRoot: it is the one that the kernel runs,
// and sees neither our PATH nor our working directory.
func TestNodesModprobeRunsInTheNodesRoot(t *testing.T) {
	root := nodeRoot(t)
	ours := fakeModprobe(t, "exit 0")
	t.Setenv("MODPROBE_OPTIONS", "--force")
	if err := (bind.Modprobe{Root: root}).Load(t.Context(), "vfio_pci"); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(root, "said"))
	if err != nil {
		t.Fatal(err)
	}
	want := "/nix/bin/modprobe -- vfio_pci\nHOME=/ TERM=linux PATH=/sbin:/usr/sbin:/bin:/usr/bin\n/\n"
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("how it was run (-want +got):\n%s", diff)
	}
	if _, err := os.Stat(ours); err == nil {
		t.Error("our own modprobe was run")
	}
}

func TestNodesModprobeFails(t *testing.T) {
	root := nodeRoot(t)
	put(t, root, "complaint", "modprobe: ERROR: Error running install command '/bin/false'\n")
	err := bind.Modprobe{Root: root}.Load(t.Context(), "vfio_pci")
	want := "modprobe vfio_pci: exit status 1: modprobe: ERROR: Error running install command '/bin/false'"
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

// TestNodeThatLoadsNoModules: what the node does not have or its administrator
// has taken away says what to do there.
func TestNodeThatLoadsNoModules(t *testing.T) {
	for name, tt := range map[string]struct{ sysctl, want string }{
		"switched off":    {"\n", `sysctl kernel.modprobe is ""`},
		"not a path":      {"modprobe\n", `sysctl kernel.modprobe is "modprobe"`},
		"no such program": {"/sbin/nothing\n", "there is no modprobe here"},
		"no proc":         {"", "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			if tt.sysctl != "" {
				put(t, root, "proc/sys/kernel/modprobe", tt.sysctl)
			}
			err := bind.Modprobe{Root: root}.Load(t.Context(), "vfio_pci")
			if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "load it on the node (modprobe vfio_pci)") {
				t.Errorf("got %v, want %q and the way out", err, tt.want)
			}
		})
	}
}

// TestProgramThatMayNotRun: the error names the privilege that is missing.
func TestProgramThatMayNotRun(t *testing.T) {
	root := t.TempDir()
	put(t, root, "sbin/modprobe", "not executable")
	put(t, root, "proc/sys/kernel/modprobe", "/sbin/modprobe\n")
	err := bind.Modprobe{Root: root}.Load(t.Context(), "vfio_pci")
	if err == nil || !strings.Contains(err.Error(), "CAP_SYS_CHROOT") {
		t.Errorf("got %v, want an error that names CAP_SYS_CHROOT", err)
	}
}
