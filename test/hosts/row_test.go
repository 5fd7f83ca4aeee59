package hosts_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// A row is a reported node and what the programs must say of it.
type row struct {
	Name string
	Node node
	Runs []run
	// Tests are those of other packages that cover the row, as "pkg/bind TestName": a tree of files can't show it.
	Tests []string
}

// A run is one command on the node. The runs of a row come one after the other, on the same tree.
type run struct {
	// Write are files that change before the command.
	Write map[string]string
	// Command is a program of the project with its arguments; --root is added.
	Command string
	// Live has the program take the tree for the running machine.
	Live bool
	// Want are words of the output, and Never words that must not be there. Spaces and line breaks are as good as each other.
	Want, Never []string
	// Code is the exit code.
	Code int
	// Leaves are files as the command must leave them.
	Leaves map[string]string
	// Wrong says how the program answers, where it does not answer as it must.
	Wrong string
}

// load returns the rows of testdata, by family.
func load(t *testing.T) map[string][]row {
	t.Helper()
	names, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(names) == 0 {
		t.Fatalf("no rows: %v", err)
	}
	families := map[string][]row{}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var file struct{ Rows []row }
		if err := yaml.Unmarshal(text, &file, yaml.DisallowUnknownFields); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		families[strings.TrimSuffix(filepath.Base(name), ".yaml")] = file.Rows
	}
	return families
}

// fold makes one line of a text.
func fold(text string) string { return strings.Join(strings.Fields(text), " ") }
