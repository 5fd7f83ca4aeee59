package arch

import (
	"io/fs"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"
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
