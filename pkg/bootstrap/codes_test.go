package bootstrap_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// TestEachProblemHasACode: no source of bootstrap makes a problem without a code, which `explain` describes.
func TestEachProblemHasACode(t *testing.T) {
	made := 0
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			for _, literal := range problems(n) {
				made++
				if !hasCode(literal) {
					t.Errorf("%s: a problem without a code, want the field Code", files.Position(literal.Pos()))
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if made < 60 {
		t.Errorf("found %d problems, want 60 at least: the walk does not see them", made)
	}
}

// problems returns the problems that an expression makes: itself, or the elements of a list that leave out their type. The zero value
// stands for no problem.
func problems(n ast.Node) []*ast.CompositeLit {
	literal, ok := n.(*ast.CompositeLit)
	if !ok || len(literal.Elts) == 0 {
		return nil
	}
	if isProblem(literal.Type) {
		return []*ast.CompositeLit{literal}
	}
	list, ok := literal.Type.(*ast.ArrayType)
	if !ok || !isProblem(list.Elt) {
		return nil
	}
	var all []*ast.CompositeLit
	for _, element := range literal.Elts {
		if one, ok := element.(*ast.CompositeLit); ok && one.Type == nil {
			all = append(all, one)
		}
	}
	return all
}

// isProblem reports whether an expression is the type state.Problem.
func isProblem(e ast.Expr) bool {
	selector, ok := e.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	in, ok := selector.X.(*ast.Ident)
	return ok && in.Name == "state" && selector.Sel.Name == "Problem"
}

// hasCode reports whether a literal sets the field Code to something else than an empty text.
func hasCode(literal *ast.CompositeLit) bool {
	for _, element := range literal.Elts {
		pair, ok := element.(*ast.KeyValueExpr)
		if !ok {
			return false
		}
		if key, ok := pair.Key.(*ast.Ident); ok && key.Name == "Code" {
			text, literal := pair.Value.(*ast.BasicLit)
			return !literal || text.Value != `""`
		}
	}
	return false
}
