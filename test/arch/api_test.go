package arch

import (
	"bytes"
	"flag"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write testdata/api.txt")

// promised are the packages whose exports stay: users' manifests and programs that verify ledgers depend on them. Everything else
// in pkg/ promises nothing (pkg/README.md).
func promised() []string { return []string{"pkg/api/v1alpha1", "pkg/ledger"} }

// TestPromisedAPIStays compares the promised packages' exports with testdata/api.txt. Adding one is a line more there; the removal or
// change of one breaks programs of others, and needs a new version of the API.
func TestPromisedAPIStays(t *testing.T) {
	var lines []string
	for _, pkg := range promised() {
		lines = append(lines, exports(t, pkg)...)
	}
	const golden = "testdata/api.txt"
	if *update {
		if err := os.WriteFile(golden, []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil { //nolint:gosec // a golden file
			t.Fatal(err)
		}
	}
	data, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Split(strings.TrimSpace(string(data)), "\n")
	for _, line := range want {
		if !slices.Contains(lines, line) {
			t.Errorf("promised, and gone or changed: %s", line)
		}
	}
	for _, line := range lines {
		if !slices.Contains(want, line) {
			t.Errorf("new: %s; if it is to be promised, run `go test ./test/arch -run PromisedAPI -update`", line)
		}
	}
}

// exports returns one line for each exported constant, variable, function, method, type and field of a package, in order.
func exports(t *testing.T, pkg string) []string {
	t.Helper()
	sources, err := filepath.Glob(filepath.Join("../..", pkg, "*.go"))
	if err != nil || len(sources) == 0 {
		t.Fatalf("%s: %v, %v", pkg, sources, err)
	}
	var lines []string
	files := token.NewFileSet()
	for _, source := range sources {
		if strings.HasSuffix(source, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(files, source, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			for _, line := range declarations(files, d) {
				lines = append(lines, pkg+": "+line)
			}
		}
	}
	slices.Sort(lines)
	return lines
}

func declarations(files *token.FileSet, d ast.Decl) []string {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if !d.Name.IsExported() || d.Recv != nil && !ast.IsExported(receiver(d)) {
			return nil
		}
		signature := *d
		signature.Body, signature.Doc = nil, nil
		return []string{printed(files, &signature)}
	case *ast.GenDecl:
		var lines []string
		for _, spec := range d.Specs {
			lines = append(lines, specification(files, d.Tok, spec)...)
		}
		return lines
	}
	return nil
}

// receiver returns the name of a method's type.
func receiver(d *ast.FuncDecl) string {
	t := d.Recv.List[0].Type
	if star, ok := t.(*ast.StarExpr); ok {
		t = star.X
	}
	name, _ := t.(*ast.Ident)
	if name == nil {
		return ""
	}
	return name.Name
}

func specification(files *token.FileSet, tok token.Token, spec ast.Spec) []string {
	var lines []string
	switch spec := spec.(type) {
	case *ast.ValueSpec:
		for i, name := range spec.Names {
			if !name.IsExported() {
				continue
			}
			line := tok.String() + " " + name.Name
			if spec.Type != nil {
				line += " " + printed(files, spec.Type)
			}
			if tok == token.CONST && i < len(spec.Values) {
				line += " = " + printed(files, spec.Values[i])
			}
			lines = append(lines, line)
		}
	case *ast.TypeSpec:
		if !spec.Name.IsExported() {
			return nil
		}
		structure, ok := spec.Type.(*ast.StructType)
		if !ok {
			return []string{"type " + spec.Name.Name + " " + printed(files, spec.Type)}
		}
		lines = append(lines, "type "+spec.Name.Name+" struct")
		for _, field := range structure.Fields.List {
			lines = append(lines, fields(files, spec.Name.Name, field)...)
		}
	}
	return lines
}

// fields returns the lines of a field of a struct, with its tag: its name in JSON is promised, too.
func fields(files *token.FileSet, of string, field *ast.Field) []string {
	tag := ""
	if field.Tag != nil {
		tag = " " + field.Tag.Value
	}
	if len(field.Names) == 0 {
		return []string{"field " + of + " embeds " + printed(files, field.Type) + tag}
	}
	var lines []string
	for _, name := range field.Names {
		if name.IsExported() {
			lines = append(lines, "field "+of+"."+name.Name+" "+printed(files, field.Type)+tag)
		}
	}
	return lines
}

// printed returns source code on one line.
func printed(files *token.FileSet, node any) string {
	var b bytes.Buffer
	if err := printer.Fprint(&b, files, node); err != nil {
		return err.Error()
	}
	return strings.Join(strings.Fields(b.String()), " ")
}
