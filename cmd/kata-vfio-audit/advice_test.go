package main

import (
	"cmp"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// subcommands are those of a command of ours, by its sources: another program's main package can't be imported.
func subcommands(t *testing.T, program string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", program, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("sources of %s: %v, %v", program, files, err)
	}
	use := regexp.MustCompile(`Use:\s+"([a-z-]+)`)
	var names []string
	for _, name := range files {
		source, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range use.FindAllSubmatch(source, -1) {
			names = append(names, string(m[1]))
		}
	}
	return names
}

// TestCommandsInAdviceExist: who follows the advice of a check finds the command that it names.
func TestCommandsInAdviceExist(t *testing.T) {
	texts := map[string]string{}
	all, err := rule.ReadCatalogue()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range all.Rules {
		texts[r.ID] = r.Fix + "\n" + r.Verify
	}
	for _, name := range []string{"advice.go", "moments.go", "audits.go", "explain.go"} { // what the kubectl plugin says
		source, err := os.ReadFile(filepath.Join("../../pkg/audit/fleet", name))
		if err != nil {
			t.Fatal(err)
		}
		texts[name] = string(source)
	}
	programs := map[string]string{"kubectl kata-vfio": "kubectl-kata_vfio"}
	groups := []string{"quarantine", "journal", "ledger"} // commands that have commands
	named := regexp.MustCompile(`\b(kata-vfio-(?:audit|plugin|bootstrap)|kubectl kata-vfio) ([a-z]+)(?: ([a-z-]+))?`)
	found := 0
	for _, id := range slices.Sorted(maps.Keys(texts)) {
		for _, m := range named.FindAllStringSubmatch(texts[id], -1) {
			found++
			program := cmp.Or(programs[m[1]], m[1])
			has := subcommands(t, program)
			if !slices.Contains(has, m[2]) || slices.Contains(groups, m[2]) && !slices.Contains(has, m[3]) {
				t.Errorf("%s names `%s`, and there is no such command", id, m[0])
			}
		}
	}
	if found < 10 {
		t.Errorf("%d commands of ours are named: the test looks for something else", found)
	}
}
