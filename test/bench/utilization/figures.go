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

// Figures are those of runs in a span.
type Figures struct {
	// Used is the share of the cluster's GPU-hours in which jobs ran, and Switching the share in which GPUs were bound, reset,
	// restored, or waited for a VM to boot.
	Used, Switching float64
	// Jobs arrived in the span. Refused of them never ran.
	Jobs, Refused int
	// All are the times from the arrival of each such job until it ran, and Large those of jobs that need a whole node or more.
	All, Large Waits
}

// Waits are percentiles of times. A refused job counts with the time for which jobs are patient.
type Waits struct{ Median, P95 time.Duration }

// Sample is the sum of runs. Its zero value is none.
type Sample struct {
	has, used, held float64 // GPU time
	refused         int
	all, large      []time.Duration // waits
}

// Add adds what a run shows in a span.
func (s *Sample) Add(p Policy, jobs []Job, outcomes []Outcome, in Span) {
	s.has += float64(p.Nodes*PerNode) * (in.To - in.From).Seconds()
	for i := range jobs {
		j, o := &jobs[i], &outcomes[i]
		s.used += float64(j.GPUs) * in.overlap(o.Running, o.Done).Seconds()
		s.held += float64(j.GPUs) * in.overlap(o.Granted, o.held()).Seconds()
		if j.Arrival < in.From || j.Arrival >= in.To {
			continue
		}
		wait := o.Running - j.Arrival
		if o.Refused {
			s.refused++
			wait = p.Patience
		}
		s.all = append(s.all, wait)
		if j.GPUs >= PerNode {
			s.large = append(s.large, wait)
		}
	}
}

// Figures returns those of all runs together.
func (s *Sample) Figures() Figures {
	return Figures{
		Used: s.used / s.has, Switching: (s.held - s.used) / s.has,
		Jobs: len(s.all), Refused: s.refused, All: waitsOf(s.all), Large: waitsOf(s.large),
	}
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
