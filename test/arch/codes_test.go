package arch

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// TestCodesAreDeclaredOnce: a code that a binary says is a constant of pkg/rule, which has a text for each. Elsewhere no literal makes
// one, be it for a verdict, or for the reason of a condition or an Event.
func TestCodesAreDeclaredOnce(t *testing.T) {
	literal := regexp.MustCompile(`\bCode: +"[A-Z]|\brule\.Code\("|WithReason\("|\bReason: +"[A-Z][a-z]+[A-Z]`)
	root := os.DirFS("../..")
	for _, top := range []string{"cmd", "pkg"} {
		err := fs.WalkDir(root, top, func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || path.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") {
				return err
			}
			source, err := fs.ReadFile(root, name)
			if err != nil {
				return err
			}
			for i, line := range strings.Split(string(source), "\n") {
				if literal.MatchString(line) {
					t.Errorf("%s:%d makes a code: %s; declare it in pkg/rule/codes.go, and explain it in texts.yaml", name, i+1, strings.TrimSpace(line))
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestLedgerKindsAreCodes: `explain` knows each kind of a ledger's fault. They are written out, because package ledger promises them.
func TestLedgerKindsAreCodes(t *testing.T) {
	texts, err := rule.Texts()
	if err != nil {
		t.Fatal(err)
	}
	kinds := regexp.MustCompile(`(?m)^\t\w+ +Kind += +"(\w+)"$`).FindAllStringSubmatch(text(t, os.DirFS("../.."), "pkg/ledger/verify.go"), -1)
	if len(kinds) < 7 {
		t.Fatalf("got %d kinds, want 7 at least", len(kinds))
	}
	for _, kind := range kinds {
		if found, ok := rule.Find(texts, kind[1]); !ok || string(found.Code) != kind[1] {
			t.Errorf("kind %s: got the text %+v, want one of its own in texts.yaml", kind[1], found)
		}
	}
}

// gates are the packages whose tests plant the faults that each point refuses.
func gates() map[rule.EnforcementPoint][]string {
	core := []string{"pkg/claim", "pkg/isolation", "pkg/nodeconfig", "pkg/plan", "pkg/plugin", "pkg/prepare"}
	return map[rule.EnforcementPoint][]string{
		rule.AtPublish:   append([]string{"pkg/facts", "pkg/publish", "cmd/kata-vfio-audit"}, core...),
		rule.AtPrepare:   core,
		rule.AtSandbox:   {"pkg/plugin/nri"},
		rule.AtContainer: {"pkg/plugin/nri"},
		rule.AtRelease:   core,
	}
}

// TestEnforcedCodesHaveTests: the tests of a gate plant the fault of each code whose text says that the gate refuses. They hold the codes
// that it returns against the texts (package ruletest). The API server's policies have a test of their own, in test/chart.
func TestEnforcedCodesHaveTests(t *testing.T) {
	texts, err := rule.Texts()
	if err != nil {
		t.Fatal(err)
	}
	for point, dirs := range gates() {
		source := testSource(t, dirs)
		for _, text := range texts {
			// A constant, or what a user sees of it: the reason of a condition, or the value of a taint.
			named := regexp.MustCompile(`\brule\.` + string(text.Code) + `\b|"([a-z-]+=)?` + string(text.Code) + `"`)
			if slices.Contains(text.Enforced, point) && !named.MatchString(source) {
				t.Errorf("the text of %s says that it is refused at %s; got no test of %v with it, want one that plants the fault", text.Code, point, dirs)
			}
		}
	}
}

// testSource is the text of all tests in directories of the tree.
func testSource(t *testing.T, dirs []string) string {
	t.Helper()
	var all strings.Builder
	for _, dir := range dirs {
		err := filepath.WalkDir(filepath.Join("../..", dir), func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(name, "_test.go") {
				return err
			}
			source, err := os.ReadFile(name)
			all.Write(source)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all.String()
}
