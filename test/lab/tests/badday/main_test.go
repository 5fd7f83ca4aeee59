//go:build lab

// Package badday_test lets a real kernel refuse, hang and take away, and checks that each time there is one clear error
// and nothing is left half done.
package badday_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/node"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
	"github.com/kata-vfio/kata-vfio/test/lab/tests/crash/victim"
	"github.com/kata-vfio/kata-vfio/test/lab/tests/stage"
	"github.com/kata-vfio/kata-vfio/test/lab/topology"
)

const uid = "0f8fad5b"

func TestMain(m *testing.M) { victim.Main(m) }

// openFS opens the machine for reading, as long as the test runs.
func openFS(t *testing.T) *sysfs.FS {
	t.Helper()
	fs, err := sysfs.Open("/")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = fs.Close() })
	return fs
}

// refusedBy runs a command that must fail, and returns what it says.
func refusedBy(t *testing.T, cmd *exec.Cmd) error {
	t.Helper()
	out, err := cmd.CombinedOutput()
	if err == nil {
		t.Fatalf("%s came to its end: %s", cmd, out)
	}
	return errors.New(string(bytes.TrimSpace(out)))
}

// oneLine checks that an error is told once.
func oneLine(t *testing.T, err error, phrase string) {
	t.Helper()
	if n := strings.Count(err.Error(), phrase); n != 1 || strings.Contains(err.Error(), "\n") {
		t.Errorf("%d times %q, want one line that says it once: %v", n, phrase, err)
	}
}

// TestReadOnlySys prepares in a mount namespace whose /sys is read-only, as in a container that is not privileged.
func TestReadOnlySys(t *testing.T) {
	before := stage.Bindings(t)
	n := stage.Open(t, stage.Config())
	cmd, err := victim.Command(t.Context(), victim.Orders{Act: victim.Prepare, UID: uid, Addresses: []string{topology.GPU0}})
	if err != nil {
		t.Fatal(err)
	}
	inside := exec.CommandContext(t.Context(), "unshare", "--mount", "sh", "-c", `mount -o remount,ro,bind /sys && exec "$0"`, cmd.Path)
	inside.Env = cmd.Env
	err = refusedBy(t, inside)
	stage.Says(t, err, topology.GPU0, "read-only file system", "mount it read-write")
	oneLine(t, err, "mount it read-write")
	stage.Unchanged(t, before)
	stage.Empty(t, n)
}

// TestBadDayWithoutRoot prepares as the user nobody, with directories of that user and with the default ones.
func TestBadDayWithoutRoot(t *testing.T) {
	before := stage.Bindings(t)
	stage.Open(t, stage.Config())
	own := stateOf(t, "nobody")
	for _, dir := range []string{own.StateDir, own.RunDir, own.CDIDir} {
		if err := os.MkdirAll("/"+dir, 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown("/"+dir, 65534, 65534); err != nil {
			t.Fatal(err)
		}
	}
	for name, tt := range map[string]struct {
		places victim.Places
		words  []string
	}{
		"directories of its own": {own, []string{"needs root", "CAP_SYS_PTRACE"}},
		"the usual directories":  {victim.Places{}, []string{"/" + node.DefaultStateDir, "permission denied"}},
	} {
		t.Run(name, func(t *testing.T) {
			cmd, err := victim.Command(t.Context(), victim.Orders{
				Act: victim.Prepare, UID: uid, Addresses: []string{topology.GPU0}, Config: tt.places,
			})
			if err != nil {
				t.Fatal(err)
			}
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
			err = refusedBy(t, cmd)
			stage.Says(t, err, tt.words...)
			oneLine(t, err, "permission denied")
			stage.Unchanged(t, before)
		})
	}
}

// stateFact are places of its own for a test, below /tmp.
func stateOf(t *testing.T, name string) victim.Places {
	t.Helper()
	dir, err := os.MkdirTemp("", name)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	dir = strings.TrimPrefix(dir, "/")
	return victim.Places{StateDir: dir + "/state", RunDir: dir + "/run", CDIDir: dir + "/cdi"}
}
