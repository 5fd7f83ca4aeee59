package page

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"regexp"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/topology"
)

// frame is what all pages have around their body: a template that defines "body".
type frame struct {
	Title string
	// About says beside the program's name what the page is about, and Made below
	// it by whom and when it was made.
	About, Made string
	// Skip leads past the page's head, and Parts are those that its head names.
	Skip  *link
	Parts []link
	// Script is the page's own; empty for none.
	Script template.JS
	Body   any
}

// link leads to a part of the page.
type link struct{ Anchor, Text string }

// Style is the one style sheet of all pages.
func (*frame) Style() template.CSS {
	return template.CSS(styleSheet + topology.Style()) //nolint:gosec // our own files
}

// Policy forbids all that the page does not need: it may use its own style sheet
// and script, which are known by their hashes, and nothing else.
func (f *frame) Policy() string {
	scripts := "'none'"
	if f.Script != "" {
		scripts = "'" + hash(string(f.Script)) + "'"
	}
	return fmt.Sprintf("default-src 'none'; style-src '%s'; script-src %s; base-uri 'none'; form-action 'none'", hash(string(f.Style())), scripts)
}

func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

// write writes the page with the body that the template's text defines. What comes
// from the node is escaped: markup does nothing in a browser, and control
// characters are spelled out.
func (f *frame) write(w io.Writer, body string, words template.FuncMap) error {
	t := template.New("page").Funcs(words)
	if _, err := t.Parse(strings.Join([]string{compact(frameTemplate), compact(partsTemplate), compact(body)}, "\n")); err != nil {
		return fmt.Errorf("parse the page's template: %w", err)
	}
	var b bytes.Buffer
	if err := t.Execute(&b, f); err != nil {
		return fmt.Errorf("fill in the page: %w", err)
	}
	if _, err := w.Write(spellOut(b.Bytes())); err != nil {
		return fmt.Errorf("write page: %w", err)
	}
	return nil
}

// spare is what the template has for those who read it: indentation, and end tags
// that HTML does without (HTML standard, 13.1.2.4 optional tags). On a large node
// they are a tenth of the page.
var spare = regexp.MustCompile(`\n\s+|</(?:li|dt|dd|th|td|tr)>`)

// compact leaves out what is spare; lines stay lines.
func compact(text string) string {
	return spare.ReplaceAllStringFunc(text, func(found string) string {
		if found[0] == '\n' {
			return "\n"
		}
		return ""
	})
}
