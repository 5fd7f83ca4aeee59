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
	b.texts(d.Texts)
	b.put("</svg>")
	return b.String()
}

// Mark returns the mark of a standing as an svg element to stand in a line of
// text, after an [Inline] of the same page.
func Mark(s audit.Standing) string {
	return `<svg class="topology" width="16" height="16" viewBox="-8 -8 16 16" aria-hidden="true"><use href="#mark-` + standingClass(s) + `"/></svg>`
}

// Style returns the style sheet of what [Inline] returns.
func Style() string { return style }

// marks defines the marks that symbols refer to.
func (b *svg) marks() {
	b.put("<defs>")
	for _, s := range []audit.Standing{audit.Good, audit.Concern, audit.Bad} {
		b.put(`<g id="mark-%s" class="%s">%s</g>`, standingClass(s), standingClass(s), mark(s))
	}
	b.put("</defs>")
}
