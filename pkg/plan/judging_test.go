package plan

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// TestJudgingChangesNothing: no method of a candidate assigns to it, so that a check can't fill in the plan, and none depends on which
// check ran before it.
func TestJudgingChangesNothing(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	methods, fset := 0, token.NewFileSet()
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(fset, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range file.Decls {
			method, ok := decl.(*ast.FuncDecl)
			if !ok || receiver(method) == "" {
				continue
			}
			methods++
			for _, at := range assignments(method) {
				t.Errorf("%s: %s assigns to its candidate, want a method that only reads it", fset.Position(at), method.Name.Name)
			}
		}
	}
	if methods < len(presence())+len(checks()) {
		t.Errorf("found %d methods of candidate, want %d at least", methods, len(presence())+len(checks()))
	}
}

// receiver returns the name of the receiver of a method of candidate; empty for other functions.
func receiver(f *ast.FuncDecl) string {
	if f.Recv == nil || len(f.Recv.List[0].Names) == 0 {
		return ""
	}
	star, ok := f.Recv.List[0].Type.(*ast.StarExpr)
	if !ok {
		return ""
	}
	if name, ok := star.X.(*ast.Ident); !ok || name.Name != "candidate" {
		return ""
	}
	return f.Recv.List[0].Names[0].Name
}

// assignments returns where a method assigns to its receiver or to what hangs on it.
func assignments(f *ast.FuncDecl) []token.Pos {
	var all []token.Pos
	ast.Inspect(f.Body, func(n ast.Node) bool {
		switch s := n.(type) {
		case *ast.AssignStmt:
			for _, target := range s.Lhs {
				if _, plain := target.(*ast.Ident); !plain && root(target) == receiver(f) {
					all = append(all, target.Pos())
				}
			}
		case *ast.IncDecStmt:
			if root(s.X) == receiver(f) {
				all = append(all, s.Pos())
			}
		}
		return true
	})
	return all
}

// root returns the variable that an expression begins with.
func root(x ast.Expr) string {
	switch x := x.(type) {
	case *ast.Ident:
		return x.Name
	case *ast.SelectorExpr:
		return root(x.X)
	case *ast.IndexExpr:
		return root(x.X)
	case *ast.StarExpr:
		return root(x.X)
	case *ast.ParenExpr:
		return root(x.X)
	default:
		return ""
	}
}
