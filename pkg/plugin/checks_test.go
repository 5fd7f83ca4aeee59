package plugin

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const accepted = `waivers:
- rule: HOST-003
  scope: node
  reason: swap is on an encrypted disk
  author: ops
  until: 2999-01-01
`

// TestWaiversThatCantBeReadAreToldOnce: not once a minute, and again when something
// else is wrong.
func TestWaiversThatCantBeReadAreToldOnce(t *testing.T) {
	var log bytes.Buffer
	w := &waiverFile{path: filepath.Join(t.TempDir(), "waivers.yaml"), rules: []string{"HOST-003"}, log: slog.New(slog.NewTextHandler(&log, nil))}
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(w.path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	look := func(want, said int) {
		t.Helper()
		if got := w.read(t.Context()); len(got) != want {
			t.Errorf("accepted: %v, want %d", got, want)
		}
		if got := strings.Count(log.String(), "level=WARN"); got != said {
			t.Errorf("told %d times, want %d:\n%s", got, said, log.String())
		}
	}
	look(0, 1)
	look(0, 1)
	write("waivers: [")
	look(0, 2)
	look(0, 2)
	write(accepted)
	look(1, 2)
	write("waivers: [")
	look(0, 3)
	if err := os.Remove(w.path); err != nil {
		t.Fatal(err)
	}
	w.optional = true
	look(0, 3)
}
