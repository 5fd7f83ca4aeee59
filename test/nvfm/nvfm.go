// Package nvfm builds a stub of NVIDIA's libnvfm.so.1 and the helper program that loads it. The stub has the library's
// functions, compares the sizes and versions of structures as fabric partitions' callers must have them, and has a file
// in place of Fabric Manager. Without [Variable] it asks the scripted Fabric Manager of a node (test/e2e/node/fabric-manager).
//
// Each line of the file is one of these:
//
//	partition ID ACTIVE MODULE...   a partition; ACTIVE is 0 or 1
//	gpu MODULE UUID BUSID           what a board of the A100 says of a GPU; other boards say nothing
//	waiting                         Fabric Manager was restarted, and waits for the list of active partitions
//	connect VERSION                 the version of the parameters that it connects with: 1 (default) or 2
//	fault CALL CODE                 the call returns the code; 1 hangs
//	lies                            activate and deactivate succeed, and change nothing
//	listed COUNT                    the count of partitions (or ports) in lists, whatever is there
//	gpusListed COUNT                the same of GPUs
//
// A file with the same name and .log has the calls.
package nvfm

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Variable is the environment variable that names the stub's file.
const Variable = "NVFM_STUB"

// H100 is the state of a board with the partitions of the H100, none of them active.
const H100 = `partition 0 0 1 2 3 4 5 6 7 8
partition 1 0 1 2 3 4
partition 2 0 5 6 7 8
partition 3 0 1 3
partition 4 0 2 4
partition 5 0 5 7
partition 6 0 6 8
partition 7 0 1
partition 8 0 2
partition 9 0 3
partition 10 0 4
partition 11 0 5
partition 12 0 6
partition 13 0 7
partition 14 0 8
`

// Built is what Build made.
type Built struct {
	// Helper is the helper program, and Library the stub. Both are files.
	Helper, Library string
}

// Build is Compile into a directory of the test. What fails, fails the test.
func Build(t testing.TB) Built {
	t.Helper()
	b, err := Compile(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Compile compiles the helper and the stub into a directory. It needs a C compiler, which scripts/setup.sh installs, and
// a working directory in this tree.
func Compile(ctx context.Context, dir string) (Built, error) {
	root, err := root()
	if err != nil {
		return Built{}, err
	}
	b := Built{Helper: filepath.Join(dir, "kata-vfio-fabric"), Library: filepath.Join(dir, "libnvfm.so.1")}
	source := filepath.Join(root, "test/nvfm/testdata/stub.c")
	if err := compile(exec.CommandContext(ctx, "cc", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", b.Library, source)); err != nil {
		return Built{}, err
	}
	helper := exec.CommandContext(ctx, "go", "build", "-o", b.Helper, "./cmd/kata-vfio-fabric")
	helper.Dir, helper.Env = root, append(os.Environ(), "CGO_ENABLED=1")
	return b, compile(helper)
}

func compile(cmd *exec.Cmd) error {
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%v: %w\n%s", cmd, err, out)
	}
	return nil
}

// root returns the directory of go.mod.
func root() (string, error) {
	begin, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := begin; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if filepath.Dir(dir) == dir {
			return "", fmt.Errorf("no directory above %s has a go.mod", begin)
		}
	}
}

// Write writes a state of the stub into the test's directory, and returns its file.
func Write(t testing.TB, state string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "state")
	if err := os.WriteFile(name, []byte(state), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// Calls returns the log of the stub's calls.
func Calls(t testing.TB, state string) string {
	t.Helper()
	log, err := os.ReadFile(state + ".log")
	if err != nil {
		t.Fatal(err)
	}
	return string(log)
}
