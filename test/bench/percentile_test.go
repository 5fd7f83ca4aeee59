//go:build e2e

package bench

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// samples are the times of one thing, many times done.
type samples []time.Duration

// percentile is the smallest time that p percent of the samples don't exceed.
func (s samples) percentile(p int) time.Duration {
	sorted := slices.Sorted(slices.Values(s))
	return sorted[max(0, (len(sorted)*p+99)/100-1)]
}

// report states the median and the 99th percentile, by themselves and against those of an empty call.
func (s samples) report(b *testing.B, name string, empty samples) {
	b.Helper()
	for _, p := range []int{50, 99} {
		own, base := s.percentile(p), empty.percentile(p)
		b.ReportMetric(float64(own)/float64(time.Microsecond), fmt.Sprintf("%s-p%d-µs", name, p))
		b.ReportMetric(float64(own)/float64(base), fmt.Sprintf("%s-p%d/empty", name, p))
	}
}

// turns times each of the things count times. They take turns, so that what disturbs the machine disturbs all alike.
func turns(b *testing.B, count int, things ...func() error) []samples {
	b.Helper()
	all := make([]samples, len(things))
	for range count {
		for i, do := range things {
			begin := time.Now()
			if err := do(); err != nil {
				b.Fatal(err)
			}
			all[i] = append(all[i], time.Since(begin))
		}
	}
	return all
}

// String is for people.
func (s samples) String() string {
	return fmt.Sprintf("p50 %v p99 %v", s.percentile(50).Round(time.Microsecond), s.percentile(99).Round(time.Microsecond))
}
