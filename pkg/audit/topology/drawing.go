package topology

import "github.com/kata-vfio/kata-vfio/pkg/audit"

// Drawing is a laid out page: every box, line and text with its place.
type Drawing struct {
	Width, Height int
	// Name and Description tell readers who can't see it what this is.
	Name, Description string
	Texts             []Text
	Panels            []Rect
	Links             []Link
	Cards             []Card
	Outlines          []Outline
	Symbols           []Symbol
	// Areas are what can be clicked upon where cards are too small.
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
	Rect
	Kind CardKind
	// Grade colours the card.
	Grade audit.Grade
	// Culprit is set for a bridge that keeps functions from being isolated; its
	// Grade is Bad then.
	Culprit bool
	Device  *audit.Device
	Texts   []Text
	// Symbol repeats the standing as a shape; nil for None.
	Symbol *Symbol
	// Tags name who has the function.
	Tags []Tag
	// Title tells everything about it in a few lines.
	Title string
	// Page is what a click leads to, in an HTML page.
	Page string
}

// Symbol is a check mark, an exclamation mark or a cross, by its center.
type Symbol struct {
	Point
	Radius int
	Grade  audit.Grade
}

// Area is a part of an HTML page's drawing that leads somewhere.
type Area struct {
	Rect
	Page, Title string
}

// Link is a line from a bridge to what is below it, through points.
type Link struct {
	Points []Point
	// Broken is set on the way between functions of different tenants that reach
	// each other.
	Broken bool
}

// Outline surrounds the members of one IOMMU group.
type Outline struct {
	Rect
	Group int
	Label Text
	// Title lists the members.
	Title string
	// Alone is set where the group has one member.
	Alone bool
	// Broken is set where several tenants have functions of the group, and Symbol
	// says so.
	Broken bool
	Symbol *Symbol
}
