package main

import (
	"strings"
	"testing"
)

// What bootstrap did is in the bundle, with credentials and names out of the blueprint that its journal quotes, and without its backups.
func TestGatherHasWhatBootstrapDid(t *testing.T) {
	tree := plantedNode(t)
	tree.Put("var/lib/kata-vfio/bootstrap/journal.json", `{"sum":"x","journal":{"version":1,"blueprint":"# for acme-prod\\ntoken: `+secretWord+`\\nname: pool\\n","entries":[{"path":"etc/modprobe.d/50-kata-vfio.conf"}]}}`)
	tree.Put("var/lib/kata-vfio/bootstrap/verified.json", `{"version":1,"outcome":"fit","differences":[]}`)
	tree.Put("var/lib/kata-vfio/bootstrap/backups/abc", "password = "+secretWord)
	for _, args := range [][]string{nil, {"--mask"}} {
		files, _ := gathered(t, tree.Root(), args...)
		journal := files["bootstrap/journal.json"]
		if !strings.Contains(journal, "50-kata-vfio.conf") || !strings.Contains(files["bootstrap/verified.json"], `"fit"`) {
			t.Errorf("%v: the journal is %q, the record %q", args, journal, files["bootstrap/verified.json"])
		}
		if strings.Contains(journal, secretWord) || strings.Contains(journal, "acme-prod") != (args == nil) {
			t.Errorf("%v: the journal is %s", args, journal)
		}
		for name, text := range files {
			if strings.Contains(name, "backups") || strings.Contains(text, secretWord) {
				t.Errorf("%v: %s has %q", args, name, text)
			}
		}
	}
}
