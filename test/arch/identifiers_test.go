package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// parseEach calls check with each Go file below the folders.
func parseEach(t *testing.T, folders []string, check func(*token.FileSet, *ast.File)) {
	t.Helper()
	for _, top := range folders {
		err := filepath.WalkDir(filepath.Join("../..", top), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || filepath.Ext(path) != ".go" {
				return err
			}
			files := token.NewFileSet()
			file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
			if err == nil {
				check(files, file)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestNamesAreNouns refuses names such as deviceOf: a noun, such as plannedDevice, says what a function returns, a type is and a field has.
func TestNamesAreNouns(t *testing.T) {
	dangling := regexp.MustCompile(`[a-z]Of$`)
	// The annotations twin-of and drain-of, and the field companionOf of a report, are names that users have already.
	kept := []string{"AnnotationTwinOf", "TwinOf", "AnnotationDrainOf", "CompanionOf"}
	parseEach(t, []string{"cmd", "pkg"}, func(files *token.FileSet, file *ast.File) {
		if strings.HasSuffix(files.Position(file.Pos()).Filename, "_test.go") {
			return
		}
		for _, name := range declared(file) {
			if dangling.MatchString(name.Name) && !slices.Contains(kept, name.Name) {
				t.Errorf("%s: %s: name it by a noun that says what it is", files.Position(name.Pos()), name.Name)
			}
		}
	})
}
