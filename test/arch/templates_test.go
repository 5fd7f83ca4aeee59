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
	args := []string{"list", "-tags", string(tags[1]), "-f", `{{.ImportPath}} {{join .Deps " "}}`}
	for _, name := range []string{"kata-vfio-plugin", "kata-vfio-controller", "kata-vfio-bootstrap", "kata-vfio-guestnet", "kata-vfio-sanitize", "kubectl-kata_vfio"} {
		args = append(args, "./cmd/"+name)
	}
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = "../.."
	list, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	programs := strings.Split(strings.TrimSpace(string(list)), "\n")
	if len(programs) != 6 {
		t.Fatalf("go list names %d programs", len(programs))
	}
	for _, program := range programs {
		if packages := strings.Fields(program); slices.Contains(packages[1:], "html/template") {
			t.Errorf("%s links html/template", packages[0])
		}
	}
}
