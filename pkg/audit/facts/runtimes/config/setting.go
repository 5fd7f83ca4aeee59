package config

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/facts"
)

// Setting is one setting as all files together have it.
type Setting struct {
	Name string
	// File is the one that sets it last, or the base where none does.
	File  string
	value any // nil where no file sets it
}

// IsSet reports whether a file sets it.
func (s Setting) IsSet() bool { return s.value != nil }

// Is reports whether both are set to the same, by whatever file.
func (s Setting) Is(other Setting) bool { return reflect.DeepEqual(s.value, other.value) }

// Text returns a string; empty where it is not set or is no string.
func (s Setting) Text() string {
	text, _ := s.value.(string)
	return text
}

// On reports whether a boolean is set to true.
func (s Setting) On() bool {
	on, _ := s.value.(bool)
	return on
}

// Number returns an integer; 0 where it is not set or is none.
func (s Setting) Number() int64 {
	n, _ := s.value.(int64)
	return n
}

// List returns the strings of a list; nil where it is not set or is none.
func (s Setting) List() []string {
	items, _ := s.value.([]any)
	var list []string
	for _, item := range items {
		if text, ok := item.(string); ok {
			list = append(list, text)
		}
	}
	return list
}

// Fact returns the setting as evidence: the file and what stands there.
func (s Setting) Fact() facts.Fact {
	f := facts.Fact{Path: s.File, How: "config", Value: s.Name + " is not set"}
	switch v := s.value.(type) {
	case nil:
	case string:
		f.Value = fmt.Sprintf("%s = %q", s.Name, v)
	case []any:
		f.Value = fmt.Sprintf("%s = [%s]", s.Name, quoted(v))
	default:
		f.Value = fmt.Sprintf("%s = %v", s.Name, v)
	}
	return f
}

func quoted(items []any) string {
	var all []string
	for _, item := range items {
		all = append(all, fmt.Sprintf("%q", fmt.Sprint(item)))
	}
	return strings.Join(all, ", ")
}
