package lab

import (
	"strings"
	"testing"
)

func TestQuoteBeginsWithTheTrouble(t *testing.T) {
	const panicked = "[    9.1] Kernel panic - not syncing: corrupted stack end detected inside scheduler\n"
	after := strings.Repeat("[    9.2]  <TASK>\n", tailBytes)
	for name, tt := range map[string]struct{ log, begins, ends string }{
		"a short log":         {"booted\nready\n", "booted", "ready\n"},
		"the end of a log":    {strings.Repeat("x", tailBytes) + "ready", "x", "ready"},
		"a panic":             {"booted\n" + panicked + "Rebooting\n", "Kernel panic", "Rebooting\n"},
		"a panic's beginning": {"booted\n" + panicked + after, "Kernel panic", ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := string(quote([]byte(tt.log)))
			if len(got) > tailBytes || !strings.HasPrefix(got, tt.begins) || !strings.HasSuffix(got, tt.ends) {
				t.Errorf("%d bytes are quoted: %.60q … %q", len(got), got, got[max(0, len(got)-20):])
			}
		})
	}
}
