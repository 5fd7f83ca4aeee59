package audit

import (
	"html"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// Marks are an audit's additions to the drawing of a node: the tenant of each function, the failures of
// functions, and the broken boundaries between tenants.
type Marks struct {
	// Holders are the tenants that have a function now; more than one if the node contradicts itself.
	Holders map[pci.Address][]Holder
	// Failing describes the failures of a function in a few words.
	Failing map[pci.Address]string
	// Broken are sets of functions of different tenants that can reach each other. The path between the functions of a set is marked.
	Broken [][]pci.Address
	// Page returns the target of a click on a function, within the same document.
	Page func(pci.Address) string
}

// Holder is a tenant in a drawing. Letters are for readers who don't see colors.
type Holder struct {
	Letter string
	// Color is a number N below [Colors]. The page defines the CSS class "tN" of each number.
	Color int
	// Name is the tenant's name, and the claim.
	Name string
}

// Tag is a holder's name on a card.
type Tag struct {
	Box   Rect
	Color int
	Text  Text
}

// ArrangeMarked lays the node's tree out for a page that has its own heading and legend, with the panels below each other. It
// leaves out functions that are neither assignable nor related to an assignable function; left is the number of these.
func ArrangeMarked(inv *Inventory, marks *Marks) (d *Drawing, left int) {
	l, shown := newMarked(inv, marks)
	l.drawing.Width = minMarkedWidth
	l.panels(byNUMA(Roots(shown)), 1, pageMargin)
	l.outline()
	return l.drawing, len(inv.Devices) - len(shown.Devices)
}

// ArrangeNarrow lays the same tree out for a phone: functions behind a bridge are drawn below it, so that GPUs are visible.
func ArrangeNarrow(inv *Inventory, marks *Marks) *Drawing {
	l, shown := newMarked(inv, marks)
	l.narrow = true
	l.panels(byNUMA(Roots(shown)), 1, narrowMargin)
	l.outline()
	return l.drawing
}

// newMarked returns the layout of a page's drawing, and the functions that it shows.
func newMarked(inv *Inventory, marks *Marks) (l *layout, shown *Inventory) {
	l = &layout{drawing: &Drawing{Name: "PCIe topology"}, culprits: culprits(inv), marks: marks}
	for a := range marks.Failing {
		l.culprits[a] = true
	}
	shown = concerning(inv, l.culprits)
	l.drawing.Description = describe(shown)
	l.broken = brokenLinks(inv, marks.Broken)
	l.crowded = len(shown.Devices) > crowd
	return l, shown
}

// outline draws and marks the outlines of groups around the placed cards.
func (l *layout) outline() {
	l.drawing.Outlines = outlines(l.drawing.Cards)
	if l.crowded {
		l.drawing.Outlines = slices.DeleteFunc(l.drawing.Outlines, func(o Outline) bool { return o.Alone })
	}
	for i := range l.drawing.Outlines {
		l.markOutline(&l.drawing.Outlines[i])
	}
}

// Colors is the number of a page's colors for tenants.
const Colors = 8

// minMarkedWidth prevents a page from enlarging a small drawing.
const minMarkedWidth = 760

// concerning returns the inventory with only the assignable functions and the functions at fault, the bridges above them, and the
// members of their groups.
func concerning(inv *Inventory, faulty map[pci.Address]bool) *Inventory {
	keep := map[pci.Address]bool{}
	for i := range inv.Devices {
		d := &inv.Devices[i]
		if !d.Assignable() && !faulty[d.Address] {
			continue
		}
		for _, a := range slices.Concat([]pci.Address{d.Address}, d.Upstream, d.GroupMembers) {
			keep[a] = true
		}
	}
	shown := &Inventory{Host: inv.Host, ExclusiveDomains: inv.ExclusiveDomains, Fabric: inv.Fabric}
	for i := range inv.Devices {
		if keep[inv.Devices[i].Address] {
			shown.Devices = append(shown.Devices, inv.Devices[i])
		}
	}
	return shown
}

// brokenLinks returns the functions whose link to the bridge above is on the path between functions of a set. These are the parts
// of their paths below the last common bridge.
func brokenLinks(inv *Inventory, sets [][]pci.Address) map[pci.Address]bool {
	paths := map[pci.Address][]pci.Address{}
	for i := range inv.Devices {
		paths[inv.Devices[i].Address] = pathTo(&inv.Devices[i])
	}
	broken := map[pci.Address]bool{}
	for _, set := range sets {
		common, first := 0, paths[set[0]]
		for common < len(first) && !slices.ContainsFunc(set, func(a pci.Address) bool {
			return len(paths[a]) <= common || paths[a][common] != first[common]
		}) {
			common++
		}
		if common == 0 {
			continue // they are below different roots, so the tree does not show the path between them
		}
		for _, a := range set {
			for _, hop := range paths[a][common:] {
				broken[hop] = true
			}
		}
	}
	return broken
}

// pathTo returns the bridges above a function, and then the function itself or, for a VF, its PF.
func pathTo(d *Device) []pci.Address {
	end := d.Address
	if d.PFAddress != nil {
		end = *d.PFAddress
	}
	return append(slices.Clone(d.Upstream), end)
}

// holders returns the function's tenants.
func (l *layout) holders(a pci.Address) []Holder {
	if l.marks == nil {
		return nil
	}
	return l.marks.Holders[a]
}

// failing returns the failures of the function.
func (l *layout) failing(d *Device) string {
	if l.marks == nil {
		return ""
	}
	return l.marks.Failing[d.Address]
}

// grade returns Bad for a function with a failure, regardless of its verdict.
func (l *layout) grade(d *Device, s Grade) Grade {
	if l.failing(d) != "" {
		return Bad
	}
	return s
}

// markOutline marks a group that has functions of several tenants.
func (l *layout) markOutline(o *Outline) {
	letters := map[string]bool{}
	for _, c := range l.drawing.Cards {
		if c.Device.Group == nil || *c.Device.Group != o.Group {
			continue
		}
		for _, h := range l.holders(c.Device.Address) {
			letters[h.Letter] = true
		}
	}
	if len(letters) < 2 {
		return
	}
	o.Broken = true
	o.Title = "Several tenants in " + o.Title
	o.Symbol = &Symbol{Point{o.Label.X + measureText(o.Label.Text, Strong)/2, o.Label.Y - 22}, 7, Bad}
}

// caption describes a function completely, its holders first.
func (l *layout) caption(d *Device) string {
	var lines []string
	for _, h := range l.holders(d.Address) {
		lines = append(lines, "held by "+h.Name)
	}
	if text := l.failing(d); text != "" {
		lines = append(lines, text)
	}
	if l.crowded {
		lines = append([]string{d.Address.String()}, lines...)
	} else {
		lines = append(lines, tooltip(d))
	}
	return strings.Join(lines, "\n")
}

// Inline returns the drawing as an svg element of an HTML page. The page has the colors: [DrawingStyle], and
// those of tenants. It needs no script, and all text from the node is escaped.
func Inline(d *Drawing) string {
	b := svg{inline: true}
	b.put(`<svg class="topology" width="%d" height="%d" viewBox="0 0 %d %d" preserveAspectRatio="xMidYMin" role="group" aria-label="%s: %s">`,
		d.Width, d.Height, d.Width, d.Height, html.EscapeString(d.Name), html.EscapeString(d.Description))
	b.body(d)
	for _, a := range d.Areas {
		b.area(a)
	}
	b.texts(d.Texts)
	b.put("</svg>")
	return b.out.String()
}

// Definitions returns the marks to which the elements of [Inline] and [Mark] refer. A page must contain them once.
func Definitions() string {
	b := svg{inline: true}
	b.put(`<svg class="definitions" width="0" height="0" aria-hidden="true">`)
	b.marks()
	b.put("</svg>")
	return b.out.String()
}

// Mark returns the mark of a grade as an svg element within a line of text.
func Mark(s Grade) string {
	return `<svg class="topology" width="16" height="16" viewBox="-8 -8 16 16" aria-hidden="true"><use href="#mark-` + gradeClass(s) + `"/></svg>`
}

// DrawingStyle returns the style sheet for [Inline].
func DrawingStyle() string { return style }

// marks defines the marks that symbols refer to, and dots.
func (b *svg) marks() {
	b.put("<defs>")
	for _, s := range []Grade{None, Good, Concern, Bad} {
		class := gradeClass(s)
		b.put(`<g id="mark-%s" class="%s">%s</g>`, class, class, mark(s))
		b.put(`<g id="dot-%s" class="%s"><rect class="card dot" x="-8" y="-8" width="16" height="16" rx="4"/><g transform="scale(.62)">%s</g></g>`, class, class, mark(s))
	}
	for i := range Colors {
		b.put(`<rect id="dot-%d" class="tag t%d" x="-7" y="-7" width="14" height="14" rx="4"/>`, i, i)
	}
	b.put("</defs>")
}

// dot draws a VF in a few bytes, because there are too many for more.
func (b *svg) dot(c *Card) {
	x, y := c.Box.X+c.Box.W/2, c.Box.Y+c.Box.H/2
	for _, t := range c.Tags {
		b.put(`<use href="#dot-%d" x="%d" y="%d"/>`, t.Color, x, y)
		b.texts([]Text{t.Text})
	}
	switch {
	case len(c.Tags) == 0:
		b.put(`<use href="#dot-%s" x="%d" y="%d"/>`, gradeClass(c.Grade), x, y)
	case c.Symbol != nil:
		b.symbol(*c.Symbol)
	}
}

// area draws a link above all VFs of a PF.
func (b *svg) area(a Area) {
	b.put(`<a href="%s"><title>%s</title>`, html.EscapeString(a.Page), html.EscapeString(a.Title))
	b.rect("area", a.Box, 4)
	b.put("</a>")
}
