package main

import "testing"

// TestTemplate: what template prints, the same each time, and changes nothing.
func TestTemplate(t *testing.T) {
	root := newRoot(t)
	before := tree(t, root)
	for format, file := range map[string]string{"table": "template.txt", "yaml": "template.yaml"} {
		got := invoke(t, "template", "--root", root, "-o", format)
		if got.code != 0 {
			t.Errorf("exit code %d: %s", got.code, got.stderr)
		}
		golden(t, file, got.stdout)
	}
	if got := invoke(t, "template", "--root", t.TempDir()); got.code == 0 {
		t.Errorf("a tree without a node: %+v", got)
	}
	if after := tree(t, root); len(after) != len(before) {
		t.Error("template changed the node")
	}
}
