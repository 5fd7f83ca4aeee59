package topology

import (
	"html"

	"github.com/kata-vfio/kata-vfio/pkg/audit"
)

// Inline returns the drawing as an svg element of an HTML page. The page has the
// colours: [Style], and those of tenants. Nothing in it needs a script, and all
// that comes from the node is escaped.
func Inline(d *Drawing) string {
	b := svg{inline: true}
	b.put(`<svg class="topology" width="%d" height="%d" viewBox="0 0 %d %d" role="group" aria-label="%s: %s">`,
		d.Width, d.Height, d.Width, d.Height, html.EscapeString(d.Name), html.EscapeString(d.Description))
	b.marks()
	b.body(d)
	for _, a := range d.Areas {
		b.area(a)
	}
	b.texts(d.Texts)
	b.put("</svg>")
	return b.String()
}

// Mark returns the mark of a standing as an svg element to stand in a line of
// text, after an [Inline] of the same page.
func Mark(s audit.Grade) string {
	return `<svg class="topology" width="16" height="16" viewBox="-8 -8 16 16" aria-hidden="true"><use href="#mark-` + gradeClass(s) + `"/></svg>`
}

// Style returns the style sheet of what [Inline] returns.
func Style() string { return style }

// marks defines the marks that symbols refer to, and dots.
func (b *svg) marks() {
	b.put("<defs>")
	for _, s := range []audit.Grade{audit.None, audit.Good, audit.Concern, audit.Bad} {
		class := gradeClass(s)
		b.put(`<g id="mark-%s" class="%s">%s</g>`, class, class, mark(s))
		b.put(`<g id="dot-%s" class="%s"><rect class="card dot" x="-8" y="-8" width="16" height="16" rx="4"/><g transform="scale(.62)">%s</g></g>`, class, class, mark(s))
	}
	for i := range Colors {
		b.put(`<rect id="dot-%d" class="tag t%d" x="-7" y="-7" width="14" height="14" rx="4"/>`, i, i)
	}
	b.put("</defs>")
}

// dot draws a VF where there are too many for more than a few bytes each.
func (b *svg) dot(c *Card) {
	x, y := c.X+c.W/2, c.Y+c.H/2
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

// area draws what can be clicked upon above all VFs of a PF.
func (b *svg) area(a Area) {
	b.put(`<a href="%s"><title>%s</title>`, html.EscapeString(a.Page), html.EscapeString(a.Title))
	b.rect("area", a.Rect, 4)
	b.put("</a>")
}
