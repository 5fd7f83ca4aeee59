package chart

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// schema is the part of values.schema.json that the table needs.
type schema struct {
	Ref        string `json:"$ref"`
	Type       any
	Enum       []string
	Properties map[string]*schema
	Required   []string
	Items      *schema
	Minimum    *int
	Maximum    *int
	Defs       map[string]*schema `json:"$defs"`
}

func readSchema(text []byte) (*schema, error) {
	s := &schema{}
	if err := json.Unmarshal(text, s); err != nil {
		return nil, fmt.Errorf("read the schema: %w", err)
	}
	return s, nil
}

// resolve returns the schema that a reference names, or the schema itself if it is no reference.
func (s *schema) resolve(root *schema) *schema {
	if name, ok := strings.CutPrefix(s.Ref, "#/$defs/"); ok && root.Defs[name] != nil {
		return root.Defs[name]
	}
	return s
}

// takes says in words what a value may be. It is empty if each value of the type is allowed, because the default shows the
// type.
func (s *schema) takes(root *schema) string {
	if s.Items != nil {
		return "list of " + s.Items.noun(root)
	}
	s = s.resolve(root)
	if len(s.Enum) > 0 {
		return "`" + strings.Join(s.Enum, "`, `") + "`"
	}
	if bounds := s.bounds(); bounds != "" {
		return strings.Join(s.types(), " or ") + bounds
	}
	return ""
}

// noun names the members of a list: by the schema's name where that is one of the project's API.
func (s *schema) noun(root *schema) string {
	name := strings.TrimPrefix(s.Ref, "#/$defs/")
	if name != "" && name[0] >= 'A' && name[0] <= 'Z' {
		return "`" + name + "`"
	}
	if takes := s.takes(root); takes != "" {
		return takes
	}
	return strings.Join(s.resolve(root).types(), " or ")
}

// types are the JSON types, as people who write YAML call them.
func (s *schema) types() []string {
	words := map[string]string{"object": "map", "array": "list"}
	var types []string
	switch t := s.Type.(type) {
	case string:
		types = []string{t}
	case []any:
		for _, one := range t {
			types = append(types, fmt.Sprint(one))
		}
	}
	for i, t := range types {
		if word := words[t]; word != "" {
			types[i] = word
		}
	}
	return slices.DeleteFunc(types, func(t string) bool { return t == "null" })
}

func (s *schema) bounds() string {
	switch {
	case s.Minimum != nil && s.Maximum != nil:
		return " " + strconv.Itoa(*s.Minimum) + " to " + strconv.Itoa(*s.Maximum)
	case s.Minimum != nil:
		return " from " + strconv.Itoa(*s.Minimum)
	}
	return ""
}
