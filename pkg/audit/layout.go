package audit

import (
	"fmt"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// Distances between cards, in pixels.
const (
	columnGap = 58
	rowGap    = 16
	chipGap   = 8
	rootGap   = 26
	indent    = 26
	// anchor is the distance between the top of a card and the end of its link.
	anchor = 18
	// chipsPerRow keeps runs of small functions short.
	chipsPerRow = 4
)

// layout places the cards of a page.
type layout struct {
	drawing *Drawing
	// culprits are the functions that keep others from being isolated.
	culprits map[pci.Address]bool
	// panelNUMA is the NUMA node of the panel being filled.
	panelNUMA *int
	// marks is nil for a drawing of the node alone.
	marks *Marks
	// broken are the functions whose links are marked.
	broken map[pci.Address]bool
	// crowded is set if a VF's cell does not fit.
	crowded bool
	// narrow is set for a narrow screen: the functions behind a bridge are drawn below the bridge, not to its right.
	narrow bool
	// foldsBefore is the number of folds in earlier panels.
	foldsBefore int
}

// culprits returns the functions that are the culprit of any reason.
func culprits(inv *Inventory) map[pci.Address]bool {
	found := map[pci.Address]bool{}
	for i := range inv.Devices {
		for _, r := range inv.Devices[i].Reasons {
			if r.Culprit != nil {
				found[*r.Culprit] = true
			}
		}
	}
	return found
}

// root places a root bus: its name, and its functions along a trunk line.
// It returns the box that all of it takes.
func (l *layout) root(r Root, x, y int) Rect {
	title := Text{x, y + 12, Head, strings.Join(append([]string{"root bus " + r.Name}, r.exclusive...), " · "), ""}
	l.drawing.Texts = append(l.drawing.Texts, title)
	box := title.Box().Union(Rect{x, y, 1, 20})
	trunk := Point{x + 8, y + 20}
	return box.Union(l.children(r.Children, trunk, x+l.pick(indent, narrowIndent+8), y+32))
}

// node places a function and all below it, and returns the box of it all.
func (l *layout) node(n *Node, x, y int) Rect {
	card := l.newCard(n, x, y)
	l.drawing.Cards = append(l.drawing.Cards, card)
	box := card.Box
	if len(n.VFs) > 0 {
		box = box.Union(l.vfs(n, card.Box))
	}
	switch {
	case len(n.Children) > 0 && l.narrow:
		start := Point{x + 8, card.Box.Bottom()}
		box = box.Union(l.children(n.Children, start, x+8+narrowIndent, box.Bottom()+rowGap))
	case len(n.Children) > 0:
		start := Point{card.Box.Right(), y + anchor}
		box = box.Union(l.children(n.Children, start, card.Box.Right()+columnGap, y))
	}
	return box
}

// children places functions below each other from (x, y) and links each to
// the parent's end at from.
func (l *layout) children(nodes []*Node, from Point, x, y int) Rect {
	box := Rect{x, y, 1, 1}
	for i := 0; i < len(nodes); {
		if i > 0 {
			y += rowGap
		}
		run := chipRun(nodes[i:])
		var placed Rect
		if len(run) > 0 {
			placed = l.chips(run, from, x, y)
		} else {
			run = nodes[i : i+1]
			placed = l.node(run[0], x, y)
			l.link(from, Point{x, y + anchor}, l.broken[run[0].Device.Address])
		}
		box, y = box.Union(placed), placed.Bottom()
		i += len(run)
	}
	return box
}

// link draws from a parent to a child: along a trunk halfway between if the parent is to the left, straight down
// if it is above.
func (l *layout) link(from, to Point, broken bool) {
	trunk := to.X - columnGap/3
	if to.X-from.X < columnGap {
		trunk = from.X
	}
	l.drawing.Links = append(l.drawing.Links, Link{[]Point{from, {trunk, from.Y}, {trunk, to.Y}, to}, broken})
}

// chipRun returns the chips at the head of nodes that lie in one block: either
// all of one group, or each in a group of its own.
func chipRun(nodes []*Node) []*Node {
	end := 0
	for end < len(nodes) && isChip(nodes[end]) && sameBlock(nodes[0], nodes[end]) {
		end++
	}
	return nodes[:end]
}

func sameBlock(a, b *Node) bool {
	if shared(a) || shared(b) {
		return a.Device.Group != nil && b.Device.Group != nil && *a.Device.Group == *b.Device.Group
	}
	return true
}

func shared(n *Node) bool { return len(n.Device.GroupMembers) > 1 }

// chips places a block of chips in rows.
func (l *layout) chips(run []*Node, from Point, x, y int) Rect {
	box, perRow := Rect{x, y, 1, 1}, l.pick(chipsPerRow, 1)
	for i, n := range run {
		at := Point{x + i%perRow*(chipWidth+chipGap), y + i/perRow*(chipHeight+chipGap)}
		card := l.newCard(n, at.X, at.Y)
		l.drawing.Cards = append(l.drawing.Cards, card)
		box = box.Union(card.Box)
		if i%perRow == 0 {
			l.link(from, Point{x, at.Y + chipHeight/2}, false)
		}
	}
	return box
}

// Measures of the page, in pixels.
const (
	pageMargin   = 24
	panelPadding = 20
	panelTitle   = 34
	panelGap     = 20
	// sideBySide is the number of panels in a row. It puts the two sockets of a common server beside each other.
	sideBySide   = 2
	minPageWidth = 1040
	// narrowMargin and narrowIndent are the margin and the indentation on a narrow screen.
	narrowMargin = 8
	narrowIndent = 10
)

// Arrange lays the node's tree out: a heading, a legend, and one panel per
// NUMA node with the root buses of that node.
func Arrange(inv *Inventory, detail Detail) *Drawing {
	l := &layout{drawing: &Drawing{Name: "PCIe topology"}, culprits: culprits(inv)}
	d := l.drawing
	d.Description = describe(inv)
	d.Texts = append(d.Texts,
		Text{pageMargin, 42, Title, d.Name, ""},
		Text{pageMargin, 64, Body, d.Description, "muted"})
	y := 64
	for _, line := range fabricText(inv.Fabric) {
		y += lineHeight + 2
		d.Texts = append(d.Texts, Text{pageMargin, y, Body, clip(line, Body, minPageWidth-2*pageMargin), "muted"})
	}
	top := l.legend(pageMargin, y+28) + panelGap
	d.Width = max(minPageWidth, d.Texts[1].Box().Right()+pageMargin)
	l.panels(byNUMA(newRoots(inv, detail)), sideBySide, top)
	d.Outlines = outlines(d.Cards)
	return d
}

// pick returns the measure for the width of the screen.
func (l *layout) pick(wide, narrow int) int {
	if l.narrow {
		return narrow
	}
	return wide
}

// describe sums the node up in one line.
func describe(inv *Inventory) string {
	var functions, bad int
	for i := range inv.Devices {
		if !inv.Devices[i].Assignable() {
			continue
		}
		functions++
		if inv.Devices[i].Grade() == Bad {
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
	parts = append(parts, inv.exclusiveBeyond()...)
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
		if last < 0 || device.CompareNUMA(panels[last].numa, r.NUMA) != 0 {
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

// panels places all panels, row by row, and sets the page's size.
func (l *layout) panels(panels []panel, perRow, top int) {
	d := l.drawing
	margin := l.pick(pageMargin, narrowMargin)
	x, y, bottom := margin, top, top
	for i, p := range panels {
		if i%perRow == 0 && i > 0 {
			x, y = margin, bottom+panelGap
		}
		box := l.panel(p, x, y)
		x = box.Right() + panelGap
		bottom = max(bottom, box.Bottom())
		d.Width = max(d.Width, box.Right()+margin)
	}
	d.Height = bottom + margin
}

// panel places one NUMA node's roots and the panel around them.
func (l *layout) panel(p panel, x, y int) Rect {
	d := l.drawing
	l.panelNUMA = p.numa
	padding := l.pick(panelPadding, narrowMargin)
	title := Text{x + padding, y + 24, Head, p.title(), "panel-title"}
	d.Texts = append(d.Texts, title)
	inner := title.Box()
	below := y + panelTitle + 10
	var folded []Root
	for _, r := range p.roots {
		if r.Folded {
			folded = append(folded, r)
			continue
		}
		box := l.root(r, x+padding, below)
		inner = inner.Union(box)
		below = box.Bottom() + rootGap
	}
	if len(folded) > 0 {
		inner = inner.Union(l.folds(folded, x+padding, below))
	}
	strip := outlinePad + stripWidth
	rect := Rect{x, y, inner.Right() + strip + padding - x, inner.Bottom() + padding - y}
	d.Panels = append(d.Panels, rect)
	return rect
}

// Explained is a symbol and its meaning for a function.
type Explained struct {
	Grade Grade
	Text  string
}

// Legend explains every symbol that a drawing can have.
func Legend() []Explained {
	return []Explained{
		{Good, "fit for claims"},
		{Concern, "fit, with a serious note"},
		{Bad, "claims refused, or at fault"},
		{None, "in use, or not offered"},
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
