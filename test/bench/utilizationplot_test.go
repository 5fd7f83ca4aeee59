package bench

import (
	"fmt"
	"image/color"
	"math"
	"testing"
	"time"

	gonum "gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"github.com/kata-vfio/kata-vfio/test/bench/plot"
	"github.com/kata-vfio/kata-vfio/test/bench/utilization"
)

// lines are the policies of a plot.
type lines struct {
	one, best, byShare plotter.XYs
}

// add adds a point to each line.
func (l *lines) add(x float64, one, best, byShare float64) {
	l.one = append(l.one, plotter.XY{X: x, Y: one})
	l.best = append(l.best, plotter.XY{X: x, Y: best})
	l.byShare = append(l.byShare, plotter.XY{X: x, Y: byShare})
}

// draw draws the lines. One pool is on top.
func (l *lines) draw(b *testing.B, p *gonum.Plot, name string) {
	b.Helper()
	for _, one := range []struct {
		name   string
		points plotter.XYs
		color  color.Color
		dashes []vg.Length
	}{
		{"split by the share of VM jobs", l.byShare, color.RGBA{R: 0xc0, G: 0x50, B: 0x28, A: 0xff}, []vg.Length{vg.Points(2), vg.Points(2)}},
		{"best split in hindsight", l.best, color.RGBA{R: 0x80, G: 0x80, B: 0x80, A: 0xff}, []vg.Length{vg.Points(6), vg.Points(3)}},
		{"one pool, binding on demand", l.one, color.RGBA{R: 0x1f, G: 0x5f, B: 0xa8, A: 0xff}, nil},
	} {
		line, err := plotter.NewLine(one.points)
		if err != nil {
			b.Fatal(err)
		}
		line.Color, line.Dashes, line.Width = one.color, one.dashes, vg.Points(1.8)
		p.Add(line)
		p.Legend.Add(one.name, line)
	}
	p.Add(plotter.NewGrid())
	if _, err := plot.Save(p, name, 16*vg.Centimeter, 9*vg.Centimeter); err != nil {
		b.Fatal(err)
	}
}

func utilizationPlot(title, x, y string) *gonum.Plot {
	p := gonum.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	p.Title.TextStyle.Font.Size, p.Title.Padding = vg.Points(11), vg.Points(6)
	// Left of its text, the legend doesn't depend on the fonts that a browser has.
	p.Legend.Left, p.Legend.XOffs, p.Legend.YOffs, p.Legend.Padding = true, vg.Points(8), vg.Points(6), vg.Points(2)
	return p
}

// plotShares draws the GPU-hours used against the share of VM jobs.
func plotShares(b *testing.B, a *utilization.Allocator) {
	b.Helper()
	var l lines
	for _, share := range []float64{0, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 1} {
		c := gpuTraces(a, usualLoad, share, 1)
		l.add(100*share, 100*c.Under(onePool()).Used, 100*c.Hindsight(onePool(), utilization.MoreUsed).Used, 100*c.Under(splitBy(share)).Used)
	}
	p := utilizationPlot("GPU-hours used at a load of 80%", "VM jobs, % of jobs", "GPU-hours used, %, from 70")
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = -2, 104, 70, 78
	l.draw(b, p, "utilization-share")
}

// plotLoads draws the waits of large jobs against the load.
func plotLoads(b *testing.B, a *utilization.Allocator) {
	b.Helper()
	var l lines
	w := figuresTable(fmt.Sprintf("%.0f%% VM jobs", 100*usualShare))
	defer w.Flush()
	for _, load := range []float64{0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1} {
		c := gpuTraces(a, load, usualShare, 1)
		one, best, byShare := c.Under(onePool()), c.Hindsight(onePool(), utilization.FewerRefused), c.Under(splitBy(usualShare))
		for _, row := range []struct {
			name string
			f    utilization.Figures
		}{{"split by the share of VM jobs", byShare}, {"best split in hindsight: refused jobs", best}, {"one pool", one}} {
			figuresRow(w, fmt.Sprintf("load %.1f, %s", load, row.name), row.f)
		}
		l.add(100*load, one.Large.P95.Hours(), best.Large.P95.Hours(), byShare.Large.P95.Hours())
	}
	p := utilizationPlot("Queueing time (p95) of jobs of 8 GPUs or more, 30% VM jobs", "load, % of the cluster's GPU-hours", "hours")
	p.Legend.Top = true
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 38, 104, -0.5, 32
	p.Y.Tick.Marker = gonum.ConstantTicks{{Value: 0, Label: "0"}, {Value: 6, Label: "6"}, {Value: 12, Label: "12"}, {Value: 18, Label: "18"}, {Value: 24, Label: "24"}}
	l.draw(b, p, "utilization-wait")
}

// plotCosts draws the GPU-hours used against the time to bind a GPU and restore its driver.
func plotCosts(b *testing.B, c *utilization.Comparison, best utilization.Figures) {
	b.Helper()
	var l lines
	byShare := c.Under(splitBy(usualShare))
	w := figuresTable(fmt.Sprintf("one pool, load %.1f", usualLoad))
	defer w.Flush()
	for _, seconds := range []float64{0.1, 0.3, 1, 3, 10, 30, 60, 120, 300, 600, 1200, 2400, 4800} {
		policy := onePool()
		policy.Costs.Bind = time.Duration(seconds * float64(time.Second))
		policy.Costs.Restore = policy.Costs.Bind
		one := c.Under(policy)
		figuresRow(w, fmt.Sprintf("%g s to bind, and again to restore", seconds), one)
		l.add(math.Log10(seconds), 100*one.Used, 100*best.Used, 100*byShare.Used)
	}
	p := utilizationPlot("GPU-hours used, by the time that binding takes", "time to bind a GPU, and again to restore its driver", "GPU-hours used, %, from 70")
	p.X.Tick.Marker = gonum.ConstantTicks{ // the axis is logarithmic
		{Value: -1, Label: "0.1 s"},
		{Value: 0, Label: "1 s"},
		{Value: 1, Label: "10 s"},
		{Value: math.Log10(60), Label: "1 min"},
		{Value: math.Log10(600), Label: "10 min"},
		{Value: math.Log10(3600), Label: "1 h"},
	}
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = -1.1, 3.8, 70, 78
	l.draw(b, p, "utilization-costs")
}
