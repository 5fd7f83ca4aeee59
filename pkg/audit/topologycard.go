package audit

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
)

// Measures of cards, in pixels.
const (
	cardWidth   = 300
	bridgeWidth = 158
	chipWidth   = 178
	chipHeight  = 38
	lineHeight  = 15
	padding     = 8
	// textLeft leaves room for the verdict's bar and symbol.
	textLeft = 34
)

// newCard makes the card of a node at a place.
func (l *layout) newCard(n *Node, x, y int) Card {
	switch {
	case isChip(n):
		return l.entitled(l.chip(n, x, y))
	case n.Device.IsBridge():
		return l.entitled(l.bridgeCard(n, x, y))
	}
	return l.entitled(l.functionCard(n, x, y))
}

// entitled adds a card's title and link.
func (l *layout) entitled(c Card) Card {
	c.Title = l.caption(c.Device)
	if l.marks != nil {
		c.Page = l.marks.Page(c.Device.Address)
	}
	return c
}

// isChip reports whether a function gets a small card: it is not of an assignable
// type, and has no functions below it.
func isChip(n *Node) bool {
	return len(n.Children)+len(n.VFs) == 0 && (n.Device.Type == device.Other || n.Device.IsBridge() && len(n.Device.Upstream) == 0 && n.Device.Capabilities.Express == nil)
}

func (l *layout) functionCard(n *Node, x, y int) Card {
	c := Card{Box: Rect{x, y, cardWidth, 0}, Kind: FunctionCard, Grade: l.grade(n.Device, n.Device.Grade()), Device: n.Device}
	tag := strings.ToUpper(string(n.Device.Type))
	lines := lines{card: &c, left: textLeft, right: padding}
	lines.add(Strong, "", n.Device.Address.String())
	c.Texts = append(c.Texts, Text{c.Box.Right() - padding - measureText(tag, Small), c.Texts[0].Y, Small, tag, "muted"})
	lines.add(Body, "", n.Device.Product())
	lines.add(Body, "muted", driverLine(n.Device, l.panelNUMA))
	if n.Device.Near != nil {
		lines.add(Body, "muted", briefNearLine(n.Device))
	}
	if s := n.Device.Grade(); s == Bad || s == Concern {
		lines.add(Body, gradeClass(s), codeNames(n.Device))
	}
	for _, text := range append(n.Device.places(), n.Device.Waits(), n.Device.LeftOut()) {
		if text != "" {
			lines.add(Body, "muted", text)
		}
	}
	if text := l.failing(n.Device); text != "" {
		lines.add(Body, "bad", text)
	}
	for _, h := range l.holders(n.Device.Address) {
		lines.tag(h)
	}
	c.Box.H = lines.y - y + padding
	c.Symbol = &Symbol{Point{x + 20, y + padding + 6}, 7, c.Grade}
	return c
}

// lines fills a card with lines of text from the top.
type lines struct {
	card        *Card
	left, right int
	y           int
}

func (ls *lines) add(f Face, class, text string) {
	if ls.y == 0 {
		ls.y = ls.card.Box.Y + padding - 4
	}
	ls.y += lineHeight
	width := ls.card.Box.W - ls.left - ls.right
	ls.card.Texts = append(ls.card.Texts, Text{ls.card.Box.X + ls.left, ls.y - 1, f, clip(text, f, width), class})
}

// tag adds a line that names a holder.
func (ls *lines) tag(h Holder) {
	ls.y += 3
	ls.add(Body, "", h.Letter+" "+h.Name)
	t := ls.card.Texts[len(ls.card.Texts)-1]
	ls.card.Texts = ls.card.Texts[:len(ls.card.Texts)-1]
	ls.card.Tags = append(ls.card.Tags, Tag{t.Box().Grow(5, 3, 5, 3), h.Color, t})
	ls.y += 3
}

func (l *layout) bridgeCard(n *Node, x, y int) Card {
	c := Card{Box: Rect{x, y, bridgeWidth, 0}, Kind: BridgeCard, Grade: l.ownGrade(n.Device), Culprit: l.isCulprit(n.Device), Device: n.Device}
	lines := lines{card: &c, left: padding + 6, right: padding}
	if c.Grade == Bad {
		c.Symbol = &Symbol{Point{c.Box.Right() - padding - 8, y + padding + 6}, 7, c.Grade}
	}
	lines.add(Strong, "", n.Device.Address.String())
	lines.add(Small, "muted", Kind(n.Device)+l.ownGroup(n.Device))
	lines.add(Small, "muted", portLine(n.Device))
	for _, text := range n.Device.exclusive { // the tooltip has the whole text
		lines.add(Small, "muted", text)
	}
	if text := l.failing(n.Device); text != "" {
		lines.add(Small, "bad", text)
	}
	c.Box.H = lines.y - y + padding
	return c
}

func (l *layout) chip(n *Node, x, y int) Card {
	c := Card{Box: Rect{x, y, chipWidth, chipHeight}, Kind: Chip, Grade: l.ownGrade(n.Device), Culprit: l.isCulprit(n.Device), Device: n.Device}
	lines := lines{card: &c, left: 24, right: 4, y: y + 1}
	what := n.Device.Product()
	if n.Device.IsBridge() {
		what = Kind(n.Device)
	}
	lines.add(Small, "", n.Device.Address.String()+l.ownGroup(n.Device))
	lines.add(Small, "muted", firstText(n.Device.Driver, what))
	if c.Grade != None {
		c.Symbol = &Symbol{Point{x + 14, y + chipHeight/2}, 6, c.Grade}
	}
	return c
}

// ownGrade is the function's own grade, but Bad for one that is at fault.
func (l *layout) ownGrade(d *Device) Grade {
	if l.isCulprit(d) {
		return Bad
	}
	return d.Grade()
}

// isCulprit reports whether d keeps other functions from being isolated, or is at fault in a finding. The legend defines red cards
// like this, regardless of the verdict on d itself.
func (l *layout) isCulprit(d *Device) bool { return l.culprits[d.Address] }

// ownGroup names the group of a function that has no outline.
func (l *layout) ownGroup(d *Device) string {
	if d.Group == nil || len(d.GroupMembers) > 1 {
		return ""
	}
	return " · " + groupName(d)
}

func groupName(d *Device) string {
	if d.Group == nil {
		return "no group"
	}
	return "g" + strconv.Itoa(*d.Group)
}

// driverLine returns the driver, the kernel's names of the function's interfaces and drives, and anything unusual.
func driverLine(d *Device, panel *int) string {
	parts := []string{firstText(d.Driver, "no driver")}
	parts = append(parts, slices.Concat(d.Children.Net, d.Children.NVMe, d.Children.DRM)...)
	if len(d.Uses) > 0 {
		parts = append(parts, "in use")
	}
	if d.NUMANode != nil && (panel == nil || *panel != *d.NUMANode) {
		parts = append(parts, fmt.Sprintf("NUMA %d", *d.NUMANode))
	}
	return strings.Join(parts, " · ")
}

// nearLine names the NICs that belong to a GPU, or the GPUs that belong to a NIC.
func nearLine(d *Device) string { return nearWord(d) + " " + d.Near.Words() }

// briefNearLine is like [nearLine], but names only one neighbor, so that it fits onto a card.
func briefNearLine(d *Device) string { return nearWord(d) + " " + d.Near.Brief() }

func nearWord(d *Device) string {
	word := "GPU"
	if d.Type == device.GPU {
		word = "NIC"
	}
	return output.Plural(len(d.Near.Addresses), word)
}

// portLine returns a bridge's driver, unless it is the usual driver pcieport, and the state of its ACS, unless it needs none.
func portLine(d *Device) string {
	var parts []string
	if d.Driver != "pcieport" {
		parts = append(parts, firstText(d.Driver, "no driver"))
	}
	if d.ACS != "" && (d.ACS != isolation.ACSOn || d.Capabilities.ACS != nil) {
		parts = append(parts, "ACS "+string(d.ACS))
	}
	return strings.Join(parts, " · ")
}

// codeNames lists the codes of the reasons, or of the grave notes.
func codeNames(d *Device) string {
	reasons := d.Against()
	if d.Grade() != Bad {
		reasons = d.Grave()
	}
	names := make([]string, len(reasons))
	for i := range reasons {
		names[i] = string(reasons[i].Code)
	}
	return strings.Join(slices.Compact(names), ", ")
}

func firstText(texts ...string) string {
	for _, t := range texts {
		if t != "" {
			return t
		}
	}
	return ""
}

// tooltip describes a function completely in a few lines.
func tooltip(d *Device) string {
	lines := []string{
		fmt.Sprintf("%s %s", d.Address, d.Type),
		fmt.Sprintf("%s [%s:%s], class %s", d.Product(), d.Vendor, d.Device, d.Class),
		"driver: " + firstText(d.Driver, "none"),
	}
	if d.Group != nil {
		lines = append(lines, groupTitle(d))
	}
	if d.NUMANode != nil {
		lines = append(lines, fmt.Sprintf("NUMA node %d", *d.NUMANode))
	}
	if d.Link != nil {
		lines = append(lines, fmt.Sprintf("link: %s x%d", d.Link.Speed, d.Link.Width))
	}
	if d.Near != nil {
		lines = append(lines, nearLine(d))
	}
	if d.PFAddress != nil {
		lines = append(lines, fmt.Sprintf("VF %d of %s", *d.VFIndex, d.PFAddress))
	}
	if d.ACS != "" {
		lines = append(lines, "ACS: "+string(d.ACS))
	}
	lines = append(lines, d.places()...)
	if !d.IsBridge() {
		lines = append(lines, judged(d)...)
	}
	return strings.Join(lines, "\n")
}

// judged returns the verdict with its reasons.
func judged(d *Device) []string {
	reset := "none"
	if d.Reset != nil {
		reset = resetWord(d)
	}
	lines := []string{"reset: " + reset}
	for _, u := range d.Uses {
		lines = append(lines, "in use: "+u.String())
	}
	if d.Isolated {
		lines = append(lines, "isolated")
	}
	for _, r := range d.Reasons {
		lines = append(lines, fmt.Sprintf("not isolated (%s): %s", r.Severity, r.Text))
	}
	if d.Isolated && d.Grade() == Bad {
		for _, r := range d.Against() {
			lines = append(lines, "every claim is refused: "+r.Text)
		}
	}
	if text := d.Waits(); text != "" {
		lines = append(lines, text+": "+d.Against()[0].Text)
	}
	if r := d.leaving(); r != nil {
		lines = append(lines, d.LeftOut()+": "+r.Text, "fix: "+r.Fix)
	}
	for _, r := range d.Grave() {
		lines = append(lines, fmt.Sprintf("note (%s): %s", r.Severity, r.Text))
	}
	return lines
}
