package utilization

import (
	"slices"
	"time"
)

// Span is a part of a run.
type Span struct{ From, To time.Duration }

// overlap is how long a time lies in the span.
func (s Span) overlap(from, to time.Duration) time.Duration {
	return max(0, min(to, s.To)-max(from, s.From))
}

// Figures are those of a run in a span.
type Figures struct {
	// Used is the share of the cluster's GPU-hours in which jobs ran, and Switching the share in which GPUs were bound, reset,
	// restored, or waited for a VM to boot.
	Used, Switching float64
	// Jobs arrived in the span, and Refused of them never ran.
	Jobs, Refused int
	// All are the times from the arrival of each such job until it ran, and Large those of jobs that need a whole node or more.
	All, Large Waits
}

// Waits are percentiles of times. A refused job waited as long as jobs are patient.
type Waits struct{ Median, P95 time.Duration }

// Of returns the figures of a run.
func Of(p Policy, jobs []Job, outcomes []Outcome, s Span) Figures {
	var f Figures
	var used, held time.Duration
	var all, large []time.Duration
	for i := range jobs {
		j, o := &jobs[i], &outcomes[i]
		used += time.Duration(j.GPUs) * s.overlap(o.Running, o.Done)
		held += time.Duration(j.GPUs) * s.overlap(o.Granted, o.held())
		if j.Arrival < s.From || j.Arrival >= s.To {
			continue
		}
		f.Jobs++
		wait := o.Running - j.Arrival
		if o.Refused {
			f.Refused++
			wait = p.Patience
		}
		all = append(all, wait)
		if j.GPUs >= PerNode {
			large = append(large, wait)
		}
	}
	has := float64(p.Nodes*PerNode) * float64(s.To-s.From)
	f.Used, f.Switching = float64(used)/has, float64(held-used)/has
	f.All, f.Large = waitsOf(all), waitsOf(large)
	return f
}

func waitsOf(all []time.Duration) Waits {
	slices.Sort(all)
	return Waits{percentile(all, 50), percentile(all, 95)}
}

// percentile is the least of the sorted times that p percent of them don't exceed.
func percentile(sorted []time.Duration, p int) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[max(0, (len(sorted)*p+99)/100-1)]
}
