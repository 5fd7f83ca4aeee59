package utilization

import "testing"

// small is a comparison of two traces on eight nodes.
func small(t *testing.T) (*Comparison, Policy) {
	t.Helper()
	w := Workload{Seed: 3, Window: 6 * day, GPUs: 64, Load: 1.5, VMShare: 0.3, Swing: 1}
	return &Comparison{Allocator: allocator(t), Traces: Traces(w, 2), Span: Span{From: 2 * day, To: 6 * day}},
		Policy{Nodes: 8, VMNodes: OnePool, Costs: costs(), Patience: 6 * h}
}

func TestComparisonUnder(t *testing.T) {
	c, p := small(t)
	var sum Sample
	for _, jobs := range c.Traces {
		sum.Add(p, jobs, Run(c.Allocator, p, jobs), c.Span)
	}
	got, want := c.Under(p), sum.Figures()
	near(t, "GPU-hours used", got.Used, want.Used, 1e-9)
	near(t, "GPU-hours of switching", got.Switching, want.Switching, 1e-9)
	got.Used, got.Switching = want.Used, want.Switching
	if got != want || got.Refused == 0 {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// TestComparisonHindsight checks that no fixed number of VM nodes is better than the best for each trace.
func TestComparisonHindsight(t *testing.T) {
	c, p := small(t)
	used, refused := c.Hindsight(p, MoreUsed), c.Hindsight(p, FewerRefused)
	worst := used.Used
	for p.VMNodes = 0; p.VMNodes <= p.Nodes; p.VMNodes++ {
		f := c.Under(p)
		if f.Used > used.Used || f.Refused < refused.Refused {
			t.Errorf("%d VM nodes: %+v, better than %+v and %+v", p.VMNodes, f, used, refused)
		}
		worst = min(worst, f.Used)
	}
	if used.Used < worst+0.05 || refused.Used > used.Used || refused.Refused > used.Refused {
		t.Errorf("most used %+v, fewest refused %+v, worst %.2f", used, refused, worst)
	}
}
