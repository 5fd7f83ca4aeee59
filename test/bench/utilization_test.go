package bench

import (
	"fmt"
	"math"
	"os"
	"slices"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/kata-vfio/kata-vfio/test/bench/utilization"
)

const (
	// poolNodes is the size of the simulated cluster.
	poolNodes = 32
	// traceDays is how long jobs arrive. The first seven, as long as a job may take, are not counted.
	traceDays, fillDays = 28, 7
	// firstSeed is the seed of the first of the traces.
	firstSeed, traces = 1, 10
	// usualLoad and usualShare are those of the table.
	usualLoad, usualShare = 0.8, 0.3
)

// clusterDay is a day of the trace.
const clusterDay = 24 * time.Hour

// usualCosts has what the lab measures for a claim, 0.9 s, and assumes the rest: five seconds until a GPU's driver has let go, five
// until it has started again, one for the reset, ten for the VM.
func usualCosts() utilization.Costs {
	return utilization.Costs{Bind: 5900 * time.Millisecond, Restore: 5 * time.Second, Reset: time.Second, Boot: 10 * time.Second}
}

// onePool is a cluster with binding on demand. Its scheduler packs.
func onePool() utilization.Policy {
	return utilization.Policy{Nodes: poolNodes, VMNodes: utilization.OnePool, Costs: usualCosts(), Patience: clusterDay}
}

// splitBy is a cluster with VM nodes in proportion to the share.
func splitBy(share float64) utilization.Policy {
	p := onePool()
	p.VMNodes = int(math.Round(share * poolNodes))
	return p
}

// spreading has the scheduler's default score.
func spreading(p utilization.Policy) utilization.Policy {
	p.Order = utilization.Spread
	return p
}

// gpuTraces are traces of a load and a share of VM jobs, which swings over the day. With -short there is one, and a day of it counts.
func gpuTraces(a *utilization.Allocator, load, share, swing float64) *utilization.Comparison {
	days := sized[time.Duration](traceDays, fillDays+1)
	return &utilization.Comparison{
		Allocator: a, Span: utilization.Span{From: fillDays * clusterDay, To: days * clusterDay},
		Traces: utilization.Traces(utilization.Workload{
			Seed: firstSeed, Window: days * clusterDay, GPUs: poolNodes * utilization.PerNode, Load: load, VMShare: share, Swing: swing,
		}, sized(traces, 1)),
	}
}

// BenchmarkUtilization simulates a cluster of 256 GPUs under container jobs and VM jobs, split by labels and as one pool with binding
// on demand. It prints GPU-hours used, waits and refused jobs, and draws the plots.
func BenchmarkUtilization(b *testing.B) {
	for first := true; b.Loop(); first = false {
		if !first {
			continue // the seeds are fixed: it would print the same
		}
		a, err := utilization.NewAllocator(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		c := gpuTraces(a, usualLoad, usualShare, 1)
		one, best := c.Under(onePool()), c.Hindsight(onePool(), utilization.MoreUsed)
		showPolicies(b, c, one, best)
		b.ReportMetric(100*one.Used, "%-used-one-pool")
		b.ReportMetric(100*best.Used, "%-used-split-best")
		b.ReportMetric(100*one.Switching, "%-switching")
		showTraces(c)
		showConstant(gpuTraces(a, usualLoad, usualShare, 0))
		showPatience(c)
		showResets(c)
		showNeeded(c, one)
		plotCosts(b, c, best)
		plotLoads(b, a)
		plotShares(b, a)
	}
	b.ReportMetric(0, "ns/op")
}

// showPolicies prints a table of one load and share.
func showPolicies(b *testing.B, c *utilization.Comparison, one, best utilization.Figures) {
	b.Helper()
	half := onePool()
	half.VMNodes = poolNodes / 2
	w := figuresTable(fmt.Sprintf("load %.1f, %.0f%% VM jobs", usualLoad, 100*usualShare))
	defer w.Flush()
	for _, row := range []struct {
		name string
		f    utilization.Figures
	}{
		{"split in half", c.Under(half)},
		{"split by the share of VM jobs", c.Under(splitBy(usualShare))},
		{"best split in hindsight: GPU-hours", best},
		{"best split in hindsight: refused jobs", c.Hindsight(onePool(), utilization.FewerRefused)},
		{"one pool", one},
		{"split by the share, spreading", c.Under(spreading(splitBy(usualShare)))},
		{"best split: GPU-hours, spreading", c.Hindsight(spreading(onePool()), utilization.MoreUsed)},
		{"one pool, spreading", c.Under(spreading(onePool()))},
	} {
		figuresRow(w, row.name, row.f)
	}
}

// showTraces prints how far the traces agree.
func showTraces(c *utilization.Comparison) {
	var best, byShare []float64
	for i := range c.Traces {
		alone := *c
		alone.Traces = c.Traces[i : i+1]
		one := alone.Under(onePool()).Used
		best = append(best, 100*(one-alone.Hindsight(onePool(), utilization.MoreUsed).Used))
		byShare = append(byShare, 100*(one-alone.Under(splitBy(usualShare)).Used))
	}
	slices.Sort(best)
	slices.Sort(byShare)
	fmt.Printf("\nGPU-hours that one pool uses more in each trace, points: than the best split %.1f, than the split by the share %.1f\n", best, byShare)
}

// showConstant prints what a share of VM jobs that doesn't swing changes.
func showConstant(c *utilization.Comparison) {
	w := figuresTable(fmt.Sprintf("load %.1f, the same share at all hours", usualLoad))
	defer w.Flush()
	figuresRow(w, "split by the share of VM jobs", c.Under(splitBy(usualShare)))
	figuresRow(w, "best split in hindsight: GPU-hours", c.Hindsight(onePool(), utilization.MoreUsed))
	figuresRow(w, "one pool", c.Under(onePool()))
}

func figuresTable(title string) *tabwriter.Writer {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\n"+title+"\tGPU-hours used\tswitching\trefused\tof\tp50\tp95\tp50, 8 GPUs or more\tp95")
	return w
}

func figuresRow(w *tabwriter.Writer, name string, f utilization.Figures) {
	fmt.Fprintf(w, "%s\t%.1f%%\t%.3f%%\t%d\t%d\t%v\t%v\t%v\t%v\n", name, 100*f.Used, 100*f.Switching, f.Refused, f.Jobs,
		f.All.Median.Round(time.Second), f.All.P95.Round(time.Second), f.Large.Median.Round(time.Second), f.Large.P95.Round(time.Second))
}

// showPatience prints what more patience changes.
func showPatience(c *utilization.Comparison) {
	w := figuresTable(fmt.Sprintf("load %.1f, jobs wait three days", usualLoad))
	defer w.Flush()
	one, byShare := onePool(), splitBy(usualShare)
	one.Patience, byShare.Patience = 3*clusterDay, 3*clusterDay
	figuresRow(w, "split by the share of VM jobs", c.Under(byShare))
	figuresRow(w, "best split in hindsight: GPU-hours", c.Hindsight(one, utilization.MoreUsed))
	figuresRow(w, "one pool", c.Under(one))
}

// showResets prints what slow resets change. A split cluster resets after each VM job, too.
func showResets(c *utilization.Comparison) {
	w := figuresTable(fmt.Sprintf("load %.1f", usualLoad))
	defer w.Flush()
	for _, reset := range []time.Duration{100 * time.Millisecond, time.Second, 10 * time.Second, time.Minute, 10 * time.Minute, 40 * time.Minute} {
		one, byShare := onePool(), splitBy(usualShare)
		one.Costs.Reset, byShare.Costs.Reset = reset, reset
		figuresRow(w, fmt.Sprintf("%v for a reset, split by the share of VM jobs", reset), c.Under(byShare))
		figuresRow(w, fmt.Sprintf("%v for a reset, one pool", reset), c.Under(one))
	}
}

// showNeeded prints how many nodes a split cluster needs for what one pool does. Traces differ by more than half a percent.
func showNeeded(c *utilization.Comparison, one utilization.Figures) {
	byShare := func(nodes int) utilization.Figures {
		p := onePool()
		p.Nodes, p.VMNodes = nodes, int(math.Round(usualShare*float64(nodes)))
		return c.Under(p)
	}
	best := func(nodes int) utilization.Figures {
		p := onePool()
		p.Nodes = nodes
		return c.Hindsight(p, utilization.MoreUsed)
	}
	hours := func(f utilization.Figures, nodes int) bool {
		return f.Used*float64(nodes) >= 0.995*one.Used*poolNodes
	}
	refused := func(f utilization.Figures, _ int) bool { return f.Refused <= one.Refused }
	fmt.Printf("nodes that a split cluster needs for what one pool does with %d: GPU-hours within 0.5%% %d, in hindsight %d; refused jobs %d\n",
		poolNodes, needed(byShare, hours), needed(best, hours), needed(byShare, refused))
}

// needed is the fewest nodes that are enough.
func needed(of func(nodes int) utilization.Figures, enough func(f utilization.Figures, nodes int) bool) int {
	nodes := poolNodes
	for nodes < 2*poolNodes && !enough(of(nodes), nodes) {
		nodes++
	}
	return nodes
}
