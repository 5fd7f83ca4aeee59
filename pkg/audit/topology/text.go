package topology

import (
	"fmt"
	"io"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit"
	"github.com/kata-vfio/kata-vfio/pkg/cli/terminal"
)

// Branch is one line of a tree that is drawn as text, and what hangs off it. Texts
// may be anybody's.
type Branch struct {
	Text  string
	Color terminal.Color
	Below []Branch
}

// WriteTree draws trees below each other, for a terminal.
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

// draw writes a line behind first, and those below it behind rest.
func (t *Branch) draw(b *strings.Builder, first, rest string, color bool) {
	b.WriteString(first + terminal.Paint(color, t.Color, terminal.Visible(t.Text)) + "\n")
	for i := range t.Below {
		if i == len(t.Below)-1 {
			t.Below[i].draw(b, rest+"└─ ", rest+"   ", color)
		} else {
			t.Below[i].draw(b, rest+"├─ ", rest+"│  ", color)
		}
	}
}

// Tree returns a node's PCIe tree with its verdicts: a line for each root and each
// function.
func Tree(inv *audit.Inventory) []Branch {
	roots := Roots(inv)
	trees := make([]Branch, len(roots))
	for i := range roots {
		r := &roots[i]
		trees[i].Text = RootLine(r.Name, r.NUMA)
		for _, n := range r.Children {
			trees[i].Below = append(trees[i].Below, n.branch())
		}
	}
	return trees
}

// RootLine is the line of a root bus; numa is nil where it is of no NUMA node.
func RootLine[T int | int64](name string, numa *T) string {
	if numa == nil {
		return name
	}
	return fmt.Sprintf("%s, NUMA %d", name, *numa)
}

func (n *Node) branch() Branch {
	t := Branch{Text: line(n.Device), Color: n.Grade().Color()}
	for _, c := range n.Children {
		t.Below = append(t.Below, c.branch())
	}
	for _, vf := range n.VFs {
		t.Below = append(t.Below, Branch{Text: line(vf), Color: vf.Grade().Color()})
	}
	return t
}

// line says of a function what its card in the picture does.
func line(d *audit.Device) string {
	what := []string{d.Address.String()}
	if d.IsBridge() {
		what = append(what, Kind(d))
	} else {
		what = append(what, string(d.Type), d.Product(), firstOf(d.Driver, "no driver"))
	}
	if d.Group != nil {
		what = append(what, groupName(d))
	}
	if d.Near != nil {
		what = append(what, briefNearLine(d))
	}
	if s := d.Grade(); s == audit.Bad || s == audit.Concern {
		what = append(what, codes(d))
	}
	return strings.TrimLeft(d.Grade().Mark()+" ", " ") + strings.Join(what, "  ")
}
