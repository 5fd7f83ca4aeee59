package scratch_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kata-vfio/kata-vfio/test/internal/scratch"
)

const prefix = "kata-vfio-test-"

func TestScratchSweepsDirectoriesOfDeadProcessesOnly(t *testing.T) {
	parent := t.TempDir()
	dead := exec.CommandContext(t.Context(), "true")
	if err := dead.Run(); err != nil {
		t.Fatal(err)
	}
	kept := []string{
		filepath.Join(parent, fmt.Sprintf("%s%d-1", prefix, os.Getpid())),
		filepath.Join(parent, prefix+"mine-1"),
		filepath.Join(parent, fmt.Sprintf("other-%d-1", dead.Process.Pid)),
	}
	for _, dir := range append(kept, filepath.Join(parent, fmt.Sprintf("%s%d-1", prefix, dead.Process.Pid))) {
		if err := os.MkdirAll(filepath.Join(dir, "full"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	made, err := scratch.New(parent, prefix)
	if err != nil {
		t.Fatal(err)
	}
	got, err := filepath.Glob(filepath.Join(parent, "*"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(append(kept, made), got, cmpopts.SortSlices(strings.Compare)); diff != "" {
		t.Errorf("the directories differ (-want +got):\n%s", diff)
	}
}
