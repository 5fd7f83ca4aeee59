// Package encode writes values as the documents that programs read: the forms
// of --output that are not for people.
package encode

import (
	"encoding/json"
	"fmt"
	"io"

	"sigs.k8s.io/yaml"
)

// JSON writes v as one indented JSON document. Errors say what v is.
func JSON(w io.Writer, what string, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("write %s as JSON: %w", what, err)
	}
	return nil
}

// YAML writes v as YAML with the names of the JSON form. Errors say what v is.
func YAML(w io.Writer, what string, v any) error {
	text, err := yaml.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode %s as YAML: %w", what, err)
	}
	if _, err := w.Write(text); err != nil {
		return fmt.Errorf("write %s as YAML: %w", what, err)
	}
	return nil
}
