package arch

import (
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	testNamed  = regexp.MustCompile("`((?:Test|Fuzz)[A-Za-z0-9_]+)`")
	testThere  = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)[A-Za-z0-9_]+)\(`)
	checkNamed = regexp.MustCompile(`\b[A-Z][A-Z0-9]+-\d{3}\b`)
	checkThere = regexp.MustCompile(`(?m)^### ([A-Z0-9]+-\d{3})$`)
)

// TestSecurityNamesWhatThereIs: what the threat model calls its evidence exists, and it leaves out no group of checks.
func TestSecurityNamesWhatThereIs(t *testing.T) {
	root := os.DirFS("../..")
	security := text(t, root, ".github/SECURITY.md")
	checks := all(checkThere, text(t, root, "pkg/audit/check/CATALOGUE.md"))
	named := checkNamed.FindAllString(security, -1)
	for _, id := range named {
		if !slices.Contains(checks, id) {
			t.Errorf("there is no check %s", id)
		}
	}
	for _, id := range checks {
		group, _, _ := strings.Cut(id, "-")
		if !slices.ContainsFunc(named, func(n string) bool { return strings.HasPrefix(n, group+"-") }) {
			t.Errorf("no check of the group %s is named", group)
		}
	}
	tests := testsOf(t, root)
	for _, name := range all(testNamed, security) {
		if !slices.Contains(tests, name) {
			t.Errorf("there is no test %s", name)
		}
	}
}

// testsOf are all tests of the tree.
func testsOf(t *testing.T, root fs.FS) (names []string) {
	t.Helper()
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path.Base(name), "_test.go") {
			return err
		}
		names = append(names, all(testThere, text(t, root, name))...)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func all(pattern *regexp.Regexp, text string) (found []string) {
	for _, m := range pattern.FindAllStringSubmatch(text, -1) {
		found = append(found, m[1])
	}
	return found
}

func text(t *testing.T, root fs.FS, name string) string {
	t.Helper()
	content, err := fs.ReadFile(root, name)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
