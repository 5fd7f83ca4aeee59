package audit

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// Measures of outlines, in pixels: the distance from the cards, and the strip
// on the right that holds the group's number.
const (
	outlinePad = 6
	stripWidth = 36
)

// outlines returns boxes around the cards of each IOMMU group. Bridges, chips and VFs that are alone in their group get no box;
// their cards show the group's number. The same holds for VFs that can't be in one box with their PF. If a box around all members
// would contain a card of another group, the group gets several boxes.
func outlines(cards []Card) []Outline {
	var list []Outline
	for _, group := range groupCards(cards) {
		if len(group) == 1 && group[0].Kind != FunctionCard || group[0].small() {
			continue
		}
		list = append(list, surround(group, cards)...)
	}
	return list
}

// small reports whether a card is a VF's.
func (c *Card) small() bool { return c.Kind == Cell || c.Kind == Dot }

// groupCards returns the cards of each group, sorted by group number and then by position, a PF before its VFs.
func groupCards(cards []Card) [][]Card {
	byNumber := map[int][]Card{}
	for _, c := range cards {
		if c.Device.Group != nil {
			byNumber[*c.Device.Group] = append(byNumber[*c.Device.Group], c)
		}
	}
	groups := make([][]Card, 0, len(byNumber))
	for _, group := range byNumber {
		slices.SortFunc(group, func(a, b Card) int { return cmp.Or(cmp.Compare(a.Box.Y, b.Box.Y), cmp.Compare(a.Box.X, b.Box.X)) })
		groups = append(groups, group)
	}
	slices.SortFunc(groups, func(a, b []Card) int { return *a[0].Device.Group - *b[0].Device.Group })
	return groups
}

// surround returns the boxes around one group's cards.
func surround(group, all []Card) []Outline {
	boxes := []Rect{group[0].Box}
	for _, c := range group[1:] {
		last := &boxes[len(boxes)-1]
		if joined := last.Union(c.Box); !holdsStranger(joined, group, all) {
			*last = joined
		} else if !c.small() {
			boxes = append(boxes, c.Box)
		}
	}
	list := make([]Outline, len(boxes))
	for i, box := range boxes {
		list[i] = outline(box, group[0].Device)
	}
	return list
}

func holdsStranger(box Rect, group, all []Card) bool {
	outer := margin(box)
	return slices.ContainsFunc(all, func(c Card) bool {
		return groupNumber(c.Device) != *group[0].Device.Group && outer.Overlaps(c.Box)
	})
}

// groupNumber is -1 for a function without a group.
func groupNumber(d *Device) int {
	if d.Group == nil {
		return -1
	}
	return *d.Group
}

// margin is the outline around a box of cards.
func margin(box Rect) Rect {
	return box.Grow(outlinePad, outlinePad, outlinePad+stripWidth, outlinePad)
}

func outline(box Rect, d *Device) Outline {
	rect := margin(box)
	text := "g" + strconv.Itoa(*d.Group)
	strip := stripWidth + outlinePad/2
	label := Text{Face: Strong, Text: clip(text, Strong, strip), Class: "group"}
	label.X = rect.Right() - strip + (strip-measureText(label.Text, Strong))/2
	label.Y = rect.Y + rect.H/2 + 4
	return Outline{Box: rect, Group: *d.Group, Label: label, Title: groupTitle(d), Alone: len(d.GroupMembers) == 1}
}

// groupTitle lists the members for the tooltip.
func groupTitle(d *Device) string {
	return fmt.Sprintf("IOMMU group %d: %s", *d.Group, joinAddresses(d.GroupMembers))
}

func joinAddresses(addrs []pci.Address) string {
	texts := make([]string, len(addrs))
	for i, a := range addrs {
		texts[i] = a.String()
	}
	return strings.Join(texts, ", ")
}
