package chart

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// described is values.schema.json, as far as descriptions are looked at.
type described struct {
	Ref                  string `json:"$ref"`
	Description          string
	AdditionalProperties any
	Properties           map[string]*described
	Items                *described
	Defs                 map[string]*described `json:"$defs"`
}

func readDescribed(t *testing.T) *described {
	t.Helper()
	s := &described{}
	if err := json.Unmarshal([]byte(read(t, "values.schema.json")), s); err != nil {
		t.Fatal(err)
	}
	return s
}

// Editors and Artifact Hub show the descriptions.
func TestEachPropertyOfTheSchemaHasADescription(t *testing.T) {
	root := readDescribed(t)
	checkDescriptions(t, "", root)
	for _, name := range slices.Sorted(maps.Keys(root.Defs)) {
		if root.Defs[name].Description == "" {
			t.Errorf("$defs.%s has no description", name)
		}
		checkDescriptions(t, "$defs."+name+".", root.Defs[name])
	}
}

func checkDescriptions(t *testing.T, path string, s *described) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		at, of := path+name, s.Properties[name]
		if !strings.HasSuffix(of.Description, ".") {
			t.Errorf("%s has no description that is a sentence: %q", at, of.Description)
		}
		checkDescriptions(t, at+".", of)
	}
	if s.Items != nil {
		checkDescriptions(t, path+"[].", s.Items)
	}
}

// A value that is misspelled is refused. The exceptions are a chart that contains this one, a CNI plugin's own configuration,
// and waivers, whose other half refuses.
func TestSchemaRefusesOtherProperties(t *testing.T) {
	root := readDescribed(t)
	exempt := []string{"plugin.audit.waivers[].", "$defs.AddressPool.ipam."}
	var check func(path string, s *described)
	check = func(path string, s *described) {
		if len(s.Properties) > 0 && s.AdditionalProperties != false && !slices.Contains(exempt, path) {
			t.Errorf("%s takes properties of any name", path)
		}
		for name, of := range s.Properties {
			check(path+name+".", of)
		}
		if s.Items != nil {
			check(strings.TrimSuffix(path, ".")+"[].", s.Items)
		}
	}
	check("", root)
	for name, of := range root.Defs {
		check("$defs."+name+".", of)
	}
}

// Who reads values.yaml and who reads the schema are told the same.
func TestSchemaSaysWhatTheCommentsSay(t *testing.T) {
	var document yaml.Node
	if err := yaml.Unmarshal([]byte(read(t, "values.yaml")), &document); err != nil {
		t.Fatal(err)
	}
	compareComments(t, "", document.Content[0], readDescribed(t))
}

func compareComments(t *testing.T, path string, mapping *yaml.Node, s *described) {
	t.Helper()
	for i := 0; i < len(mapping.Content); i += 2 {
		key, value := mapping.Content[i], mapping.Content[i+1]
		of := s.Properties[key.Value]
		if of == nil {
			continue // free-form, or a reference
		}
		if comment := commentOf(key); comment != "" && comment != of.Description {
			t.Errorf("%s%s: values.yaml says %q, the schema %q", path, key.Value, comment, of.Description)
		}
		if value.Kind == yaml.MappingNode {
			compareComments(t, path+key.Value+".", value, of)
		}
	}
}
