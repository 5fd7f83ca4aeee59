// Package encode writes values as the documents that programs read: the forms
// of --output that are not for people.
package encode

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"unicode/utf16"
	"unicode/utf8"

	"sigs.k8s.io/yaml"

	"github.com/kata-vfio/kata-vfio/pkg/terminal"
)

// JSON writes v as one indented JSON document. Errors say what v is. Characters
// that a terminal would obey are escaped, so that no name from a node does anything
// where the document is looked at; readers get them back as they were.
func JSON(w io.Writer, what string, v any) error { return writeJSON(w, what, v, "  ") }

// JSONLine writes v as [JSON] does, on a line of its own.
func JSONLine(w io.Writer, what string, v any) error { return writeJSON(w, what, v, "") }

func writeJSON(w io.Writer, what string, v any, indent string) error {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetIndent("", indent)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	if err == nil {
		_, err = w.Write(escapeObeyed(text.Bytes()))
	}
	if err != nil {
		return fmt.Errorf("write %s as JSON: %w", what, err)
	}
	return nil
}

// escapeObeyed escapes what the encoder leaves as it is: characters beyond ASCII,
// and DEL. They stand in strings only.
func escapeObeyed(text []byte) []byte {
	harmless := func(r rune) bool { return r == '\n' || !terminal.Obeyed(r) }
	if bytes.IndexFunc(text, func(r rune) bool { return !harmless(r) }) < 0 {
		return text
	}
	var escaped []byte
	for _, r := range string(text) {
		if harmless(r) {
			escaped = utf8.AppendRune(escaped, r)
			continue
		}
		for _, unit := range utf16.Encode([]rune{r}) {
			escaped = fmt.Appendf(escaped, `\u%04x`, unit)
		}
	}
	return escaped
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
