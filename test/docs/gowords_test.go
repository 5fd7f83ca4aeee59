package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"strings"
	"testing"
)

// TestGoAvoidsBannedWords checks the comments and the texts of the product's code, its tests left out, by the list of the documents.
func TestGoAvoidsBannedWords(t *testing.T) {
	words := readStyle(t, "Words")
	for _, dir := range []string{"cmd", "pkg"} {
		root := os.DirFS("../../" + dir)
		err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
				return err
			}
			source, err := fs.ReadFile(root, name)
			if err != nil {
				return err
			}
			for position, text := range textsOf(t, dir+"/"+name, source) {
				for _, fault := range words.faults(text) {
					t.Errorf("%s: %s", position, fault)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// textsOf returns the comments and the strings of a Go file by their positions.
func textsOf(t *testing.T, name string, source []byte) map[string]string {
	t.Helper()
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, source, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]string{}
	for _, group := range file.Comments {
		texts[files.Position(group.Pos()).String()] = strings.ReplaceAll(group.Text(), "\n", " ")
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
			texts[files.Position(literal.Pos()).String()] = literal.Value
		}
		return true
	})
	return texts
}

func TestBannedWordsInGoAreFound(t *testing.T) {
	texts := textsOf(t, "a.go", []byte("package a\n\n// A is mended\n// anew.\nconst A = \"somebody else's\"\n"))
	words, found := readStyle(t, "Words"), 0
	for _, text := range texts {
		found += len(words.faults(text))
	}
	if found != 3 {
		t.Errorf("found %d faults in %v, want 3", found, texts)
	}
}
