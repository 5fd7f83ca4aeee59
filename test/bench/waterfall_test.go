package bench

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"gonum.org/v1/plot/vg"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/prepare"
	"github.com/kata-vfio/kata-vfio/pkg/prepare/effects"
	"github.com/kata-vfio/kata-vfio/test/bench/plot"
)

// drawWidth is the width of the plots.
const drawWidth = 18 * vg.Centimeter

// phaseLog has the phases of claims that are prepared at once, as bars of a waterfall.
type phaseLog struct {
	mu    sync.Mutex
	begin time.Time
	rows  map[string]string // by claim
	bars  []plot.Bar
}

func (l *phaseLog) observe(e effects.Event) {
	end := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.begin.IsZero() {
		return
	}
	if l.rows[e.Claim.UID] == "" {
		l.rows[e.Claim.UID] = strconv.Itoa(len(l.rows) + 1)
	}
	l.bars = append(l.bars, plot.Bar{Row: l.rows[e.Claim.UID], Phase: string(e.Phase), Start: end.Add(-e.Took).Sub(l.begin), End: end.Sub(l.begin)})
}

// record returns the bars of what happens during work.
func (l *phaseLog) record(work func()) []plot.Bar {
	l.mu.Lock()
	l.begin, l.rows, l.bars = time.Now(), map[string]string{}, nil
	l.mu.Unlock()
	work()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.begin = time.Time{}
	return l.bars
}

// BenchmarkWaterfall draws the phases of 1, 8 and 64 claims that are prepared at once, natively on the scripted kernel,
// whose writes take as long as those of a slow driver. It prints the share of the time that is the kernel's.
func BenchmarkWaterfall(b *testing.B) {
	log := &phaseLog{}
	p, gpus := slowNodeWith(b, log.observe)
	for b.Loop() {
		for _, count := range []int{1, 8, manyClaims} {
			bars := log.record(func() { prepareAll(b, p, gpus[:count]) })
			unprepareAll(b, p, gpus[:count])
			drawWaterfall(b, count, bars)
		}
	}
	b.ReportMetric(0, "ns/op")
}

func prepareAll(b *testing.B, p *prepare.Preparer, gpus []pci.Address) {
	b.Helper()
	atOnce(b, gpus, func(ctx context.Context, gpu pci.Address) error {
		_, err := p.Prepare(ctx, request("gpu", gpu))
		return err
	})
}

func unprepareAll(b *testing.B, p *prepare.Preparer, gpus []pci.Address) {
	b.Helper()
	atOnce(b, gpus, func(ctx context.Context, gpu pci.Address) error {
		_, err := p.Unprepare(ctx, gpu.Label())
		return err
	})
}

// drawWaterfall draws the bars, and reports how much of a claim's time the kernel has, in the median.
func drawWaterfall(b *testing.B, count int, bars []plot.Bar) {
	b.Helper()
	title := fmt.Sprintf("Prepare of %d GPUs at once, on a kernel whose writes take %v", count, slowWrite())
	if count == 1 {
		title = fmt.Sprintf("Prepare of a GPU, on a kernel whose writes take %v", slowWrite())
	}
	if _, err := plot.Save(plot.Waterfall(title, drawWidth, bars), fmt.Sprintf("prepare-%d", count), drawWidth, plot.WaterfallHeight(bars)); err != nil {
		b.Fatal(err)
	}
	var kernel, whole time.Duration
	for _, bar := range bars {
		if took := bar.End - bar.Start; bar.Phase == string(effects.PhaseBind) || bar.Phase == string(effects.PhaseUnbind) {
			kernel += took
		}
		whole = max(whole, bar.End)
	}
	b.ReportMetric(100*float64(kernel)/float64(count)/float64(whole), fmt.Sprintf("percent-kernel-of-%d", count))
}
