package plot

import (
	"image/color"
	"slices"
	"strconv"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Bar is a phase of what a row of a waterfall shows.
type Bar struct {
	Row, Phase string
	Start, End time.Duration
}

// labeledRows is the number of rows up to which each has its name beside it.
const labeledRows = 16

// Waterfall shows bars from left to right, with the first row on top, in a plot of that width. Each phase has a color.
// Later bars lie upon earlier ones of their row.
func Waterfall(title string, width vg.Length, bars []Bar) *plot.Plot {
	rows, phases := names(bars, func(b Bar) string { return b.Row }), names(bars, func(b Bar) string { return b.Phase })
	p := plot.New()
	p.Title.Text, p.Title.Padding = title, vg.Millimeter
	axis := axisOf(bars)
	p.X.Label.Text = axis.unit
	p.X.Min, p.Y.Min, p.Y.Max = 0, -0.6, float64(len(rows))-0.4
	p.Y.Tick.Marker = plot.ConstantTicks(ticks(rows))
	p.Y.Tick.Length = 0
	for i, phase := range phases {
		shown := &phaseBars{axis: axis, rows: rows, color: shade(i)}
		for _, b := range bars {
			if b.Phase == phase {
				shown.bars = append(shown.bars, b)
			}
		}
		p.Add(shown)
		p.Legend.Add(phase, shown)
	}
	// Left of its text, the legend doesn't depend on the fonts that a browser has.
	p.Legend.Top, p.Legend.Left, p.Legend.XOffs, p.Legend.Padding = true, true, (width-labelsOf(rows))*(1-legendRoom), vg.Millimeter
	p.X.Max = axis.of(end(bars)) / (1 - 1.2*legendRoom)
	grid := plotter.NewGrid()
	grid.Horizontal.Width = 0
	p.Add(grid)
	p.X.Tick.Marker = until{p.X.Max / (1 + legendRoom/2)}
	return p
}

// legendRoom is the legend's share of the width, at the right of the bars.
const legendRoom = 0.22

// labelsOf returns about how wide the rows' names are.
func labelsOf(rows []string) vg.Length {
	if len(rows) > labeledRows {
		return 0
	}
	longest := 0
	for _, row := range rows {
		longest = max(longest, len(row))
	}
	return vg.Length(longest) * 2 * vg.Millimeter
}

// until marks an axis up to a limit.
type until struct{ limit float64 }

// Ticks returns the default ticks up to the limit, with numbers as short as they can be.
func (u until) Ticks(from, to float64) []plot.Tick {
	ticks := slices.DeleteFunc(plot.DefaultTicks{}.Ticks(from, to), func(t plot.Tick) bool { return t.Value > u.limit })
	for i := range ticks {
		if !ticks[i].IsMinor() {
			ticks[i].Label = strconv.FormatFloat(ticks[i].Value, 'g', -1, 64)
		}
	}
	return ticks
}

// WaterfallHeight returns a height at which a waterfall of so many rows and phases is readable.
func WaterfallHeight(bars []Bar) vg.Length {
	rows, phases := names(bars, func(b Bar) string { return b.Row }), names(bars, func(b Bar) string { return b.Phase })
	row := 0.6 * vg.Centimeter
	if len(rows) > labeledRows {
		row = 0.16 * vg.Centimeter
	}
	return max(row*vg.Length(len(rows)), 0.55*vg.Centimeter*vg.Length(len(phases))) + 2.4*vg.Centimeter
}

// names returns what the bars have in the order of its first bar.
func names(bars []Bar, of func(Bar) string) []string {
	var all []string
	for _, b := range bars {
		if name := of(b); !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	return all
}

func end(bars []Bar) time.Duration {
	var last time.Duration
	for _, b := range bars {
		last = max(last, b.End)
	}
	return last
}

// axis is the unit of the time axis.
type axis struct {
	unit string
	one  time.Duration
}

func axisOf(bars []Bar) axis {
	if end(bars) > 5*time.Second {
		return axis{"seconds", time.Second}
	}
	return axis{"milliseconds", time.Millisecond}
}

func (a axis) of(d time.Duration) float64 { return float64(d) / float64(a.one) }

func ticks(rows []string) []plot.Tick {
	if len(rows) > labeledRows {
		return nil
	}
	all := make([]plot.Tick, len(rows))
	for i, row := range rows {
		all[i] = plot.Tick{Value: float64(len(rows) - 1 - i), Label: row}
	}
	return all
}

// shade returns the i-th of twelve colors that differ in hue and in lightness (Paul Tol's "muted" and "bright" schemes).
func shade(i int) color.Color {
	palette := []color.RGBA{
		{0x33, 0x22, 0x88, 0xff},
		{0x88, 0xcc, 0xee, 0xff},
		{0x44, 0xaa, 0x99, 0xff},
		{0x11, 0x77, 0x33, 0xff},
		{0x99, 0x99, 0x33, 0xff},
		{0xdd, 0xcc, 0x77, 0xff},
		{0xcc, 0x66, 0x77, 0xff},
		{0x88, 0x22, 0x55, 0xff},
		{0xaa, 0x44, 0x99, 0xff},
		{0x66, 0xcc, 0xee, 0xff},
		{0xbb, 0xbb, 0xbb, 0xff},
		{0xee, 0x66, 0x77, 0xff},
	}
	return palette[i%len(palette)]
}

// phaseBars are the bars of one phase.
type phaseBars struct {
	axis  axis
	rows  []string
	bars  []Bar
	color color.Color
}

// Plot draws the bars.
func (s *phaseBars) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	for _, b := range s.bars {
		row := float64(len(s.rows) - 1 - slices.Index(s.rows, b.Row))
		s.fill(&c, x(s.axis.of(b.Start)), x(s.axis.of(b.End)), y(row-0.4), y(row+0.4))
	}
}

// Thumbnail draws the phase's color in the legend.
func (s *phaseBars) Thumbnail(c *draw.Canvas) { s.fill(c, c.Min.X, c.Max.X, c.Min.Y, c.Max.Y) }

func (s *phaseBars) fill(c *draw.Canvas, left, right, bottom, top vg.Length) {
	right = max(right, left+0.3) // what is too short to see is there all the same
	c.FillPolygon(s.color, []vg.Point{{X: left, Y: bottom}, {X: right, Y: bottom}, {X: right, Y: top}, {X: left, Y: top}})
}
