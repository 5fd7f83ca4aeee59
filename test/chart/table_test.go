package chart

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/test/golden"
)

const (
	dir        = "../../deploy/helm/kata-vfio/"
	begin, end = "<!-- values: go test ./test/chart -update -->\n", "<!-- end of values -->\n"
)

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(dir + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The chart's README has the table between two comments; -update writes it.
func TestREADMEHasTheValues(t *testing.T) {
	want, err := Table([]byte(read(t, "values.schema.json")), []byte(read(t, "values.yaml")))
	if err != nil {
		t.Fatal(err)
	}
	readme := read(t, "README.md")
	before, rest, ok := strings.Cut(readme, begin)
	got, after, ended := strings.Cut(rest, end)
	if !ok || !ended {
		t.Fatalf("README.md lacks %q or %q", begin, end)
	}
	if golden.Updating() {
		if err := os.WriteFile(dir+"README.md", []byte(before+begin+want+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
		got = want
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the README has other values; run this test with -update (-files +README):\n%s", diff)
	}
}

func TestTableTellsWhatEachValueTakes(t *testing.T) {
	const schemaText = `{"properties": {"a": {"properties": {
		"b": {"type": "integer", "minimum": 1, "maximum": 9}, "c": {"$ref": "#/$defs/mode"}, "d": {"type": ["array", "null"], "items": {"$ref": "#/$defs/Rule"}},
		"e": {"type": "string"}, "f": {"properties": {"g": {"type": "string"}, "h": {"type": "boolean"}}}}}},
		"$defs": {"mode": {"enum": ["x", "y"]}, "Rule": {"type": "object"}}}`
	const values = `
# All of it. See README.md, "The whole".
a:
  # How
  # many|much.
  b: 5
  c: x
  d: []
  e: ""
  f:
    g: x
    h: true
`
	const want = "| Value | Takes | Default | Meaning |\n|---|---|---|---|\n" +
		"| `a` |  |  | All of it. [The whole](#the-whole) |\n" +
		"| `a.b` | integer 1 to 9 | `5` | How many\\|much. |\n" +
		"| `a.c` | `x`, `y` | `\"x\"` |  |\n" +
		"| `a.d` | list of `Rule` | `[]` |  |\n" +
		"| `a.e` |  | `\"\"` |  |\n" +
		"| `a.f` |  | `{\"g\":\"x\",\"h\":true}` |  |\n"
	got, err := Table([]byte(schemaText), []byte(values))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestTableHasAllValuesWithWhatTheyAreFor(t *testing.T) {
	const schemaText = `{"properties": {"a": {"type": "string"}, "b": {"type": "string"}}, "required": ["b"]}`
	for values, want := range map[string]string{
		"# A.\na: x":                 "b is not in values.yaml",
		"# A.\na: x\n# B.\nb: x\nc:": "c is not in the schema",
		"# A.\na: x\nb: x":           "b has no comment",
	} {
		if _, err := Table([]byte(schemaText), []byte(values)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", values, err, want)
		}
	}
}
