package page

import (
	"cmp"
	"slices"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// timeline is who had which function when: drawn, and as a table.
type timeline struct {
	Height, Axis int
	Ticks        []tick
	Rows         []lane
	// Undrawn is how many functions the drawing leaves out.
	Undrawn int
	Table   []tenancyOf
	// Left is how many tenancies the table leaves out.
	Left int
}

// lane is one function's row.
type lane struct {
	Device pci.Address
	// Y is the top of its bars, and Base the line of its text.
	Y, Base int
	Bars    []bar
}

// bar is one tenancy.
type bar struct {
	tenancyOf
	X, W int
	// Label is what fits into it.
	Label string
}

// tick is a labelled time.
type tick struct {
	X    int
	Text string
}

// Measures of the drawing, in pixels.
const (
	timelineWidth = 1000
	laneLeft      = 120
	laneHeight    = 30
	barHeight     = 20
	axisHeight    = 26
	barsRight     = timelineWidth - 10
	glyph         = 7 // a letter's width, at most
	maxLanes      = 60
	maxTenancies  = 300
)

// timelineOf returns nil where nobody is known to have had a function.
func timelineOf(p *Page, who *tenants) *timeline {
	if len(p.Tenancies) == 0 {
		return nil
	}
	all := sortedTenancies(p.Tenancies)
	first, last := span(p)
	t := &timeline{Axis: axisHeight}
	for i := range all {
		held := tenancyOf{&all[i], who.named(all[i].Tenant)}
		if len(t.Table) < maxTenancies {
			t.Table = append(t.Table, held)
		} else {
			t.Left++
		}
		if row := t.lane(all[i].Device); row != nil {
			row.Bars = append(row.Bars, barOf(held, first, last))
		}
	}
	t.Height = axisHeight + len(t.Rows)*laneHeight + 4
	t.Ticks = ticks(first, last)
	return t
}

func sortedTenancies(list []Tenancy) []Tenancy {
	sorted := slices.Clone(list)
	slices.SortStableFunc(sorted, func(a, b Tenancy) int {
		return cmp.Or(a.Device.Compare(b.Device), a.From.Compare(b.From))
	})
	return sorted
}

// lane returns the function's row, a new one for a new function, and nil where
// there is no room.
func (t *timeline) lane(a pci.Address) *lane {
	if n := len(t.Rows); n > 0 && t.Rows[n-1].Device == a {
		return &t.Rows[n-1]
	}
	if len(t.Rows) == maxLanes {
		t.Undrawn++
		return nil
	}
	y := axisHeight + len(t.Rows)*laneHeight
	t.Rows = append(t.Rows, lane{Device: a, Y: y + (laneHeight-barHeight)/2, Base: y + laneHeight/2 + 4})
	return &t.Rows[len(t.Rows)-1]
}

// span returns from when to when the drawing goes: to the time of the audit, and
// with a little room before the first tenancy.
func span(p *Page) (first, last time.Time) {
	last, _ = time.Parse(time.RFC3339, p.Report.Subject.Time)
	for i := range p.Tenancies {
		t := &p.Tenancies[i]
		for _, at := range []time.Time{t.From, t.To} {
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
	if first.IsZero() || !first.Before(last) {
		first = last.Add(-time.Hour)
	}
	return first.Add(-last.Sub(first) / 50), last
}

func barOf(t tenancyOf, first, last time.Time) bar {
	from, to := t.From, t.To
	if from.IsZero() {
		from = first
	}
	if to.IsZero() {
		to = last
	}
	b := bar{tenancyOf: t, X: place(from, first, last)}
	b.W = max(3, place(to, first, last)-b.X)
	b.Label = fitting(b.W-8, t.Who.Letter+" "+t.Name(), t.Who.Letter)
	return b
}

// TextX is where its label begins.
func (b *bar) TextX() int { return b.X + 5 }

// fitting returns the first text that fits into the width, or none.
func fitting(width int, texts ...string) string {
	for _, t := range texts {
		if len([]rune(t))*glyph <= width {
			return t
		}
	}
	return ""
}

// place returns where on the axis a time is.
func place(at, first, last time.Time) int {
	share := float64(at.Sub(first)) / float64(last.Sub(first))
	return laneLeft + int(share*(barsRight-laneLeft))
}

// ticks labels round times.
func ticks(first, last time.Time) []tick {
	step, layout := stepOf(last.Sub(first))
	var list []tick
	for at := first.Truncate(step).Add(step); !at.After(last) && len(list) < 12; at = at.Add(step) {
		list = append(list, tick{place(at, first, last), at.Format(layout)})
	}
	return list
}

// stepOf returns a step by which a time is divided into at most eight, and how to
// write it.
func stepOf(d time.Duration) (step time.Duration, layout string) {
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
