package utilization

import (
	"testing"
	"time"
)

const (
	s = time.Second
	h = time.Hour
)

// tiny is a trace for one or two nodes, with what happens in one pool of one node computed by hand.
func tiny() []Job {
	return []Job{
		{Arrival: 0, Duration: 10 * s, GPUs: 6},
		{Arrival: 1 * s, Duration: 10 * s, GPUs: 4, VM: true}, // waits for the first
		{Arrival: 2 * s, Duration: 30 * s, GPUs: 2},           // fits at once: nothing holds it up
		{Arrival: 3 * s, Duration: 5 * s, GPUs: 8},            // waits for all
		{Arrival: 4 * s, Duration: 5 * s, GPUs: 2},            // waits for the first, after the second
		{Arrival: 5 * s, Duration: 5 * s, GPUs: 16},           // never fits one node
		{Arrival: 6 * s, Duration: 60 * s, GPUs: 1},           // waits for the fifth: the second has what the first left
	}
}

func costs() Costs { return Costs{Bind: 4 * s, Reset: 1 * s, Boot: 2 * s, Restore: 3 * s} }

func TestRunOnePool(t *testing.T) {
	want := []Outcome{
		{Granted: 0, Running: 0, Done: 10 * s, Gone: 10 * s},
		{Granted: 10 * s, Running: 17 * s, Done: 27 * s, Gone: 31 * s},
		{Granted: 2 * s, Running: 2 * s, Done: 32 * s, Gone: 32 * s},
		{Granted: 75 * s, Running: 75 * s, Done: 80 * s, Gone: 80 * s},
		{Granted: 10 * s, Running: 10 * s, Done: 15 * s, Gone: 15 * s},
		{Refused: true, Gone: 5 * s},
		{Granted: 15 * s, Running: 15 * s, Done: 75 * s, Gone: 75 * s},
	}
	compare(t, Policy{Nodes: 1, VMNodes: OnePool, Costs: costs(), Patience: h}, want)
}

func TestRunSplit(t *testing.T) {
	want := []Outcome{
		{Granted: 0, Running: 0, Done: 10 * s, Gone: 10 * s},
		{Granted: 1 * s, Running: 3 * s, Done: 13 * s, Gone: 14 * s}, // its own node: no binding
		{Granted: 2 * s, Running: 2 * s, Done: 32 * s, Gone: 32 * s},
		{Refused: true, Gone: 53 * s}, // 50 s are over before the seventh ends
		{Granted: 10 * s, Running: 10 * s, Done: 15 * s, Gone: 15 * s},
		{Refused: true, Gone: 5 * s}, // two nodes, but one for containers
		{Granted: 10 * s, Running: 10 * s, Done: 70 * s, Gone: 70 * s},
	}
	compare(t, Policy{Nodes: 2, VMNodes: 1, Costs: costs(), Patience: 50 * s}, want)
}

func TestRunJobOfSeveralNodes(t *testing.T) {
	want := []Outcome{
		{Granted: 0, Running: 0, Done: 10 * s, Gone: 10 * s},
		{Granted: 1 * s, Running: 8 * s, Done: 18 * s, Gone: 22 * s},
		{Granted: 2 * s, Running: 2 * s, Done: 32 * s, Gone: 32 * s},
		{Granted: 32 * s, Running: 32 * s, Done: 37 * s, Gone: 37 * s},
		{Granted: 4 * s, Running: 4 * s, Done: 9 * s, Gone: 9 * s},
		{Granted: 66 * s, Running: 66 * s, Done: 71 * s, Gone: 71 * s}, // both nodes at once
		{Granted: 6 * s, Running: 6 * s, Done: 66 * s, Gone: 66 * s},
	}
	compare(t, Policy{Nodes: 2, VMNodes: OnePool, Costs: costs(), Patience: h}, want)
}

func allocator(t *testing.T) *Allocator {
	t.Helper()
	a, err := NewAllocator(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func compare(t *testing.T, p Policy, want []Outcome) {
	t.Helper()
	got := Run(allocator(t), p, tiny())
	for i := range want {
		got[i].places = nil
		if g, w := got[i], want[i]; g.Refused != w.Refused || g.Granted != w.Granted || g.Running != w.Running || g.Done != w.Done || g.Gone != w.Gone {
			t.Errorf("job %d: %+v, want %+v", i, got[i], want[i])
		}
	}
}

func TestRunOrder(t *testing.T) {
	a, jobs := allocator(t), []Job{{Duration: h, GPUs: 4}, {Arrival: s, Duration: h, GPUs: 2}}
	firsts := map[int]int{}
	for seed := range uint64(20) {
		for order, together := range map[Order]bool{Pack: true, Spread: false} {
			got := Run(a, Policy{Nodes: 2, VMNodes: OnePool, Order: order, Ties: seed, Patience: h}, jobs)
			first, second := got[0].places[0].node.number, got[1].places[0].node.number
			if (first == second) != together {
				t.Errorf("order %d: the jobs are on nodes %d and %d", order, first, second)
			}
			firsts[first]++
		}
	}
	if len(firsts) != 2 {
		t.Errorf("of two equal nodes, the first job has always the same: %v", firsts)
	}
}

func TestSampleFigures(t *testing.T) {
	p := Policy{Nodes: 1, VMNodes: OnePool, Costs: costs(), Patience: h}
	outcomes := Run(allocator(t), p, tiny())
	var sample Sample
	sample.Add(p, tiny(), outcomes, Span{From: 2 * s, To: 22 * s})
	got := sample.Figures()
	want := Figures{
		// First 6x8, second 4x5, third 2x20, fifth 2x5, last 1x7; the second holds its GPUs from 10 to 17 before.
		Used: float64(6*8+4*5+2*20+2*5+7) / (8 * 20), Switching: float64(4*7) / (8 * 20),
		Jobs: 5, Refused: 1,
		All:   Waits{Median: 9 * s, P95: h}, // of 0, 72, 6, an hour and 9
		Large: Waits{Median: 72 * s, P95: h},
	}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// TestRunConserves looks at a run at each time when something changes: no GPU is used twice, jobs stay in their pool, each runs for
// its whole time or not at all, and none waits that would fit.
func TestRunConserves(t *testing.T) {
	jobs := Generate(Workload{Seed: 7, Window: 4 * day, GPUs: 64, Load: 3, VMShare: 0.4, Swing: 1})
	for _, p := range []Policy{
		{Nodes: 8, VMNodes: OnePool, Costs: costs(), Patience: 6 * h},
		{Nodes: 8, VMNodes: 3, Costs: costs(), Patience: 6 * h},
		{Nodes: 8, VMNodes: 3, Order: Spread, Costs: costs(), Patience: 6 * h},
	} {
		outcomes := Run(allocator(t), p, jobs)
		refused, waited := 0, 0
		for i := range outcomes {
			conserves(t, &p, jobs, outcomes, outcomes[i].Gone)
			switch o := &outcomes[i]; {
			case o.Refused:
				refused++
			case o.Granted > jobs[i].Arrival:
				waited++
			}
			wholeJob(t, &p, &jobs[i], &outcomes[i])
		}
		if refused < 5 || waited < 5 {
			t.Errorf("of %d jobs %d are refused and %d wait: no test", len(jobs), refused, waited)
		}
	}
}

// wholeJob checks a job's own times and places.
func wholeJob(t *testing.T, p *Policy, j *Job, o *Outcome) {
	t.Helper()
	if o.Refused {
		if o.Gone != j.Arrival+p.Patience && o.Gone != j.Arrival || o.places != nil || o.Running != 0 {
			t.Errorf("%+v is refused: %+v", j, o)
		}
		return
	}
	before, after := p.Around(j)
	if o.Granted < j.Arrival || o.Granted > j.Arrival+p.Patience || o.Running != o.Granted+before || o.Done != o.Running+j.Duration || o.Gone != o.Done+after {
		t.Errorf("%+v has %+v", j, o)
	}
	count := 0
	for _, at := range o.places {
		count += at.gpus.count()
		if !p.takes(at.node.number, j) {
			t.Errorf("%+v is on node %d", j, at.node.number)
		}
	}
	if count != j.GPUs {
		t.Errorf("%+v has %d GPUs", j, count)
	}
}

// takes reports whether a node's label lets the job in.
func (p *Policy) takes(node int, j *Job) bool {
	return p.VMNodes == OnePool || j.VM == (node < p.VMNodes)
}

// conserves checks one moment of a run.
func conserves(t *testing.T, p *Policy, jobs []Job, outcomes []Outcome, now time.Duration) {
	t.Helper()
	taken := make([]gpus, p.Nodes)
	for i := range outcomes {
		o := &outcomes[i]
		if o.Refused || o.Granted > now || o.Gone <= now {
			continue
		}
		for _, at := range o.places {
			if taken[at.node.number]&at.gpus != 0 {
				t.Fatalf("at %v job %d has %08b of node %d, where %08b are taken", now, i, at.gpus, at.node.number, taken[at.node.number])
			}
			taken[at.node.number] |= at.gpus
		}
	}
	for i := range jobs {
		until := outcomes[i].Granted
		if outcomes[i].Refused {
			until = outcomes[i].Gone
		}
		if jobs[i].Arrival <= now && now < until && fits(p, taken, &jobs[i]) {
			t.Fatalf("at %v job %d (%d GPUs) waits beside %08b", now, i, jobs[i].GPUs, taken)
		}
	}
}

func fits(p *Policy, taken []gpus, j *Job) bool {
	nodes := 0
	for n, used := range taken {
		if p.takes(n, j) && PerNode-used.count() >= min(j.GPUs, PerNode) {
			nodes++
		}
	}
	return nodes*PerNode >= j.GPUs
}
