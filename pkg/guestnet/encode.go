package guestnet

import (
	"encoding/json"
	"fmt"
	"io"

	"sigs.k8s.io/yaml"
)

// WriteJSON writes the report as one indented JSON document.
func (r *Report) WriteJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	if err := enc.Encode(r); err != nil {
		return fmt.Errorf("write report as JSON: %w", err)
	}
	return nil
}

// WriteYAML writes the report as YAML with the names of the JSON form.
func (r *Report) WriteYAML(w io.Writer) error {
	text, err := yaml.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode report as YAML: %w", err)
	}
	if _, err := w.Write(text); err != nil {
		return fmt.Errorf("write report as YAML: %w", err)
	}
	return nil
}
