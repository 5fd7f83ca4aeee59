package report

import (
	"cmp"
	"slices"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// timeline shows the tenancies of functions over time, as a drawing and as a table.
type timeline struct {
	Height, Axis int
	Ticks        []tick
	Rows         []lane
	// Undrawn is the number of functions that the drawing leaves out.
	Undrawn int
	// Stays, Proven and Unproven say which parts of the legend the drawing needs.
	Stays, Proven, Unproven bool
}

// lane is one function's row.
type lane struct {
	Device pci.Address
	// Y is the top of its bars, and Base the line of its text.
	Y, Base int
	Bars    []bar
	Resets  []resetMark
}

// Middle is the height of its resets.
func (l *lane) Middle() int { return l.Y + barHeight/2 }

// Stay is the top of the marks of times in VMs.
func (l *lane) Stay() int { return l.Y + barHeight - stayHeight }

// resetMark is a reset and its place in the drawing.
type resetMark struct {
	Reset *Reset
	X     int
}

// bar is one tenancy.
type bar struct {
	Tenancy namedTenancy
	X, W    int
	// Label is the text that fits into it, and Indent is how far a reset at its start moves the label.
	Label  string
	Indent int
	// Stays are its times in VMs.
	Stays []stay
}

// stay is the time in one VM.
type stay struct{ X, W int }

// tick is a labeled time.
type tick struct {
	X    int
	Text string
	// End is set if the label ends at X, since the drawing has no room for its second half.
	End bool
}

// Anchor is the value of text-anchor.
func (t tick) Anchor() string {
	if t.End {
		return "end"
	}
	return "middle"
}

// Measures of the drawing, in pixels.
const (
	timelineWidth = 1000
	laneLeft      = 120
	laneHeight    = 30
	barHeight     = 20
	stayHeight    = 3
	axisHeight    = 26
	barsRight     = timelineWidth - 10
	glyph         = 7 // a letter's width, at most
	resetRadius   = 7 // half a reset's width
	labelEnd      = 3 // between a label and what follows
	maxLanes      = 60
	maxStays      = 50 // in one bar
)

// newTimeline draws tenancies, which are sorted by function, up to a time. If that is zero,
// the drawing ends with the last known time. It returns nil if there are none.
func newTimeline(sorted []Tenancy, until time.Time, who *tenants) *timeline {
	if len(sorted) == 0 {
		return nil
	}
	first, last := span(sorted, until)
	t := &timeline{Axis: axisHeight}
	left := map[pci.Address]bool{}
	for i := range sorted {
		held := &sorted[i]
		row := t.lane(held.Device)
		if row == nil {
			left[held.Device] = true
			continue
		}
		b := newBar(namedTenancy{held, who.named(held.Tenant)}, first, last)
		row.Bars = append(row.Bars, b)
		row.resets(held, first, last)
		t.Stays = t.Stays || len(b.Stays) > 0
	}
	for i := range t.Rows {
		t.Rows[i].clear()
		for _, r := range t.Rows[i].Resets {
			t.Proven, t.Unproven = t.Proven || r.Reset.Proven, t.Unproven || !r.Reset.Proven
		}
	}
	t.Undrawn = len(left)
	t.Height = axisHeight + len(t.Rows)*laneHeight + 4
	t.Ticks = ticks(first, last)
	return t
}

func sortedTenancies(list []Tenancy) []Tenancy {
	return slices.SortedStableFunc(slices.Values(list), func(a, b Tenancy) int {
		return cmp.Or(a.Device.Compare(b.Device), a.From.Compare(b.From))
	})
}

// resets marks those of a tenancy whose time is known, each once.
func (l *lane) resets(held *Tenancy, first, last time.Time) {
	for _, r := range []*Reset{held.ResetBefore, held.ResetAfter} {
		// The reset after a tenancy is the reset before the next one.
		same := func(o resetMark) bool { return o.Reset.At.Equal(r.At) }
		if r == nil || r.At.IsZero() || r.At.Before(first) || r.At.After(last) || slices.ContainsFunc(l.Resets, same) {
			continue
		}
		l.Resets = append(l.Resets, resetMark{r, place(r.At, first, last)})
	}
}

// lane returns the function's row: a new one for a new function, and nil if there is no room.
func (t *timeline) lane(a pci.Address) *lane {
	// Tenancies are sorted by function, so that only the last row can be this one's.
	if n := len(t.Rows); n > 0 && t.Rows[n-1].Device == a {
		return &t.Rows[n-1]
	}
	if len(t.Rows) == maxLanes {
		return nil
	}
	y := axisHeight + len(t.Rows)*laneHeight
	t.Rows = append(t.Rows, lane{Device: a, Y: y + (laneHeight-barHeight)/2, Base: y + laneHeight/2 + 4})
	return &t.Rows[len(t.Rows)-1]
}

// times returns all known times of the tenancy.
func (t *Tenancy) times() []time.Time {
	list := []time.Time{t.From, t.To}
	for _, r := range []*Reset{t.ResetBefore, t.ResetAfter} {
		if r != nil {
			list = append(list, r.At)
		}
	}
	if t.Ledger != nil {
		for _, s := range t.Ledger.Stays {
			list = append(list, s.From)
			if s.To != nil {
				list = append(list, *s.To)
			}
		}
	}
	return list
}

// until returns the end of the tenancy's bar. A present tenancy lasts to the end of the drawing. The end of a lost one is not known, and
// only what is known is drawn: another tenant may have the function since.
func (t *Tenancy) until(last time.Time) time.Time {
	switch {
	case t.Ended():
		return t.To
	case t.Open():
		return last
	}
	return slices.MaxFunc(t.times(), time.Time.Compare)
}

// span returns the first and the last time of the drawing, with a little room before the
// first tenancy.
func span(list []Tenancy, until time.Time) (first, last time.Time) {
	last = until
	for i := range list {
		for _, at := range list[i].times() {
			if at.IsZero() {
				continue
			}
			if first.IsZero() || at.Before(first) {
				first = at
			}
			if at.After(last) {
				last = at
			}
		}
	}
	// Without a positive length, the axis would have no scale.
	if first.IsZero() || !first.Before(last) {
		first = last.Add(-time.Hour)
	}
	// A bar that starts at the edge looks as if its start is unknown.
	return first.Add(-last.Sub(first) / 50), last
}

func newBar(t namedTenancy, first, last time.Time) bar {
	from, to := t.From, t.until(last)
	if from.IsZero() {
		from = first
	}
	b := bar{Tenancy: t, X: place(from, first, last)}
	b.W = max(3, place(to, first, last)-b.X)
	if t.Ledger != nil {
		b.Stays = newStays(t.Ledger.Stays, to, first, last)
	}
	return b
}

// newStays draws the times in VMs. One without an end is drawn to the end of its bar.
func newStays(list []facts.Stay, barEnd, first, last time.Time) []stay {
	var stays []stay
	for _, s := range list[max(len(list)-maxStays, 0):] {
		to := barEnd
		if s.To != nil {
			to = *s.To
		}
		x := place(s.From, first, last)
		stays = append(stays, stay{x, max(2, place(to, first, last)-x)})
	}
	return stays
}

// textGap is the room between a bar's start and its label.
const textGap = 5

// TextX is the start of its label.
func (b *bar) TextX() int { return b.X + textGap + b.Indent }

// clear moves labels so that resets, which are drawn above the bars, do not cover them. A label starts to the right of the resets
// at its bar's start, and ends before the next reset.
func (l *lane) clear() {
	for i := range l.Bars {
		b := &l.Bars[i]
		start, end := b.X, b.X+b.W
		for _, r := range slices.SortedFunc(slices.Values(l.Resets), func(a, b resetMark) int { return cmp.Compare(a.X, b.X) }) {
			switch {
			case r.X+resetRadius <= start || r.X-resetRadius >= end:
			case r.X-resetRadius <= start+textGap+glyph:
				start = r.X + resetRadius
			default:
				end = r.X - resetRadius
			}
		}
		b.Indent = start - b.X
		b.Label = fitting(end-start-textGap-labelEnd, b.Tenancy.Who.Letter+" "+b.Tenancy.Name(), b.Tenancy.Who.Letter)
	}
}

// fitting returns the first text that fits into the width, or none.
func fitting(width int, texts ...string) string {
	for _, t := range texts {
		if len([]rune(t))*glyph <= width {
			return t
		}
	}
	return ""
}

// place returns the place of a time on the axis.
func place(at, first, last time.Time) int {
	share := float64(at.Sub(first)) / float64(last.Sub(first))
	return laneLeft + int(share*(barsRight-laneLeft))
}

// ticks labels round times.
func ticks(first, last time.Time) []tick {
	step, layout := chooseStep(last.Sub(first))
	var list []tick
	for at := first.Truncate(step).Add(step); !at.After(last) && len(list) < 12; at = at.Add(step) {
		x := place(at, first, last)
		list = append(list, tick{X: x, Text: at.Format(layout), End: x+len(layout)*glyph/2 > timelineWidth})
	}
	return list
}

// chooseStep returns a step that divides a time into at most eight parts, and the layout of
// its labels.
func chooseStep(d time.Duration) (step time.Duration, layout string) {
	const day = 24 * time.Hour
	for _, step := range []time.Duration{time.Second, 10 * time.Second, time.Minute, 5 * time.Minute, 15 * time.Minute, time.Hour, 3 * time.Hour, 12 * time.Hour} {
		if d/step <= 8 {
			if step < time.Minute {
				return step, "15:04:05"
			}
			return step, "01-02 15:04"
		}
	}
	for _, days := range []time.Duration{1, 2, 7, 30, 90, 365} {
		if d/(days*day) <= 8 {
			return days * day, "2006-01-02"
		}
	}
	return d / 6, "2006-01-02"
}
