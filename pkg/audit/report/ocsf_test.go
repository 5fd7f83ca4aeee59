package report_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/audit/report"
)

// attribute is what OCSF 1.8.0 says of an attribute of a class or object: an excerpt
// of the published schema, for those that a Compliance Finding of ours has.
type attribute struct {
	Type       string
	Array      bool
	Required   bool
	Deprecated bool
	// Enum maps values to captions, and Sibling names the attribute with the caption.
	Enum    map[string]string
	Sibling string
}

type schema map[string]map[string]attribute

func ocsfSchema(t *testing.T) schema {
	t.Helper()
	content, err := os.ReadFile("testdata/ocsf-1.8.0.json")
	if err != nil {
		t.Fatal(err)
	}
	var s schema
	if err := json.Unmarshal(content, &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// problems returns the faults of an object of the class, with their places.
func (s schema) problems(class, where string, object map[string]any) (wrong []string) {
	for name, a := range s[class] {
		if a.Required && object[name] == nil {
			wrong = append(wrong, where+" lacks "+name)
		}
	}
	for name, value := range object {
		a, ok := s[class][name]
		if !ok || a.Deprecated {
			wrong = append(wrong, fmt.Sprintf("%s.%s is not in the schema, or deprecated", where, name))
			continue
		}
		values := []any{value}
		if list, isList := value.([]any); isList != a.Array {
			wrong = append(wrong, fmt.Sprintf("%s.%s: list %t", where, name, isList))
		} else if isList {
			values = list
		}
		for _, v := range values {
			wrong = append(wrong, s.valueProblems(a, where+"."+name, v, object)...)
		}
	}
	return wrong
}

func (s schema) valueProblems(a attribute, where string, value any, object map[string]any) []string {
	right := false
	switch v := value.(type) {
	case string:
		right = a.Type == "string_t" || a.Type == "hostname_t"
	case float64:
		right = (a.Type == "integer_t" || a.Type == "long_t") && v == float64(int64(v))
	case map[string]any:
		if s[a.Type] != nil {
			return s.problems(a.Type, where, v)
		}
		right = a.Type == "json_t"
	}
	if !right {
		return []string{fmt.Sprintf("%s: %v is no %s", where, value, a.Type)}
	}
	if a.Enum == nil {
		return nil
	}
	caption, ok := a.Enum[fmt.Sprint(value)]
	if !ok {
		return []string{fmt.Sprintf("%s: %v is not one of %v", where, value, a.Enum)}
	}
	if name, ok := object[a.Sibling]; ok && name != caption && caption != "Other" {
		return []string{fmt.Sprintf("%s: %v is %q, not %q", where, value, caption, name)}
	}
	return nil
}

// TestOCSFIsOfTheSchema holds every event against the published schema.
func TestOCSFIsOfTheSchema(t *testing.T) {
	s := ocsfSchema(t)
	for _, findings := range [][]finding.Finding{few(), many(), {hostileFinding()}, append(few(), few()...)} {
		uids := map[any]bool{}
		for text := range strings.Lines(write(t, document(findings), "ocsf", report.Options{})) {
			var event map[string]any
			if err := json.Unmarshal([]byte(text), &event); err != nil {
				t.Fatal(err)
			}
			for _, wrong := range s.problems("compliance_finding", "event", event) {
				t.Error(wrong)
			}
			if version := event["metadata"].(map[string]any)["version"]; version != "1.8.0" {
				t.Errorf("of the version %v", version)
			}
			uids[event["finding_info"].(map[string]any)["uid"]] = true
		}
		if len(uids) != len(findings) {
			t.Errorf("%d uids for %d findings", len(uids), len(findings))
		}
	}
}

// TestOCSFSchemaIsHeldAgainst: the walk finds the faults that it is for.
func TestOCSFSchemaIsHeldAgainst(t *testing.T) {
	s := ocsfSchema(t)
	line, _, _ := strings.Cut(write(t, document(few()), "ocsf", report.Options{}), "\n")
	for about, change := range map[string]func(event map[string]any){
		"unknown":  func(e map[string]any) { e["frob"] = "x" },
		"lacks":    func(e map[string]any) { delete(e, "time") },
		"enum":     func(e map[string]any) { e["severity_id"] = 7.0 },
		"caption":  func(e map[string]any) { e["severity"] = "Bad" },
		"list":     func(e map[string]any) { e["resources"] = map[string]any{} },
		"type":     func(e map[string]any) { e["time"] = "now" },
		"below":    func(e map[string]any) { e["device"].(map[string]any)["type_id"] = 77.0 },
		"old":      func(e map[string]any) { e["resource"] = map[string]any{"uid": "x"} },
		"in lists": func(e map[string]any) { e["resources"].([]any)[0].(map[string]any)["role_id"] = 9.0 },
	} {
		var event map[string]any
		if err := json.Unmarshal([]byte(line), &event); err != nil {
			t.Fatal(err)
		}
		change(event)
		if len(s.problems("compliance_finding", "event", event)) != 1 {
			t.Errorf("%s: %v", about, s.problems("compliance_finding", "event", event))
		}
	}
}
