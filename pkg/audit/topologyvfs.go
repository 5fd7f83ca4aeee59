package audit

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
)

// Measures of VFs, in pixels.
const (
	cellWidth, cellHeight = 37, 30
	dotSize               = 16
	cellGap               = 4
	// manyVFs is the number of VFs above which their cells shrink to dots.
	manyVFs = 24
	// letterHeight is the height of a holder's letter.
	letterHeight = 14
)

// vfs places a PF's VFs in rows below its card, under a caption, and returns their box. They are outside the PF's outline, because
// each VF has its own group if ACS works.
func (l *layout) vfs(n *Node, pf Rect) Rect {
	x, y := pf.X+padding, pf.Bottom()+outlinePad
	box := Rect{x, y, 1, 1}
	for _, line := range []string{vfCount(n), vfDrivers(n)} {
		y += lineHeight
		t := Text{x, y, Small, clip(line, Small, pf.W), "muted"}
		l.drawing.Texts = append(l.drawing.Texts, t)
		box = box.Union(t.Box())
	}
	w, h := cellWidth, cellHeight
	if l.crowded || len(n.VFs) > manyVFs {
		w, h = dotSize, dotSize
	} else if slices.ContainsFunc(n.VFs, func(vf *Device) bool { return len(l.holders(vf.Address)) > 0 }) {
		h += letterHeight
	}
	perRow := (pf.W + stripWidth - padding + cellGap) / (w + cellGap)
	for i, vf := range n.VFs {
		at := Rect{x + i%perRow*(w+cellGap), y + 8 + i/perRow*(h+cellGap), w, h}
		c := l.cell(vf, at)
		if !l.crowded {
			c = l.entitled(c)
		}
		l.drawing.Cards = append(l.drawing.Cards, c)
		box = box.Union(at)
	}
	if l.crowded && l.marks != nil {
		dots := Rect{x, y + 8, box.Right() - x, box.Bottom() - y - 8}
		l.drawing.Areas = append(l.drawing.Areas, Area{dots, l.marks.Page(n.Device.Address), "the VFs of " + n.Device.Address.String()})
	}
	return box
}

// cell returns the small card of one VF: a mark and, if there is room, its index and group, and below them the letters of its holders.
func (l *layout) cell(vf *Device, at Rect) Card {
	c := Card{Box: at, Kind: Cell, Grade: l.grade(vf, vf.Grade()), Device: vf}
	if at.W == dotSize {
		c.Kind = Dot
		c.Symbol = &Symbol{Point{at.X + at.W/2, at.Y + at.H/2}, 5, c.Grade}
		if holders := l.holders(vf.Address); len(holders) > 0 {
			c.Tags = []Tag{letters(holders, Rect{at.X + 1, at.Y + 1, at.W - 2, at.H - 2})}
			c.Symbol = corner(c.Symbol, at)
		}
		return c
	}
	c.Symbol = &Symbol{Point{at.X + 9, at.Y + 9}, 5, c.Grade}
	c.Texts = []Text{
		{at.X + 16, at.Y + 12, Small, clip(strconv.Itoa(*vf.VFIndex), Small, at.W-17), ""},
		{at.X + 3, at.Y + 25, Small, clip(groupName(vf), Small, at.W-4), "muted"},
	}
	if holders := l.holders(vf.Address); len(holders) > 0 {
		c.Tags = []Tag{letters(holders, Rect{at.X + 2, at.Bottom() - letterHeight - 1, at.W - 4, letterHeight})}
	}
	return c
}

// letters returns a small tag that only has the letters of the holders.
func letters(holders []Holder, at Rect) Tag {
	var all strings.Builder
	for _, h := range holders {
		all.WriteString(h.Letter)
	}
	t := Text{Face: Small, Text: clip(all.String(), Small, at.W)}
	t.X, t.Y = at.X+(at.W-measureText(t.Text, Small))/2, at.Y+at.H/2+4
	return Tag{at, holders[0].Color, t}
}

// corner moves the mark of a bad or concerning grade to a corner, so that a dot's letter has room. It drops other marks.
func corner(s *Symbol, at Rect) *Symbol {
	if s.Grade != Bad && s.Grade != Concern {
		return nil
	}
	return &Symbol{Point{at.Right() - 1, at.Y + 1}, 4, s.Grade}
}

// vfCount returns the number of VFs and their groups.
func vfCount(n *Node) string {
	text := output.Count(len(n.VFs), "VF")
	if n.Device.PF != nil {
		text = fmt.Sprintf("%d of %s", len(n.VFs), output.Count(n.Device.PF.TotalVFs, "VF"))
	}
	groups := map[int]bool{}
	lowest, highest := 0, 0
	for _, vf := range n.VFs {
		if vf.Group == nil {
			return text
		}
		if len(groups) == 0 {
			lowest, highest = *vf.Group, *vf.Group
		}
		groups[*vf.Group] = true
		lowest, highest = min(lowest, *vf.Group), max(highest, *vf.Group)
	}
	if len(groups) == len(n.VFs) {
		return fmt.Sprintf("%s, each in its own group (g%d–g%d)", text, lowest, highest)
	}
	if len(groups) == 1 {
		return fmt.Sprintf("%s in one group (g%d)", text, lowest)
	}
	return fmt.Sprintf("%s in %d groups (g%d–g%d)", text, len(groups), lowest, highest)
}

// vfDrivers counts the VFs by driver.
func vfDrivers(n *Node) string {
	count := map[string]int{}
	var names []string
	for _, vf := range n.VFs {
		name := firstText(vf.Driver, "without driver")
		if count[name] == 0 {
			names = append(names, name)
		}
		count[name]++
	}
	slices.Sort(names)
	for i, name := range names {
		names[i] = fmt.Sprintf("%d %s", count[name], name)
	}
	return strings.Join(names, " · ")
}
