package arch

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"iter"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// A goFile is a file of Go code, with its path in the tree.
type goFile struct {
	path string
	*ast.File
	files *token.FileSet
}

func (f *goFile) isTest() bool { return strings.HasSuffix(f.path, "_test.go") }

// at returns the line of the code at a position.
func (f *goFile) at(pos token.Pos) string {
	return fmt.Sprintf("%s:%d", f.path, f.files.Position(pos).Line)
}

// code returns the files of Go code in folders of the tree.
func code(t *testing.T, folders ...string) iter.Seq[*goFile] {
	t.Helper()
	all, err := syntax()
	if err != nil {
		t.Fatal(err)
	}
	return func(yield func(*goFile) bool) {
		for i := range all {
			top, _, _ := strings.Cut(all[i].path, "/")
			if slices.Contains(folders, top) && !yield(&all[i]) {
				return
			}
		}
	}
}

// syntax parses the tree's files once for all tests, which only read them.
var syntax = sync.OnceValues(func() (all []goFile, err error) {
	root, files := os.DirFS("../.."), token.NewFileSet()
	for _, top := range []string{"cmd", "pkg", "test"} {
		walk := fs.WalkDir(root, top, func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || path.Ext(name) != ".go" {
				return err
			}
			source, err := fs.ReadFile(root, name)
			if err != nil {
				return err
			}
			file, err := parser.ParseFile(files, name, source, parser.ParseComments|parser.SkipObjectResolution)
			all = append(all, goFile{name, file, files})
			return err
		})
		err = errors.Join(err, walk)
	}
	return all, err
})

// TestNamesAreNouns refuses names such as deviceOf: a noun, such as plannedDevice, says what a function returns, a type is and a field has.
func TestNamesAreNouns(t *testing.T) {
	dangling := regexp.MustCompile(`[a-z]Of$`)
	// The annotations twin-of and drain-of, and the field companionOf of a report, are names that users have already.
	kept := []string{"AnnotationTwinOf", "TwinOf", "AnnotationDrainOf", "CompanionOf"}
	for file := range code(t, "cmd", "pkg") {
		for _, name := range declared(file.File) {
			if !file.isTest() && dangling.MatchString(name.Name) && !slices.Contains(kept, name.Name) {
				t.Errorf("%s: %s: name it by a noun that says what it is", file.at(name.Pos()), name.Name)
			}
		}
	}
}

// TestNoImportIsShadowed refuses a variable, parameter or receiver that has the name of a package that its file imports.
func TestNoImportIsShadowed(t *testing.T) {
	for file := range code(t, "cmd", "pkg", "test") {
		imports := importNames(file.File)
		for _, name := range variables(file.File) {
			if imported, ok := imports[name.Name]; ok {
				t.Errorf("%s: the variable %s hides the import of %s: name it otherwise", file.at(name.Pos()), name.Name, imported)
			}
		}
	}
}

// importNames returns the paths of the packages that a file imports, by the names that it has for them.
func importNames(file *ast.File) map[string]string {
	major := regexp.MustCompile(`/v\d+$`) // of a module's path
	names := map[string]string{}
	for _, spec := range file.Imports {
		imported := strings.Trim(spec.Path.Value, `"`)
		name := path.Base(major.ReplaceAllString(imported, ""))
		if spec.Name != nil {
			name = spec.Name.Name
		}
		names[name] = imported
	}
	delete(names, "_")
	delete(names, ".")
	return names
}

// variables returns the names of a file's variables, constants, parameters, results and receivers. Fields are named with a selector, so that
// they hide nothing.
func variables(file *ast.File) []*ast.Ident {
	var names []*ast.Ident
	add := func(exprs ...ast.Expr) {
		for _, e := range exprs {
			if name, ok := e.(*ast.Ident); ok {
				names = append(names, name)
			}
		}
	}
	addFields := func(lists ...*ast.FieldList) {
		for _, l := range lists {
			if l == nil {
				continue
			}
			for _, f := range l.List {
				names = append(names, f.Names...)
			}
		}
	}
	for n := range ast.Preorder(file) {
		switch n := n.(type) {
		case *ast.FuncDecl:
			addFields(n.Recv)
		case *ast.FuncType:
			addFields(n.Params, n.Results)
		case *ast.ValueSpec:
			names = append(names, n.Names...)
		case *ast.AssignStmt:
			if n.Tok == token.DEFINE {
				add(n.Lhs...)
			}
		case *ast.RangeStmt:
			if n.Tok == token.DEFINE {
				add(n.Key, n.Value)
			}
		}
	}
	return names
}
