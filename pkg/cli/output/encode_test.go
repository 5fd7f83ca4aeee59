package output_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
)

type step struct {
	Name  string `json:"name"`
	Where *int   `json:"where,omitempty"`
}

func TestDocumentsHaveTheNamesOfJSON(t *testing.T) {
	var text, lines strings.Builder
	v := []step{{Name: "a -> <b>"}}
	if err := errors.Join(output.JSON(&text, "steps", v), output.YAML(&lines, "steps", v)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff("[\n  {\n    \"name\": \"a -> <b>\"\n  }\n]\n", text.String()); diff != "" {
		t.Errorf("JSON (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff("- name: a -> <b>\n", lines.String()); diff != "" {
		t.Errorf("YAML (-want +got):\n%s", diff)
	}
}

// full takes nothing.
type full struct{}

var errFull = errors.New("full")

func (full) Write([]byte) (int, error) { return 0, errFull }

func TestErrorsSayWhatWasWritten(t *testing.T) {
	for want, err := range map[string]error{
		"write steps as JSON: full": output.JSON(full{}, "steps", 1),
		"write steps as YAML: full": output.YAML(full{}, "steps", 1),
	} {
		if !errors.Is(err, errFull) || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	for want, err := range map[string]error{
		"write steps as JSON: ":  output.JSON(full{}, "steps", func() {}),
		"encode steps as YAML: ": output.YAML(full{}, "steps", func() {}),
	} {
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want %s...", err, want)
		}
	}
}

// TestNothingInADocumentIsObeyed: neither by a terminal that shows the document,
// nor lost to the program that reads it.
func TestNothingInADocumentIsObeyed(t *testing.T) {
	name := "\x1b[31m\u009b2J\x7f\u202e\U000e0041 é"
	var text strings.Builder
	if err := output.JSONLine(&text, "steps", step{Name: name}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(`{"name":"\u001b[31m\u009b2J\u007f\u202e\udb40\udc41 é"}`+"\n", text.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	var back step
	if err := json.Unmarshal([]byte(text.String()), &back); err != nil || back.Name != name {
		t.Errorf("got %q back, %v", back.Name, err)
	}
}

// TestInvalidTextIsReplaced: a lone C1 byte is a control character to some terminals.
func TestInvalidTextIsReplaced(t *testing.T) {
	var text strings.Builder
	if err := output.JSONLine(&text, "steps", json.RawMessage("\"a\x9b2J\"")); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(`"a\ufffd2J"`+"\n", text.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestNothingInYAMLIsObeyed: names that no YAML may hold are not a reason to write none.
func TestNothingInYAMLIsObeyed(t *testing.T) {
	var text strings.Builder
	if err := output.YAML(&text, "steps", []step{{Name: "\x1b[31m\nb"}, {Name: "\u009b2J\x7f\u0085\u202e\U000e0041 é"}}); err != nil {
		t.Fatal(err)
	}
	if strings.ContainsFunc(text.String(), func(r rune) bool { return r != '\n' && output.Obeyed(r) }) {
		t.Errorf("obeyed: %q", text.String())
	}
	var back []step
	if err := yaml.Unmarshal([]byte(text.String()), &back); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]step{{Name: "\x1b[31m\nb"}, {Name: `\x9b2J\x7f\x85\u202e\U000e0041 é`}}, back); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
