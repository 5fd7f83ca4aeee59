package audit

import (
	"encoding/json"
	"fmt"
	"io"

	"sigs.k8s.io/yaml"
)

// WriteJSON writes the inventory as one indented JSON document.
func (inv *Inventory) WriteJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	if err := enc.Encode(inv); err != nil {
		return fmt.Errorf("write inventory as JSON: %w", err)
	}
	return nil
}

// WriteYAML writes the inventory as YAML with the names of the JSON form.
func (inv *Inventory) WriteYAML(w io.Writer) error {
	text, err := yaml.Marshal(inv)
	if err != nil {
		return fmt.Errorf("encode inventory as YAML: %w", err)
	}
	if _, err := w.Write(text); err != nil {
		return fmt.Errorf("write inventory as YAML: %w", err)
	}
	return nil
}
