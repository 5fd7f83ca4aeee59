package topology

import (
	"github.com/kata-vfio/kata-vfio/pkg/audit"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// Distances between cards, in pixels.
const (
	columnGap = 58
	rowGap    = 16
	chipGap   = 8
	rootGap   = 26
	indent    = 26
	// anchor is how far below a card's top its link ends.
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
	// crowded is set where there is no room for a VF's cell.
	crowded bool
}

// culprits gathers the functions named as culprit of any reason.
func culprits(inv *audit.Inventory) map[pci.Address]bool {
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
	title := Text{x, y + 12, Head, "root bus " + r.Name, ""}
	l.drawing.Texts = append(l.drawing.Texts, title)
	box := title.Box().Union(Rect{x, y, 1, 20})
	trunk := Point{x + 8, y + 20}
	return box.Union(l.children(r.Children, trunk, x+indent, y+32))
}

// node places a function and all below it, and returns the box of it all.
func (l *layout) node(n *Node, x, y int) Rect {
	card := l.newCard(n, x, y)
	l.drawing.Cards = append(l.drawing.Cards, card)
	box := card.Rect
	if len(n.VFs) > 0 {
		box = box.Union(l.vfs(n, card.Rect))
	}
	if len(n.Children) > 0 {
		start := Point{card.Right(), y + anchor}
		box = box.Union(l.children(n.Children, start, card.Right()+columnGap, y))
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
			l.link(from, Point{x, y + anchor}, l.broken[run[0].Address])
		}
		box, y = box.Union(placed), placed.Bottom()
		i += len(run)
	}
	return box
}

// link draws from a parent to a child: along a trunk halfway between when the
// parent is to the left, straight down when it is above.
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
		return a.Group != nil && b.Group != nil && *a.Group == *b.Group
	}
	return true
}

func shared(n *Node) bool { return len(n.GroupMembers) > 1 }

// chips places a block of chips in rows.
func (l *layout) chips(run []*Node, from Point, x, y int) Rect {
	box := Rect{x, y, 1, 1}
	for i, n := range run {
		at := Point{x + i%chipsPerRow*(chipWidth+chipGap), y + i/chipsPerRow*(chipHeight+chipGap)}
		card := l.newCard(n, at.X, at.Y)
		l.drawing.Cards = append(l.drawing.Cards, card)
		box = box.Union(card.Rect)
		if i%chipsPerRow == 0 {
			l.link(from, Point{x, at.Y + chipHeight/2}, false)
		}
	}
	return box
}
