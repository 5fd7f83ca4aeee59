//go:build e2e

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/test/e2e/controlplane"
)

// A version that has a value more: who says nothing of it gets its default, by the flag that the README names and not by the one
// that people know.
func TestUpgradeToAVersionWithANewValue(t *testing.T) {
	p := installed(t)
	config, err := p.KubeconfigFile(controlplane.Admin(), "")
	if err != nil {
		t.Fatal(err)
	}
	next, err := otherVersion("99.0.0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(next) })
	for file, change := range map[string][2]string{
		"values.yaml":        {"metrics:\n", "future: true\nmetrics:\n"},
		"values.schema.json": {`  "required": [` + "\n" + `    "image",`, `  "required": [` + "\n" + `    "future",` + "\n" + `    "image",`},
	} {
		replaceIn(t, filepath.Join(next, file), change[0], change[1])
	}
	replaceIn(t, filepath.Join(next, "values.schema.json"), `  "properties": {`, `  "properties": {"future": {"type": "boolean"},`)
	upgrade := func(flag string) error {
		_, err := helm(t, "upgrade", release, next, "--namespace", system, "--kubeconfig", config, "--dry-run=server", flag)
		return err
	}
	if err := upgrade("--reuse-values"); err == nil || !strings.Contains(err.Error(), "missing property 'future'") {
		t.Errorf("--reuse-values: %v", err)
	}
	if err := upgrade("--reset-then-reuse-values"); err != nil {
		t.Error(err)
	}
}

// replaceIn replaces the first of some words in a file.
func replaceIn(t *testing.T, file, before, after string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil || !strings.Contains(string(text), before) {
		t.Fatalf("%s lacks %q: %v", file, before, err)
	}
	if err := os.WriteFile(file, []byte(strings.Replace(string(text), before, after, 1)), 0o644); err != nil {
		t.Fatal(err)
	}
}
