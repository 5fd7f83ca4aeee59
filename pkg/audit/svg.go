package audit

import (
	"fmt"
	"html"
	"io"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
)

// WriteSVG writes the drawing as one self-contained SVG: no scripts, fonts or
// images from elsewhere, colors for light and dark screens.
func WriteSVG(w io.Writer, d *Drawing) error {
	var b svg
	b.put(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" style="max-width:100%%;height:auto" role="img" aria-labelledby="name description">`,
		d.Width, d.Height, d.Width, d.Height)
	b.put(`<title id="name">%s</title>`, html.EscapeString(d.Name))
	b.put(`<desc id="description">%s</desc>`, html.EscapeString(d.Description))
	b.put("<style>%s</style>", style)
	b.put(`<rect class="page" width="%d" height="%d"/>`, d.Width, d.Height)
	b.body(d)
	b.rect("outline", d.LegendOutline, 6)
	for _, s := range d.Symbols {
		b.symbol(s)
	}
	b.texts(d.Texts)
	b.put("</svg>")
	// Texts come from the node, and XML 1.0 forbids most control characters, even as
	// character references.
	if _, err := io.WriteString(w, output.VisibleLines(b.out.String())); err != nil {
		return fmt.Errorf("write drawing: %w", err)
	}
	return nil
}

// body writes the tree, without the texts around it.
func (b *svg) body(d *Drawing) {
	for _, p := range d.Panels {
		b.rect("panel", p, 10)
	}
	for _, broken := range []bool{false, true} { // broken links are drawn last, above the others
		for _, l := range d.Links {
			if l.Broken == broken {
				b.link(l)
			}
		}
	}
	for i := range d.Outlines {
		b.outline(&d.Outlines[i])
	}
	for i := range d.Cards {
		b.card(&d.Cards[i])
	}
	for i := range d.Folds {
		b.fold(&d.Folds[i])
	}
}

// fold draws the counts of a root bus.
func (b *svg) fold(f *Fold) {
	b.put(`<g class="%s">`, gradeClass(f.Grade))
	b.rect("card", f.Box, radius(FunctionCard))
	b.put(`<path class="bar" d="M%d,%dh-2a6,6 0 0 0 -6,6v%da6,6 0 0 0 6,6h2z"/>`, f.Box.X+8, f.Box.Y, f.Box.H-12)
	b.texts(f.Texts)
	b.put("</g>")
}

// svg gathers the text of a document.
type svg struct {
	out strings.Builder
	// inline is set if the drawing is part of an HTML page, which defines the marks once and has the style sheet.
	inline bool
}

// put writes a line. Writing to a Builder never fails.
func (b *svg) put(format string, args ...any) { _, _ = fmt.Fprintf(&b.out, format+"\n", args...) }

func (b *svg) rect(class string, r Rect, radius int) {
	b.put(`<rect class="%s" x="%d" y="%d" width="%d" height="%d" rx="%d"/>`, class, r.X, r.Y, r.W, r.H, radius)
}

func (b *svg) texts(texts []Text) {
	for _, t := range texts {
		if t.Text == "" && b.inline {
			continue
		}
		class := strings.TrimSpace(t.Face.class() + " " + t.Class)
		b.put(`<text class="%s" x="%d" y="%d">%s</text>`, class, t.X, t.Y, html.EscapeString(t.Text))
	}
}

func (b *svg) link(l Link) {
	points := make([]string, len(l.Points))
	for i, p := range l.Points {
		points[i] = fmt.Sprintf("%d,%d", p.X, p.Y)
	}
	b.put(`<polyline class="%s" points="%s"/>`, brokenClass("link", l.Broken), strings.Join(points, " "))
}

func (b *svg) outline(o *Outline) {
	b.put(`<g><title>%s</title>`, html.EscapeString(o.Title))
	b.rect(brokenClass("outline", o.Broken), o.Box, 12)
	b.texts([]Text{o.Label})
	if o.Symbol != nil {
		b.symbol(*o.Symbol)
	}
	b.put("</g>")
}

func brokenClass(class string, broken bool) string {
	if broken {
		return class + " broken"
	}
	return class
}

func (b *svg) card(c *Card) {
	class := gradeClass(c.Grade)
	if c.Culprit {
		class += " culprit"
	}
	switch {
	case c.Kind == Dot && b.inline && c.Page == "":
		b.dot(c)
		return
	case b.inline:
		b.put(`<a href="%s" class="%s"%s><title>%s</title>`, html.EscapeString(c.Page), class, tabIndex(c.Kind), html.EscapeString(c.Title))
		defer b.put("</a>")
	default:
		// An identifier in XML can't begin with a digit, as an address does.
		b.put(`<g id="f%s" class="%s"><title>%s</title>`, c.Device.Address.Label(), class, html.EscapeString(c.Title))
		defer b.put("</g>")
	}
	b.rect("card "+[...]string{FunctionCard: "function", BridgeCard: "bridge", Chip: "chip", Cell: "cell", Dot: "dot"}[c.Kind], c.Box, radius(c.Kind))
	if c.Kind == FunctionCard || c.Kind == BridgeCard && c.Culprit {
		b.put(`<path class="bar" d="M%d,%dh-2a6,6 0 0 0 -6,6v%da6,6 0 0 0 6,6h2z"/>`, c.Box.X+8, c.Box.Y, c.Box.H-12)
	}
	for _, t := range c.Tags {
		b.rect(fmt.Sprintf("tag t%d", t.Color), t.Box, 4)
		b.texts([]Text{t.Text})
	}
	if c.Symbol != nil {
		b.symbol(*c.Symbol)
	}
	b.texts(c.Texts)
}

// tabIndex makes the tab key skip the many small cards.
func tabIndex(k CardKind) string {
	if k == Cell || k == Dot {
		return ` tabindex="-1"`
	}
	return ""
}

func radius(k CardKind) int {
	if k == Cell || k == Dot {
		return 4
	}
	return 6
}

// symbol draws a mark on a disc: a shape besides the color.
func (b *svg) symbol(s Symbol) {
	class, scale := gradeClass(s.Grade), float64(s.Radius)/8
	if b.inline {
		b.put(`<use href="#mark-%s" transform="translate(%d %d) scale(%.2f)"/>`, class, s.Center.X, s.Center.Y, scale)
		return
	}
	b.put(`<g class="%s" transform="translate(%d %d) scale(%.2f)">%s</g>`, class, s.Center.X, s.Center.Y, scale, mark(s.Grade))
}

// mark returns the drawing of a grade's mark around the origin, 16 pixels wide.
func mark(s Grade) string {
	path := map[Grade]string{
		None:    "M-3.5,0h7",
		Good:    "M-4,0.5l2.8,3l5,-6.5",
		Concern: "M0,-4.5v5M0,3.4v1",
		Bad:     "M-3,-3l6,6M3,-3l-6,6",
	}[s]
	return fmt.Sprintf(`<circle class="disc" r="8"/><path class="mark" d="%s"/>`, path)
}

func gradeClass(s Grade) string {
	return [...]string{None: "none", Good: "good", Concern: "warn", Bad: "bad"}[s]
}

// style holds the colors. Custom properties would be shorter, but not every
// renderer knows them.
const style = `
text{font-family:ui-monospace,"DejaVu Sans Mono",Menlo,Consolas,"Liberation Mono",monospace;fill:#1f2328}
.title{font:bold 20px system-ui,"DejaVu Sans",Helvetica,Arial,sans-serif}
.head{font:bold 13px system-ui,"DejaVu Sans",Helvetica,Arial,sans-serif}
.panel-title{fill:#59636e}
.strong{font-size:12px;font-weight:bold}
.body{font-size:11px}
.small{font-size:10px}
text.muted{fill:#59636e}
text.bad{fill:#b3111d;font-weight:bold}
text.warn{fill:#7d4e00;font-weight:bold}
text.group{fill:#4250b5}
.page{fill:#fff}
.panel{fill:#f6f8fa;stroke:#d8dee4}
.link{fill:none;stroke:#8c959f;stroke-width:1.5}
.outline{fill:#5e6ad2;fill-opacity:.06;stroke:#5e6ad2;stroke-width:1.5}
.card{fill:#fff;stroke:#afb8c1}
.bridge,.chip{fill:#f0f2f5}
.good>.cell,.good>.dot{fill:#e6f6ea;stroke:#1a7f37}
.warn>.cell,.warn>.dot{fill:#fff4d6;stroke:#9a6700}
.bad>.card{stroke:#cf222e}
.bad>.card:not(.chip),.culprit>.card{fill:#fff0ef}
.bad>.chip{stroke:#afb8c1}
.culprit>.card{stroke:#cf222e}
.good .bar,.good .disc{fill:#1a7f37}
.none .bar,.none .disc{fill:#6e7781}
.warn .bar,.warn .disc{fill:#9a6700}
.bad .bar,.bad .disc{fill:#cf222e}
.mark{fill:none;stroke:#fff;stroke-width:2;stroke-linecap:round;stroke-linejoin:round}
@media screen and (prefers-color-scheme:dark){
text{fill:#e6edf3}
.panel-title,text.muted{fill:#9aa4af}
text.bad{fill:#ff8f87}
text.warn{fill:#e3b341}
text.group{fill:#a8b1ff}
.page{fill:#0d1117}
.panel{fill:#151b23;stroke:#2b323b}
.link{stroke:#6e7681}
.outline{fill:#8b95f0;fill-opacity:.08;stroke:#7580e6}
.card{fill:#1f262e;stroke:#4a535d}
.bridge,.chip{fill:#262c34}
.good>.cell,.good>.dot{fill:#12301c;stroke:#2ea043}
.warn>.cell,.warn>.dot{fill:#3a2c07;stroke:#bb8009}
.bad>.card{stroke:#f85149}
.bad>.card:not(.chip),.culprit>.card{fill:#3a1a1c}
.bad>.chip{stroke:#4a535d}
.culprit>.card{stroke:#f85149}
.good .bar,.good .disc{fill:#2ea043}
.none .bar,.none .disc{fill:#768390}
.warn .bar,.warn .disc{fill:#bb8009}
.bad .bar,.bad .disc{fill:#da3633}
}
`
