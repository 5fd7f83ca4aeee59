package scripted_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/test/board"
	"github.com/kata-vfio/kata-vfio/test/docs"
)

const bootstrapREADME = "cmd/kata-vfio-bootstrap/README.md"

// The first commands of a platform engineer. Between apply and verify is the reboot that apply asks for.
func TestBootstrapBegins(t *testing.T) {
	m := newMachine(t, board.IdleHGX(t, 0), kata())
	steps := docs.Steps(t, bootstrapREADME, "")
	if len(steps) != 1 {
		t.Fatalf("the document begins with %d blocks", len(steps))
	}
	var all strings.Builder
	codes := map[string]string{"plan": "3", "apply": "4", "revert": "4"}
	for line := range strings.Lines(steps[0].Command) {
		out, failed := m.Node.Run(line)
		all.WriteString(out)
		words := strings.Fields(line)
		if code, command := codes[words[1]], strings.Join(words[:2], " "); code != "" && !slices.Equal(failed, []string{code + ": " + command}) || code == "" && failed != nil {
			t.Errorf("%q fails with %q:\n%s", command, failed, out)
		}
		if words[1] == "apply" {
			m.boot()
		}
	}
	if steps[0].Output == "" {
		t.Error("the document does not show what the commands print")
	}
	if err := docs.Match(steps[0].Output, all.String()); err != nil {
		t.Error(err)
	}
}
