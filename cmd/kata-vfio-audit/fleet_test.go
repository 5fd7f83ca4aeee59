package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestFleetReadsWhatNodeWrites: a directory of reports becomes one page.
func TestFleetReadsWhatNodeWrites(t *testing.T) {
	report, _, _ := execute(t, "node", "-o", "json", "--node-name", "gpu-node-07", "--root", node(t).Root())
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "gpu-node-07.json"), []byte(report), 0o600); err != nil {
		t.Fatal(err)
	}
	for format, prefix := range map[string]string{"html": "<!DOCTYPE html>", "table": "NODE ", "json": "{\n", "yaml": "checks:"} {
		stdout, _, err := execute(t, "fleet", dir, "-o", format)
		if err != nil || !strings.HasPrefix(stdout, prefix) || !strings.Contains(stdout, "gpu-node-07") {
			t.Errorf("%s: err = %v, output begins %.80q", format, err, stdout)
		}
	}
	for _, args := range [][]string{{"fleet"}, {"fleet", filepath.Join(dir, "none")}, {"fleet", dir, "-o", "pdf"}, {"fleet", dir, "--from", "monday"}, {"fleet", dir, "--to", "2001-01-01"}} {
		if _, _, err := execute(t, args...); exitCode(err) != exitUsage {
			t.Errorf("%q: err = %v", args, err)
		}
	}
}
