package output

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"sigs.k8s.io/yaml"
)

// Document writes v in the format json or yaml. For any other format it writes nothing and returns false.
func Document(w io.Writer, format, what string, v any) (bool, error) {
	switch format {
	case "json":
		return true, JSON(w, what, v)
	case "yaml":
		return true, YAML(w, what, v)
	}
	return false, nil
}

// JSON writes v as one indented JSON document. what names v in errors. Control characters are escaped, so that a name
// from a node has no effect on a terminal. Decoders get the original text.
func JSON(w io.Writer, what string, v any) error { return writeJSON(w, what, v, "  ") }

// JSONLine writes v as [JSON] does, on one line.
func JSONLine(w io.Writer, what string, v any) error { return writeJSON(w, what, v, "") }

func writeJSON(w io.Writer, what string, v any, indent string) error {
	var document bytes.Buffer
	enc := json.NewEncoder(&document)
	// The output is not HTML, and people read it: -> must not become -\u003e.
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("write %s as JSON: %w", what, err)
	}
	text := replaceObeyed(document.Bytes(), escape)
	if indent != "" {
		text = indented(text, indent)
	}
	if _, err := w.Write(text); err != nil {
		return fmt.Errorf("write %s as JSON: %w", what, err)
	}
	return nil
}

// YAML writes v as YAML with the names of the JSON form. what names v in errors. YAML can't escape outside of quotes:
// decoders get control characters back unchanged, but direction marks and the like as the text of their escapes.
func YAML(w io.Writer, what string, v any) error {
	text, err := json.Marshal(v)
	if err == nil {
		text, err = yaml.JSONToYAML(replaceObeyed(text, func(r rune) string {
			return strings.ReplaceAll(Visible(string(r)), `\`, `\\`)
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

// replaceObeyed replaces the characters that the JSON encoder does not escape: those beyond ASCII, DEL, and bytes
// that are not UTF-8, from values that encode themselves. They occur in strings only. It returns a text without them
// unchanged.
func replaceObeyed(text []byte, by func(rune) string) []byte {
	var replaced []byte
	kept := 0
	for i := 0; i < len(text); {
		if b := text[i]; b == '\n' || ' ' <= b && b <= '~' {
			i++
			continue
		}
		r, size := utf8.DecodeRune(text[i:])
		if invalid := r == utf8.RuneError && size == 1; invalid || Obeyed(r) {
			replaced = append(append(replaced, text[kept:i]...), by(r)...)
			kept = i + size
		}
		i += size
	}
	if kept == 0 {
		return text
	}
	return append(replaced, text[kept:]...)
}

// escape returns the JSON escape of a character.
func escape(r rune) string {
	var escaped []byte
	for _, unit := range utf16.Encode([]rune{r}) {
		escaped = fmt.Appendf(escaped, `\u%04x`, unit)
	}
	return string(escaped)
}
