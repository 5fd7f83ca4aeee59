package utilization

import (
	"reflect"
	"testing"
	"time"
)

// TestRunExclusive is computed by hand, on one node whose halves are exclusive domains.
func TestRunExclusive(t *testing.T) {
	jobs := []Job{
		{Arrival: 0, Duration: 20 * s, GPUs: 1, Tenant: 1},
		{Arrival: 1 * s, Duration: 10 * s, GPUs: 1, Tenant: 2}, // in the other half
		{Arrival: 2 * s, Duration: 30 * s, GPUs: 3, Tenant: 1}, // beside the first
		{Arrival: 3 * s, Duration: 5 * s, GPUs: 1, Tenant: 3},  // waits for the second, which is alone in its half
		{Arrival: 4 * s, Duration: 5 * s, GPUs: 4, Tenant: 2},  // waits for the fourth, too
		{Arrival: 5 * s, Duration: 1 * s, GPUs: 8, Tenant: 1},  // waits for all others
	}
	a := allocator(t)
	for name, tt := range map[string]struct {
		domain int
		want   []time.Duration // when each got its GPUs
	}{
		"none": {0, []time.Duration{0, 1 * s, 2 * s, 3 * s, 11 * s, 32 * s}},
		"card": {1, []time.Duration{0, 1 * s, 2 * s, 3 * s, 11 * s, 32 * s}},
		"half": {4, []time.Duration{0, 1 * s, 2 * s, 11 * s, 16 * s, 32 * s}},
		"node": {8, []time.Duration{0, 32 * s, 2 * s, 42 * s, 32 * s, 47 * s}},
	} {
		t.Run(name, func(t *testing.T) {
			got := Run(a, Policy{Nodes: 1, VMNodes: OnePool, Domain: tt.domain, Patience: h}, jobs)
			for i := range jobs {
				if got[i].Refused || got[i].Granted != tt.want[i] {
					t.Errorf("job %d has its GPUs at %v (refused %t), want %v", i, got[i].Granted, got[i].Refused, tt.want[i])
				}
			}
		})
	}
}

// TestRunKeepsDomainsApart looks at a run at each time when something changes: no domain has two tenants, and no job waits that
// would fit.
func TestRunKeepsDomainsApart(t *testing.T) {
	jobs := Mix{Tenants: 5, Skew: 1}.Of(7, Generate(Workload{Seed: 7, Window: 3 * day, GPUs: 64, Load: 2, VMShare: 1}))
	a := allocator(t)
	for _, domain := range []int{1, 2, 4, 8} {
		p := Policy{Nodes: 8, VMNodes: OnePool, Domain: domain, Costs: costs(), Patience: 6 * h}
		outcomes := Run(a, p, jobs)
		shared := 0
		for i := range outcomes {
			shared += apart(t, &p, jobs, outcomes, outcomes[i].Gone)
			wholeJob(t, &p, &jobs[i], &outcomes[i])
		}
		if domain > 1 && shared < 100 {
			t.Errorf("domains of %d: %d times a tenant had a second job in one, which is no test", domain, shared)
		}
	}
}

// apart checks one moment of a run, and counts domains with several jobs.
func apart(t *testing.T, p *Policy, jobs []Job, outcomes []Outcome, now time.Duration) (shared int) {
	t.Helper()
	nodes := make([]*node, p.Nodes)
	for i := range nodes {
		nodes[i] = &node{number: i}
	}
	type domain struct{ node, number int }
	tenants, count := map[domain]int{}, map[domain]int{}
	for i := range outcomes {
		o := &outcomes[i]
		if o.Refused || o.Granted > now || o.Gone <= now {
			continue
		}
		for _, at := range o.places {
			nodes[at.node.number].take(at.gpus, jobs[i].Tenant)
			for d := range PerNode / p.Domain {
				if at.gpus&(gpus(1<<p.Domain-1)<<(d*p.Domain)) == 0 {
					continue
				}
				in := domain{at.node.number, d}
				if of, held := tenants[in]; held && of != jobs[i].Tenant {
					t.Fatalf("at %v domain %d of node %d has tenants %d and %d", now, d, at.node.number, of, jobs[i].Tenant)
				}
				tenants[in] = jobs[i].Tenant
				if count[in]++; count[in] == 2 {
					shared++
				}
			}
		}
	}
	for i := range jobs {
		until := outcomes[i].Granted
		if outcomes[i].Refused {
			until = outcomes[i].Gone
		}
		if jobs[i].Arrival <= now && now < until && hasRoom(nodes, &jobs[i], p.Domain) {
			t.Fatalf("at %v job %d (%d GPUs) of tenant %d waits, and fits", now, i, jobs[i].GPUs, jobs[i].Tenant)
		}
	}
	return shared
}

func hasRoom(nodes []*node, j *Job, domain int) bool {
	room := 0
	for _, n := range nodes {
		if PerNode-n.closed(j.Tenant, domain).count() >= min(j.GPUs, PerNode) {
			room++
		}
	}
	return room*PerNode >= j.GPUs
}

// TestMixChangesTenantsOnly: sizes, times and kinds are those of the trace, so that only the domains make a difference.
func TestMixChangesTenantsOnly(t *testing.T) {
	jobs := Generate(Workload{Seed: 1, Window: 200 * day, GPUs: 256, Load: 0.8, VMShare: 1})
	for name, tt := range map[string]struct {
		mix    Mix
		shares []float64
	}{
		"alike":   {Mix{Tenants: 4}, []float64{0.25, 0.25, 0.25, 0.25}},
		"unequal": {Mix{Tenants: 3, Skew: 1}, []float64{6. / 11, 3. / 11, 2. / 11}},
		"one":     {Mix{Tenants: 1}, []float64{1}},
	} {
		t.Run(name, func(t *testing.T) {
			got := tt.mix.Of(1, jobs)
			counts := make([]float64, len(tt.shares))
			for i := range got {
				counts[got[i].Tenant]++
				got[i].Tenant = 0
			}
			for k, share := range tt.shares {
				near(t, "share of a tenant", counts[k]/float64(len(jobs)), share, 0.03)
			}
			if !reflect.DeepEqual(got, jobs) {
				t.Error("the mix changes more than the tenants")
			}
		})
	}
}
