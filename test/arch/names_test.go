package arch

import (
	"cmp"
	"go/ast"
	"go/token"
	"io/fs"
	"iter"
	"os"
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
	banned := replaced()
	for file := range code(t, "cmd", "pkg") {
		if file.isTest() {
			continue
		}
		for _, name := range declared(file.File) {
			for _, w := range word.FindAllString(name.Name, -1) {
				if instead, ok := banned[strings.ToLower(w)]; ok {
					t.Errorf("%s: %s: say %q instead of %q", file.at(name.Pos()), name.Name, instead, strings.ToLower(w))
				}
			}
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

// TestSpellingIsAmerican, as in Kubernetes' documentation. Names in JSON, HTML and arguments that users have already stay as they are.
func TestSpellingIsAmerican(t *testing.T) {
	british := regexp.MustCompile(`(?i)neighbour|colour|cancelled|judgement|behaviour|honour|labelled|defence|licence|favour|centre|misspelt|\bspelt|recognis|organis|initialis|serialis|authoris|minimis|summaris|analys(e|ing)\b|modelled|travelled|learnt|artefact|\bgrey`)
	kept := regexp.MustCompile(`json:"neighbours|"neighbours|neighbours [at]/|neighbours t1/|aria-labelledby`)
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && (d.Name() == ".git" || d.Name() == "bin" || d.Name() == "testdata") {
			return cmp.Or(err, fs.SkipDir)
		}
		if d.IsDir() || filepath.Ext(path) != ".go" && filepath.Ext(path) != ".md" || filepath.Base(path) == "names_test.go" {
			return nil
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for i, line := range strings.Split(string(source), "\n") {
			if word := british.FindString(kept.ReplaceAllString(line, "")); word != "" {
				t.Errorf("%s:%d: %q is British", path, i+1, word)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// words are a file's comments, and its string literals that are text for people: those with a space.
func words(file *ast.File, literals bool) iter.Seq2[token.Pos, string] {
	return func(yield func(token.Pos, string) bool) {
		for _, group := range file.Comments {
			for _, c := range group.List {
				if !yield(c.Pos(), c.Text) {
					return
				}
			}
		}
		for n := range ast.Preorder(file) {
			if l, ok := n.(*ast.BasicLit); ok && literals && l.Kind == token.STRING && strings.Contains(l.Value, " ") && !yield(l.Pos(), l.Value) {
				return
			}
		}
	}
}

// TestCommentsAreIdiomatic refuses words that a reader of Kubernetes' documentation stops at, in comments and in what users read.
func TestCommentsAreIdiomatic(t *testing.T) {
	banned := map[*regexp.Regexp]string{
		regexp.MustCompile(`\b(nil|empty|set|none|zero|false|true|error) where\b`):                      "say if",
		regexp.MustCompile(`(?i)\b(nil|empty|false|zero) (for none|for nothing|without one)\b`):         "say if there is none",
		regexp.MustCompile(`\b(is|are|was|were) no [a-z]`):                                              "say is not a",
		regexp.MustCompile(`\banew\b`):                                                                  "say again",
		regexp.MustCompile(`\bbut for\b`):                                                               "say except for",
		regexp.MustCompile(`\byours to do\b`):                                                           "say what to do",
		regexp.MustCompile(`\bmend(s|ed|ing)?\b`):                                                       "say repair or fix",
		regexp.MustCompile(`(?i)\b(told (of|so|otherwise)|h(ears?|eard) of|without a word)\b`):          "name the event, the message or the default",
		regexp.MustCompile(`(?i)\bwhom\b`):                                                              "name the person, the program or the function",
		regexp.MustCompile(`\bwhat of\b`):                                                               "say which part",
		regexp.MustCompile(`(?i)\bso it was\b`):                                                         "say what was",
		regexp.MustCompile(`\b(take|takes|taken) along\b`):                                              "say include, or be assigned with",
		regexp.MustCompile(`^//.*\b((give|gives|given) (it|them) back|given back)\b`):                   "say return",
		regexp.MustCompile(`(^// |[:;] |, as )[Ww]ho (does not|asks|knows|is (root|slow)|waits|works)`): "give the sentence a subject: the caller, a user, a process",
	}
	kept := regexp.MustCompile(`(?i)\b(there|else) (is|are|was|were) no\b|\b(is|are|was|were) no (longer|more|less|such|better|worse|good|end|matter|one|need|way|other|room|different|trouble)\b`)
	for file := range code(t, "cmd", "pkg") {
		for at, text := range words(file.File, !file.isTest()) {
			text = kept.ReplaceAllString(text, "")
			for phrase, instead := range banned {
				if found := phrase.FindString(text); found != "" {
					t.Errorf("%s: %q: %s", file.at(at), found, instead)
				}
			}
		}
	}
}

// TestLinksInCommentsLead refuses a link to a package that is gone, such as one that was merged into another.
func TestLinksInCommentsLead(t *testing.T) {
	link := regexp.MustCompile(`\[\*?([a-z][a-z0-9]*)\.[A-Z]\w*`)
	known, linked := map[string]bool{}, map[string]string{}
	for file := range code(t, "cmd", "pkg", "test") {
		known[file.Name.Name] = true
		for name := range importNames(file.File) {
			known[name] = true
		}
		for _, group := range file.Comments {
			for _, found := range link.FindAllStringSubmatch(group.Text(), -1) {
				linked[found[1]] = file.at(group.Pos()) + ": " + found[0]
			}
		}
	}
	for name, at := range linked {
		if !known[name] {
			t.Errorf("%s]: there is no package %s", at, name)
		}
	}
}
