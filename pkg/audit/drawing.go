package audit

import (
	"unicode/utf8"
)

// Drawing is the layout of a page: every box, line and text with its position.
type Drawing struct {
	Width, Height int
	// Name and Description describe the drawing to readers who can't see it.
	Name, Description string
	Texts             []Text
	Panels            []Rect
	Links             []Link
	Cards             []Card
	Outlines          []Outline
	// Folds are root buses that are drawn as counts of their functions.
	Folds   []Fold
	Symbols []Symbol
	// Areas are links that replace the links of cards that are too small to click.
	Areas []Area
	// LegendOutline is the sample of an outline in the legend.
	LegendOutline Rect
}

// CardKind is the shape in which a function is shown.
type CardKind int

// Kinds of card: a function that can be assigned, a bridge, any other
// function, a VF within its PF's card, and a VF among many.
const (
	FunctionCard CardKind = iota
	BridgeCard
	Chip
	Cell
	Dot
)

// Card is one function.
type Card struct {
	Box  Rect
	Kind CardKind
	// Grade colors the card.
	Grade Grade
	// Culprit is set for a bridge that keeps functions from being isolated; its
	// Grade is Bad then.
	Culprit bool
	Device  *Device
	Texts   []Text
	// Symbol shows the grade as a shape; nil if the card shows no grade.
	Symbol *Symbol
	// Tags name the function's tenants.
	Tags []Tag
	// Title describes the function completely in a few lines.
	Title string
	// Page is the target of a click on the card in an HTML page.
	Page string
}

// Symbol is a check mark, an exclamation mark or a cross, by its center.
type Symbol struct {
	Center Point
	Radius int
	Grade  Grade
}

// Area is a part of an HTML page's drawing that is a link.
type Area struct {
	Box         Rect
	Page, Title string
}

// Link is a line from a bridge to a function below it, through points.
type Link struct {
	Points []Point
	// Broken is set if the link is part of the path between functions of different tenants that can reach each other.
	Broken bool
}

// Outline surrounds the members of one IOMMU group.
type Outline struct {
	Box   Rect
	Group int
	Label Text
	// Title lists the members.
	Title string
	// Alone is set if the group has one member.
	Alone bool
	// Broken is set if several tenants have functions of the group. Symbol is the mark for this, nil otherwise.
	Broken bool
	Symbol *Symbol
}

// Rect is a box on the page, in pixels from the top left corner.
type Rect struct{ X, Y, W, H int }

// Right is the first column beyond the box.
func (r Rect) Right() int { return r.X + r.W }

// Bottom is the first row beyond the box.
func (r Rect) Bottom() int { return r.Y + r.H }

// Overlaps reports whether two boxes share a pixel.
func (r Rect) Overlaps(o Rect) bool {
	return r.X < o.Right() && o.X < r.Right() && r.Y < o.Bottom() && o.Y < r.Bottom()
}

// Contains reports whether o is within r.
func (r Rect) Contains(o Rect) bool {
	return r.X <= o.X && o.Right() <= r.Right() && r.Y <= o.Y && o.Bottom() <= r.Bottom()
}

// Union is the smallest box that holds both.
func (r Rect) Union(o Rect) Rect {
	x, y := min(r.X, o.X), min(r.Y, o.Y)
	return Rect{x, y, max(r.Right(), o.Right()) - x, max(r.Bottom(), o.Bottom()) - y}
}

// Grow moves each side outwards.
func (r Rect) Grow(left, top, right, bottom int) Rect {
	return Rect{r.X - left, r.Y - top, r.W + left + right, r.H + top + bottom}
}

// Face is a style of text: it determines the size and the CSS class.
type Face int

// Faces. All but Title and Head are monospaced, so that a text's width is
// known without the reader's fonts.
const (
	Title Face = iota
	Head
	Strong
	Body
	Small
)

// size is the font size in pixels, by face.
func (f Face) size() int { return [...]int{Title: 20, Head: 13, Strong: 12, Body: 11, Small: 10}[f] }

// class is the CSS class, by face.
func (f Face) class() string {
	return [...]string{Title: "title", Head: "head", Strong: "strong", Body: "body", Small: "small"}[f]
}

// measureText returns the largest width that a text may have, in pixels. A glyph of the usual monospaced fonts is 0.55 (Consolas)
// to 0.61 (DejaVu Sans Mono) of the size wide; those of the proportional faces are narrower on average.
func measureText(text string, f Face) int {
	return (utf8.RuneCountInString(text)*f.size()*62 + 99) / 100
}

// clip cuts a text to a width, with an ellipsis at the end.
func clip(text string, f Face, width int) string {
	if measureText(text, f) <= width {
		return text
	}
	runes := []rune(text)
	for len(runes) > 0 && measureText(string(runes)+"…", f) > width {
		runes = runes[:len(runes)-1]
	}
	return string(runes) + "…"
}

// Text is one line of text; X and Y are the start of its baseline.
type Text struct {
	X, Y int
	Face Face
	Text string
	// Class is an additional CSS class: "muted", "bad".
	Class string
}

// Box returns the largest area of the text.
func (t Text) Box() Rect {
	ascent := t.Face.size() * 4 / 5
	return Rect{t.X, t.Y - ascent, measureText(t.Text, t.Face), t.Face.size()}
}

// Point is a position on the page.
type Point struct{ X, Y int }
