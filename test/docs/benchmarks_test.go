package docs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestTablesHaveTheBenchmarks: each benchmark is in the list of test/bench/README.md with its directory, and each one that a document names
// exists. A table whose benchmark is gone can't be measured again.
func TestTablesHaveTheBenchmarks(t *testing.T) {
	exist := benchmarks(t)
	text, err := os.ReadFile("../bench/README.md")
	if err != nil {
		t.Fatal(err)
	}
	name := regexp.MustCompile("`(Benchmark[A-Z][A-Za-z0-9]*)`")
	for _, m := range name.FindAllStringSubmatch(string(text), -1) {
		if len(exist[m[1]]) == 0 {
			t.Errorf("test/bench/README.md names %s, which does not exist", m[1])
		}
	}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 || !strings.HasPrefix(strings.TrimSpace(cells[1]), "`Benchmark") {
			continue
		}
		for _, m := range name.FindAllStringSubmatch(cells[1], -1) {
			for dir := range strings.SplitSeq(cells[2], "`") {
				if strings.Contains(dir, "/") && !slices.Contains(exist[m[1]], dir) {
					t.Errorf("test/bench/README.md lists %s in %s, which does not have it", m[1], dir)
				}
			}
			exist[m[1]] = slices.DeleteFunc(exist[m[1]], func(dir string) bool { return strings.Contains(cells[2], "`"+dir+"`") })
		}
	}
	for benchmark, dirs := range exist {
		if len(dirs) > 0 {
			t.Errorf("test/bench/README.md does not list %s of %s", benchmark, strings.Join(dirs, ", "))
		}
	}
}

// benchmarks returns the directories of each benchmark.
func benchmarks(t *testing.T) map[string][]string {
	t.Helper()
	declared := regexp.MustCompile(`(?m)^func (Benchmark[A-Z][A-Za-z0-9]*)\(b \*testing\.B\)`)
	all := map[string][]string{}
	for _, top := range []string{"pkg", "cmd", "test"} {
		err := filepath.WalkDir("../../"+top, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			dir := strings.TrimPrefix(filepath.ToSlash(filepath.Dir(path)), "../../")
			for _, m := range declared.FindAllStringSubmatch(string(text), -1) {
				all[m[1]] = append(all[m[1]], dir)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(all) < 10 {
		t.Fatalf("%d benchmarks are found, want those of the tree", len(all))
	}
	return all
}
