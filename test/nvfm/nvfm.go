// Package nvfm builds a stub of NVIDIA's libnvfm.so.1 and the helper program that loads it. The stub has the library's
// functions, compares the sizes and versions of structures as fabric partitions' callers must have them, and has a file
// in place of Fabric Manager.
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

// Build compiles the helper and the stub into a directory of the test. A machine without a C compiler fails the test:
// scripts/setup.sh installs one.
func Build(t testing.TB) Built {
	t.Helper()
	dir := t.TempDir()
	b := Built{Helper: filepath.Join(dir, "kata-vfio-fabric"), Library: filepath.Join(dir, "libnvfm.so.1")}
	source := filepath.Join(root(t), "test/nvfm/testdata/stub.c")
	compile(t, exec.CommandContext(t.Context(), "cc", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", b.Library, source))
	helper := exec.CommandContext(t.Context(), "go", "build", "-o", b.Helper, "./cmd/kata-vfio-fabric")
	helper.Dir, helper.Env = root(t), append(os.Environ(), "CGO_ENABLED=1")
	compile(t, helper)
	return b
}

func compile(t testing.TB, cmd *exec.Cmd) {
	t.Helper()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, out)
	}
}

// root returns the directory of go.mod.
func root(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		if filepath.Dir(dir) == dir {
			t.Fatal("no directory above the test has a go.mod")
		}
		dir = filepath.Dir(dir)
	}
}

// Write writes a state of the stub into the test's directory, and returns its file.
func Write(t testing.TB, state string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "state")
	if err := os.WriteFile(name, []byte(state), 0o600); err != nil { //nolint:forbidigo // a file of a test, not of sysfs
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
