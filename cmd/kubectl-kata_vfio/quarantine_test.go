package main

import (
	"strings"
	"testing"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/audit/fleet"
)

// TestQuarantineOfANode: one that publishes no device is an error, and one without a quarantine has an empty list, not none.
func TestQuarantineOfANode(t *testing.T) {
	client := sample(t)
	for line, want := range map[string]struct {
		code int
		says string
	}{
		"quarantine worker-1":         {0, "no device is quarantined"},
		"quarantine worker-1 -o json": {0, `"quarantined": []`},
		"quarantine worker-2 -o json": {0, `"quarantinedFor": "Quarantined"`},
		"quarantine worker-9":         {exitNotFound, "node worker-9 that publishes devices"},
	} {
		stdout, stderr, code := ask(t, client, strings.Fields(line)...)
		if code != want.code || !strings.Contains(stdout+stderr, want.says) {
			t.Errorf("%s: got exit code %d and %q%q; want %d and %q", line, code, stdout, stderr, want.code, want.says)
		}
	}
}

// TestQuarantineByAnOlderPlugin, whose taint has no value, has the general code, and no age where the taint has no time.
func TestQuarantineByAnOlderPlugin(t *testing.T) {
	p := quarantinePicture([]fleet.Device{{Node: "n", Name: "gpu-0000-3b-00-0", Use: fleet.Quarantined}, {Name: "free", Use: fleet.Free}}, time.Now())
	if len(p.rows) != 1 || p.rows[0].cells[4].Text != "Quarantined" || p.rows[0].cells[5].Text != "-" {
		t.Errorf("got the rows %+v, want one with Quarantined and -", p.rows)
	}
}
