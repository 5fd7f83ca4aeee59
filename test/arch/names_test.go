package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// replaced are words that the project's names once had, and the term of the glossary (pkg/README.md) that replaced each.
func replaced() map[string]string {
	return map[string]string{
		"anew": "again", "booked": "record", "books": "records", "cleanse": "reset", "footprint": "assignment set",
		"hear": "apply, add", "impose": "configure", "imposed": "configured", "leak": "bypass", "leaks": "bypasses", "meeting": "shared domain",
		"meetings": "shared domains", "mend": "repair, fix", "mended": "repaired", "mends": "repairs", "standing": "bound", "stray": "orphan",
		"strays": "orphans", "tell": "report, record", "tells": "reports, shows", "told": "reported, replay", "unclean": "needs reset",
	}
}

var word = regexp.MustCompile(`[A-Z]?[a-z]+|[A-Z]+`)

// TestNamesAreOfTheGlossary looks at each name that a package declares: types, functions, methods, fields, constants.
func TestNamesAreOfTheGlossary(t *testing.T) {
	banned, files := replaced(), token.NewFileSet()
	for _, top := range []string{"cmd", "pkg"} {
		err := filepath.WalkDir(filepath.Join("../..", top), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			for _, name := range declared(file) {
				for _, w := range word.FindAllString(name.Name, -1) {
					if instead, ok := banned[strings.ToLower(w)]; ok {
						t.Errorf("%s: %s: say %q instead of %q", files.Position(name.Pos()), name.Name, instead, strings.ToLower(w))
					}
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// declared returns the names that a file declares outside functions' bodies.
func declared(file *ast.File) []*ast.Ident {
	var names []*ast.Ident
	for _, d := range file.Decls {
		ast.Inspect(d, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				names = append(names, n.Name)
				return false
			case *ast.TypeSpec:
				names = append(names, n.Name)
			case *ast.ValueSpec:
				names = append(names, n.Names...)
			case *ast.Field:
				names = append(names, n.Names...)
			}
			return true
		})
	}
	return names
}
