package utilization

import (
	"runtime"
	"sync"
)

// Traces returns the traces of that many seeds, from the workload's on.
func Traces(w Workload, seeds int) [][]Job {
	all := make([][]Job, seeds)
	for i := range all {
		all[i] = Generate(w)
		w.Seed++
	}
	return all
}

// Comparison runs the same traces under several policies. It counts only what is in Span, because the cluster fills before it.
type Comparison struct {
	Allocator *Allocator
	Traces    [][]Job
	Span      Span
}

// Under returns the figures of all traces under a policy.
func (c *Comparison) Under(p Policy) Figures {
	return c.pick(p, []int{p.VMNodes}, nil)
}

// Hindsight returns the figures of a split cluster that has, for each trace, the best number of VM nodes, or one of the best.
// Only hindsight can tell this number.
func (c *Comparison) Hindsight(p Policy, better func(a, b Figures) bool) Figures {
	all := make([]int, p.Nodes+1)
	for i := range all {
		all[i] = i
	}
	return c.pick(p, all, better)
}

// MoreUsed prefers the split that uses more GPU-hours.
func MoreUsed(a, b Figures) bool { return a.Used > b.Used }

// FewerRefused prefers the split that refuses fewer jobs, and of equals the one that uses more GPU-hours.
func FewerRefused(a, b Figures) bool {
	return a.Refused < b.Refused || a.Refused == b.Refused && a.Used > b.Used
}

// pick sums up, over all traces, the best of the numbers of VM nodes.
func (c *Comparison) pick(p Policy, numbers []int, better func(a, b Figures) bool) Figures {
	samples := make([]Sample, len(c.Traces))
	var all sync.WaitGroup
	turn := make(chan struct{}, runtime.GOMAXPROCS(0))
	for t, jobs := range c.Traces {
		all.Go(func() {
			turn <- struct{}{}
			defer func() { <-turn }()
			for i, k := range numbers {
				var s Sample
				one := p
				one.VMNodes = k
				s.Add(one, jobs, Run(c.Allocator, one, jobs), c.Span)
				if i == 0 || better(s.Figures(), samples[t].Figures()) {
					samples[t] = s
				}
			}
		})
	}
	all.Wait()
	return merge(samples).Figures()
}

func merge(all []Sample) *Sample {
	var sum Sample
	for i := range all {
		s := &all[i]
		sum.has, sum.used, sum.held, sum.refused = sum.has+s.has, sum.used+s.used, sum.held+s.held, sum.refused+s.refused
		sum.all, sum.large = append(sum.all, s.all...), append(sum.large, s.large...)
	}
	return &sum
}
