package bench

import (
	"fmt"
	"os"
	"testing"
	"text/tabwriter"

	"github.com/kata-vfio/kata-vfio/test/bench/utilization"
)

// exclusiveDomains are domains by their number of GPUs, on nodes with two GPUs below each switch and two NUMA nodes.
func exclusiveDomains() []struct {
	name string
	gpus int
} {
	return []struct {
		name string
		gpus int
	}{{"none", 0}, {"Card", 1}, {"Switch (2 GPUs)", 2}, {"NUMA (4 GPUs)", 4}, {"Node (8 GPUs)", 8}}
}

// tenantMixes are mixes of tenants.
func tenantMixes() []struct {
	name string
	mix  utilization.Mix
} {
	return []struct {
		name string
		mix  utilization.Mix
	}{
		{"4 tenants alike", utilization.Mix{Tenants: 4}},
		{"16 tenants alike", utilization.Mix{Tenants: 16}},
		{"16 tenants, the k-th with 1/k", utilization.Mix{Tenants: 16, Skew: 1}},
	}
}

// BenchmarkUtilizationExclusive simulates what exclusive domains cost: the cluster, sizes and times of [BenchmarkUtilization] as one
// pool, with VM jobs only, of several tenants.
func BenchmarkUtilizationExclusive(b *testing.B) {
	for first := true; b.Loop(); first = false {
		if !first {
			continue // the seeds are fixed: it would print the same
		}
		a, err := utilization.NewAllocator(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		c := gpuTraces(a, usualLoad, 1, 0)
		for _, m := range tenantMixes() {
			showExclusive(b, c, m.name, m.mix)
		}
	}
	b.ReportMetric(0, "ns/op")
}

// showExclusive prints a table of one mix.
func showExclusive(b *testing.B, c *utilization.Comparison, name string, mix utilization.Mix) {
	b.Helper()
	of := *c
	of.Traces = nil
	for i, jobs := range c.Traces {
		of.Traces = append(of.Traces, mix.Of(firstSeed+uint64(i), jobs))
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\n"+name+"\tGPU-hours used\trefused\tof\tp50\tp95\tp50, 8 GPUs or more\tp95\tspreading: GPU-hours used\trefused")
	for _, d := range exclusiveDomains() {
		p := onePool()
		p.Domain = d.gpus
		f, spread := of.Under(p), of.Under(spreading(p))
		fmt.Fprintf(w, "%s\t%.1f%%\t%d\t%d\t%v\t%v\t%v\t%v\t%.1f%%\t%d\n", d.name, 100*f.Used, f.Refused, f.Jobs,
			f.All.Median.Round(1e9), f.All.P95.Round(1e9), f.Large.Median.Round(1e9), f.Large.P95.Round(1e9), 100*spread.Used, spread.Refused)
		if name == tenantMixes()[0].name {
			b.ReportMetric(100*f.Used, fmt.Sprintf("%%-used-domains-of-%d", d.gpus))
		}
	}
	if err := w.Flush(); err != nil {
		b.Fatal(err)
	}
}
