package chart

import (
	"encoding/json"
	"regexp"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// TestSchemaTakesTheIDsOfOwnRules: the chart accepts the IDs that the audit accepts, ORG-001 to ORG-999, and no other.
func TestSchemaTakesTheIDsOfOwnRules(t *testing.T) {
	var schema struct {
		Defs struct {
			OwnRule struct {
				Properties struct {
					ID struct{ Pattern string } `json:"id"`
				} `json:"properties"`
			} `json:"ownRule"`
		} `json:"$defs"`
	}
	if err := json.Unmarshal([]byte(read(t, "values.schema.json")), &schema); err != nil {
		t.Fatal(err)
	}
	pattern, err := regexp.Compile(schema.Defs.OwnRule.Properties.ID.Pattern)
	if err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]bool{
		"ORG-001": true, "ORG-010": true, "ORG-100": true, "ORG-999": true,
		"ORG-000": false, "ORG-1": false, "ORG-1000": false, "org-001": false, "ACS-001": false,
	} {
		if got := pattern.MatchString(id); got != want {
			t.Errorf("%s: the schema accepts it: %t, want %t", id, got, want)
		}
		c, err := rule.ReadCatalogue()
		if err != nil {
			t.Fatal(err)
		}
		if got := c.AddOwn("rules.yaml", []byte("rules:\n- id: "+id+"\n  title: a\n  severity: low\n  why: b\n  fix: c\n  settings: [{argument: d, values: [e]}]\n")) == nil; got != want {
			t.Errorf("%s: the audit accepts it: %t, want %t", id, got, want)
		}
	}
}
