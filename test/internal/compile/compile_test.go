package compile_test

import (
	"debug/elf"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/test/internal/compile"
)

func TestProgramNeedsNothing(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "container")
	if err := compile.Static(t.Context(), "github.com/kata-vfio/kata-vfio/test/e2e/node/container", binary); err != nil {
		t.Fatal(err)
	}
	f, err := elf.Open(binary)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if f.Machine != elf.EM_X86_64 || f.Section(".interp") != nil {
		t.Errorf("it is for %s, with the interpreter %v", f.Machine, f.Section(".interp"))
	}
}

func TestPackageThatIsNotThereIsNamed(t *testing.T) {
	err := compile.Static(t.Context(), "github.com/kata-vfio/kata-vfio/nothing", filepath.Join(t.TempDir(), "x"))
	if err == nil || !strings.Contains(err.Error(), "compile github.com/kata-vfio/kata-vfio/nothing: exit status 1") {
		t.Errorf("got %v", err)
	}
}
