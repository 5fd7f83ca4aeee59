// Package encode writes values as the documents that programs read: the forms
// of --output that are not for people.
package encode

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"sigs.k8s.io/yaml"

	"github.com/kata-vfio/kata-vfio/pkg/cli/terminal"
)

// Document writes v in the format json or yaml. It returns false for another one, and writes nothing then.
func Document(w io.Writer, format, what string, v any) (bool, error) {
	switch format {
	case "json":
		return true, JSON(w, what, v)
	case "yaml":
		return true, YAML(w, what, v)
	}
	return false, nil
}

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
		_, err = w.Write(replaceObeyed(text.Bytes(), escape))
	}
	if err != nil {
		return fmt.Errorf("write %s as JSON: %w", what, err)
	}
	return nil
}

// YAML writes v as YAML with the names of the JSON form. Errors say what v is. YAML
// can't escape outside of quotes: control characters come back to readers as they
// were, but of direction marks and the like they get the escape as text.
func YAML(w io.Writer, what string, v any) error {
	text, err := json.Marshal(v)
	if err == nil {
		text, err = yaml.JSONToYAML(replaceObeyed(text, func(r rune) string {
			return strings.ReplaceAll(terminal.Visible(string(r)), `\`, `\\`)
		}))
	}
	if err != nil {
		return fmt.Errorf("encode %s as YAML: %w", what, err)
	}
	if _, err := w.Write(text); err != nil {
		return fmt.Errorf("write %s as YAML: %w", what, err)
	}
	return nil
}

// replaceObeyed replaces what the encoder of JSON leaves as it is: characters beyond ASCII, and DEL. They occur in
// strings only.
func replaceObeyed(text []byte, by func(rune) string) []byte {
	harmless := func(r rune) bool { return r == '\n' || !terminal.Obeyed(r) }
	if bytes.IndexFunc(text, func(r rune) bool { return !harmless(r) }) < 0 {
		return text
	}
	var replaced []byte
	for _, r := range string(text) {
		if harmless(r) {
			replaced = utf8.AppendRune(replaced, r)
		} else {
			replaced = append(replaced, by(r)...)
		}
	}
	return replaced
}

// escape is the character as JSON escapes it.
func escape(r rune) string {
	var escaped []byte
	for _, unit := range utf16.Encode([]rune{r}) {
		escaped = fmt.Appendf(escaped, `\u%04x`, unit)
	}
	return string(escaped)
}
