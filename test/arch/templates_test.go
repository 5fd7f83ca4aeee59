package arch

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestTemplatesAreLinkedByReportsOnly keeps html/template out of the commands as the Makefile builds them. It calls methods by
// name, so that the linker keeps every exported method of every type: a third of the plugin's size.
func TestTemplatesAreLinkedByReportsOnly(t *testing.T) {
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	tags := regexp.MustCompile(`(?m)^TAGS := (\S+)$`).FindSubmatch(makefile)
	if tags == nil {
		t.Fatal("the Makefile has no line `TAGS := ...`")
	}
	for _, name := range []string{"kata-vfio-plugin", "kata-vfio-controller", "kata-vfio-bootstrap", "kata-vfio-guestnet", "kubectl-kata_vfio"} {
		cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-tags", string(tags[1]), "./cmd/"+name)
		cmd.Dir = "../.."
		deps, err := cmd.Output()
		if err != nil {
			t.Fatalf("go list of %s: %v", name, err)
		}
		if slices.Contains(strings.Fields(string(deps)), "html/template") {
			t.Errorf("%s links html/template", name)
		}
	}
}
