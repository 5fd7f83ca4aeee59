package output

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// Branch is one line of a tree, with its children. Texts are escaped, because anyone may have written them.
type Branch struct {
	Text  string
	Color Color
	Below []Branch
}

// WriteTree draws trees below each other. Texts that are longer than limit are wrapped beside the tree's lines. 0 means no limit.
func WriteTree(w io.Writer, roots []Branch, limit int, color bool) error {
	var b strings.Builder
	for i := range roots {
		roots[i].draw(&b, "", "", limit, color)
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("write tree: %w", err)
	}
	return nil
}

// draw writes a line after the prefix first, and its children after the prefix rest.
func (t *Branch) draw(b *strings.Builder, first, rest string, limit int, color bool) {
	more := rest + "     " // what is left of a text is two characters further right than its children
	if len(t.Below) > 0 {
		more = rest + "│    "
	}
	for i, text := range t.lines(first, more, limit) {
		if i > 0 {
			first = more
		}
		b.WriteString(first + Paint(color, t.Color, text) + "\n")
	}
	for i := range t.Below {
		if i == len(t.Below)-1 {
			t.Below[i].draw(b, rest+"└─ ", rest+"   ", limit, color)
		} else {
			t.Below[i].draw(b, rest+"├─ ", rest+"│  ", limit, color)
		}
	}
}

// lines returns the text as lines that fit behind the first prefix, and the others behind more. A text that fits keeps its spaces.
func (t *Branch) lines(first, more string, limit int) []string {
	text := Visible(t.Text)
	if limit == 0 || utf8.RuneCountInString(first+text) <= limit {
		return []string{text}
	}
	return Wrap(text, max(limit-max(utf8.RuneCountInString(first), utf8.RuneCountInString(more)), minProse))
}
