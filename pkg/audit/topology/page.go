package topology

import (
	"fmt"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit"
)

// Measures of the page, in pixels.
const (
	pageMargin   = 24
	panelPadding = 20
	panelTitle   = 34
	panelGap     = 20
	// sideBySide puts the two sockets of a common server beside each other.
	sideBySide   = 2
	minPageWidth = 1040
)

// Arrange lays the node's tree out: a heading, a legend, and one panel per
// NUMA node with the root buses of that node.
func Arrange(inv *audit.Inventory) *Drawing {
	l := &layout{drawing: &Drawing{Name: "PCIe topology"}, culprits: culprits(inv)}
	d := l.drawing
	d.Description = describe(inv)
	d.Texts = append(d.Texts,
		Text{pageMargin, 42, Title, d.Name, ""},
		Text{pageMargin, 64, Body, d.Description, "muted"})
	top := l.legend(pageMargin, 92) + panelGap
	d.Width = max(minPageWidth, d.Texts[1].Box().Right()+pageMargin)
	l.panels(byNUMA(Roots(inv)), sideBySide, top)
	d.Outlines = outlines(d.Cards)
	return d
}

// describe sums the node up in one line.
func describe(inv *audit.Inventory) string {
	var functions, bad int
	for i := range inv.Devices {
		if !inv.Devices[i].Assignable() {
			continue
		}
		functions++
		if inv.Devices[i].Grade() == audit.Bad {
			bad++
		}
	}
	parts := []string{fmt.Sprintf("%d GPUs, PFs, VFs and NVMe drives, %d of them not isolated", functions, bad)}
	if inv.Host.Kernel != "" {
		parts = append(parts, "kernel "+inv.Host.Kernel)
	}
	if len(inv.Host.IOMMUs) > 0 {
		parts = append(parts, "IOMMU "+strings.Join(inv.Host.IOMMUs, " "))
	} else {
		parts = append(parts, "no IOMMU")
	}
	return clip(strings.Join(parts, " · "), Body, minPageWidth-2*pageMargin)
}

// panel holds the roots of one NUMA node.
type panel struct {
	numa  *int
	roots []Root
}

// byNUMA splits roots, which are in NUMA order, into panels.
func byNUMA(roots []Root) []panel {
	var panels []panel
	for _, r := range roots {
		last := len(panels) - 1
		if last < 0 || CompareNUMA(panels[last].numa, r.NUMA) != 0 {
			panels = append(panels, panel{numa: r.NUMA})
			last++
		}
		panels[last].roots = append(panels[last].roots, r)
	}
	return panels
}

func (p panel) title() string {
	if p.numa == nil {
		return "NUMA node not stated"
	}
	return fmt.Sprintf("NUMA node %d", *p.numa)
}

// panels places all panels, row by row, and settles the page's size.
func (l *layout) panels(panels []panel, perRow, top int) {
	d := l.drawing
	x, y, bottom := pageMargin, top, top
	for i, p := range panels {
		if i%perRow == 0 && i > 0 {
			x, y = pageMargin, bottom+panelGap
		}
		box := l.panel(p, x, y)
		x = box.Right() + panelGap
		bottom = max(bottom, box.Bottom())
		d.Width = max(d.Width, box.Right()+pageMargin)
	}
	d.Height = bottom + pageMargin
}

// panel places one NUMA node's roots and the panel around them.
func (l *layout) panel(p panel, x, y int) Rect {
	d := l.drawing
	l.panelNUMA = p.numa
	title := Text{x + panelPadding, y + 24, Head, p.title(), "panel-title"}
	d.Texts = append(d.Texts, title)
	inner := title.Box()
	below := y + panelTitle + 10
	for _, r := range p.roots {
		box := l.root(r, x+panelPadding, below)
		inner = inner.Union(box)
		below = box.Bottom() + rootGap
	}
	strip := outlinePad + stripWidth
	rect := Rect{x, y, inner.Right() + strip + panelPadding - x, inner.Bottom() + panelPadding - y}
	d.Panels = append(d.Panels, rect)
	return rect
}

// Explained is a symbol and what it says of a function.
type Explained struct {
	Grade audit.Grade
	Text  string
}

// Legend explains every symbol that a drawing can have, for whoever draws one.
func Legend() []Explained {
	return []Explained{
		{audit.Good, "fit for claims"},
		{audit.Concern, "fit, with a grave note"},
		{audit.Bad, "claims refused, or at fault"},
		{audit.None, "in use by the node"},
	}
}

// legend explains symbols and outlines, and returns where it ends.
func (l *layout) legend(x, y int) int {
	d := l.drawing
	for _, item := range Legend() {
		d.Symbols = append(d.Symbols, Symbol{Point{x + 8, y}, 7, item.Grade})
		t := Text{x + 21, y + 4, Body, item.Text, ""}
		d.Texts = append(d.Texts, t)
		x = t.Box().Right() + 24
	}
	t := Text{x + 30, y + 4, Body, "g7: functions of IOMMU group 7", ""}
	d.Texts = append(d.Texts, t)
	d.LegendOutline = Rect{x, y - 9, 22, 18}
	return y + 14
}
