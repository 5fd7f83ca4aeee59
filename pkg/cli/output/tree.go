package output

import (
	"fmt"
	"io"
	"strings"
)

// Branch is one line of a tree, with its children. Texts are escaped, because anyone may have written them.
type Branch struct {
	Text  string
	Color Color
	Below []Branch
}

// WriteTree draws trees below each other.
func WriteTree(w io.Writer, roots []Branch, color bool) error {
	var b strings.Builder
	for i := range roots {
		roots[i].draw(&b, "", "", color)
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("write tree: %w", err)
	}
	return nil
}

// draw writes a line after the prefix first, and its children after the prefix rest.
func (t *Branch) draw(b *strings.Builder, first, rest string, color bool) {
	b.WriteString(first + Paint(color, t.Color, Visible(t.Text)) + "\n")
	for i := range t.Below {
		if i == len(t.Below)-1 {
			t.Below[i].draw(b, rest+"└─ ", rest+"   ", color)
		} else {
			t.Below[i].draw(b, rest+"├─ ", rest+"│  ", color)
		}
	}
}
