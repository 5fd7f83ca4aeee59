package rule_test

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

func texts(t *testing.T) []rule.Text {
	t.Helper()
	texts, err := rule.Texts()
	if err != nil {
		t.Fatal(err)
	}
	return texts
}

// TestEachCodeHasItsText: the files of codes and texts.yaml name the same codes.
func TestEachCodeHasItsText(t *testing.T) {
	var explained []string
	for _, text := range texts(t) {
		explained = append(explained, string(text.Code))
	}
	if once := slices.Compact(slices.Clone(explained)); len(once) != len(explained) {
		t.Errorf("texts.yaml has %d entries for %d codes, want one each", len(explained), len(once))
	}
	declared := codes(t)
	for _, code := range declared {
		if !slices.Contains(explained, code) {
			t.Errorf("%s has no entry in texts.yaml", code)
		}
	}
	for _, code := range explained {
		if !slices.Contains(declared, code) {
			t.Errorf("texts.yaml explains %s, want a code of codes.go", code)
		}
	}
}

// codes returns the values of the constants in codes.go, bootstrapcodes.go and reportcodes.go. Each constant has the name of its value.
func codes(t *testing.T) []string {
	t.Helper()
	values := slices.Concat(codesIn(t, "codes.go"), codesIn(t, "bootstrapcodes.go"), codesIn(t, "reportcodes.go"))
	if len(values) < 80 {
		t.Fatalf("the files have %d codes, want 80 at least", len(values))
	}
	return values
}

func codesIn(t *testing.T, name string) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var values []string
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		for i, name := range spec.Names {
			value, err := strconv.Unquote(spec.Values[i].(*ast.BasicLit).Value)
			if err != nil || value != name.Name {
				t.Errorf("the value of %s is %q, want its name", name.Name, value)
			}
			values = append(values, value)
		}
		return true
	})
	return values
}

func TestTextsAreComplete(t *testing.T) {
	runbook, err := os.ReadFile("../../deploy/RUNBOOK.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range texts(t) {
		t.Run(string(text.Code), func(t *testing.T) {
			if text.Title == "" || strings.HasSuffix(text.Title, ".") {
				t.Errorf("title %q, want a sentence without its full stop", text.Title)
			}
			if text.Why == "" || !strings.HasSuffix(text.Why, ".") {
				t.Errorf("why %q, want sentences", text.Why)
			}
			if (text.Fix == "") != (len(text.Who) == 0) {
				t.Errorf("fix %q by %v, want both or none", text.Fix, text.Who)
			}
			if len(text.Enforced) > 0 && (text.Fix == "" || text.Runbook == "") {
				t.Errorf("it is refused: got the fix %q and the section %q of the runbook, want both", text.Fix, text.Runbook)
			}
			within(t, []rule.Severity{text.Severity}, append(rule.Severities(), rule.Refusal))
			if text.Severity == rule.Refusal && text.Fix == "" {
				t.Error("it is a refusal and has no fix")
			}
			if text.Runbook != "" && !strings.Contains(string(runbook), "\n## "+text.Runbook+"\n") {
				t.Errorf("the runbook has no section %q", text.Runbook)
			}
			within(t, text.SeenIn, rule.Places())
			within(t, text.Who, rule.Roles())
			within(t, text.Enforced, rule.EnforcementPoints())
			if len(text.SeenIn) == 0 {
				t.Error("it is seen nowhere")
			}
		})
	}
}

// within checks that a list has allowed words, each once.
func within[T ~string](t *testing.T, words, allowed []T) {
	t.Helper()
	for i, word := range words {
		if !slices.Contains(allowed, word) || slices.Contains(words[:i], word) {
			t.Errorf("%q among %v, want each of %v once", word, words, allowed)
		}
	}
}

func TestClassify(t *testing.T) {
	refused := &rule.RefusedError{Subject: "claim a/b", Verdicts: []rule.Verdict{{Code: rule.Held}, {Code: rule.Drained}}}
	for name, tt := range map[string]struct {
		err  error
		want rule.Code
	}{
		"no error":             {nil, ""},
		"an error of no code":  {os.ErrNotExist, rule.NotPrepared},
		"the first reason":     {refused, rule.Held},
		"wrapped":              {fmt.Errorf("prepare: %w", refused), rule.Held},
		"joined with another":  {errors.Join(os.ErrNotExist, refused), rule.Held},
		"a refusal of nothing": {&rule.RefusedError{}, rule.NotPrepared},
	} {
		if got := rule.Classify(tt.err); got != tt.want {
			t.Errorf("%s: got %q, want %q", name, got, tt.want)
		}
	}
}

func TestFind(t *testing.T) {
	for word, want := range map[string]rule.Code{
		"NotIsolated": rule.NotIsolated, "notisolated": rule.NotIsolated, "link-lost": rule.LinkLost, "kata-vfio.dev/dead": rule.ConfigSpaceDead,
	} {
		text, ok := rule.Find(texts(t), word)
		if !ok || text.Code != want {
			t.Errorf("%s: got %v, %v; want %s", word, text, ok, want)
		}
	}
	if _, ok := rule.Find(texts(t), "NoSuchCode"); ok {
		t.Error("found a code that does not exist")
	}
}
