package utilization

import (
	"cmp"
	"container/heap"
	"math/rand/v2"
	"slices"
	"time"
)

// Outcome is what became of a job.
type Outcome struct {
	// Refused says that the job never ran: its pool is too small, or it waited longer than it is patient. Then only Gone is set.
	Refused bool
	// Granted is when the job got its GPUs, Running when its own time began, Done when that ended, and Gone when the GPUs were free.
	Granted, Running, Done, Gone time.Duration

	places []place
}

// held is until when the job had GPUs.
func (o *Outcome) held() time.Duration {
	if o.Refused {
		return 0
	}
	return o.Gone
}

// place is some GPUs of a node.
type place struct {
	node *node
	gpus gpus
}

// node is one of the cluster's.
type node struct {
	number int
	taken  gpus
	// tenants has the tenant of each taken GPU.
	tenants [PerNode]int
}

// take gives GPUs to a tenant.
func (n *node) take(got gpus, tenant int) {
	n.taken |= got
	for i := range n.tenants {
		if got&(1<<i) != 0 {
			n.tenants[i] = tenant
		}
	}
}

// closed returns the GPUs that a tenant can't get: those that are taken, and those in exclusive domains where another tenant has
// some. The scheduler's allocator passes over devices with a taint that the claim doesn't tolerate as over allocated ones.
func (n *node) closed(tenant, domain int) gpus {
	all := n.taken
	if domain == 0 {
		return all
	}
	for i := range n.tenants {
		if n.taken&(1<<i) != 0 && n.tenants[i] != tenant {
			first := i - i%domain
			all |= gpus(1<<domain-1) << first
		}
	}
	return all
}

// pool is nodes that take the same jobs.
type pool struct {
	nodes []*node
	// full is, by tenant, the smallest number of GPUs that did not fit since GPUs were last released. Larger numbers don't fit
	// either.
	full map[int]int
}

// run is a simulation under way.
type run struct {
	jobs      []Job
	outcomes  []Outcome
	policy    Policy
	allocator *Allocator
	vms       *pool
	others    *pool // the same, where there is one pool
	waiting   []int // jobs in the order of their arrival
	ends      ends
	ties      *rand.Rand
}

// Run returns what becomes of each job. The jobs are in the order of their arrival.
func Run(a *Allocator, p Policy, jobs []Job) []Outcome {
	r := &run{jobs: jobs, outcomes: make([]Outcome, len(jobs)), policy: p, allocator: a, ties: rand.New(rand.NewPCG(p.Ties, 0))}
	r.vms, r.others = pools(&p)
	for i := range jobs {
		r.until(jobs[i].Arrival)
		r.arrive(i)
	}
	r.until(1<<63 - 1)
	for _, i := range r.waiting { // nothing is left that could make room
		r.refuse(i, jobs[i].Arrival+p.Patience)
	}
	return r.outcomes
}

// pools returns the pool for VM jobs and that for the others.
func pools(p *Policy) (vms, others *pool) {
	vms = &pool{full: map[int]int{}}
	others = vms
	if p.VMNodes != OnePool {
		others = &pool{full: map[int]int{}}
	}
	for i := range p.Nodes {
		of := others
		if i < p.VMNodes {
			of = vms
		}
		of.nodes = append(of.nodes, &node{number: i})
	}
	return vms, others
}

func (r *run) poolOf(j *Job) *pool {
	if j.VM {
		return r.vms
	}
	return r.others
}

// until ends the jobs whose time is over by then, and gives their GPUs to waiting jobs.
func (r *run) until(then time.Duration) {
	for len(r.ends) > 0 && r.ends[0].at <= then {
		now := r.ends[0].at
		for len(r.ends) > 0 && r.ends[0].at == now {
			r.release(heap.Pop(&r.ends).(end).job)
		}
		r.retry(now)
	}
}

func (r *run) release(i int) {
	for _, at := range r.outcomes[i].places {
		at.node.taken &^= at.gpus
	}
	clear(r.poolOf(&r.jobs[i]).full)
}

// retry tries all waiting jobs, in the order of their arrival.
func (r *run) retry(now time.Duration) {
	r.waiting = slices.DeleteFunc(r.waiting, func(i int) bool {
		if last := r.jobs[i].Arrival + r.policy.Patience; last < now {
			r.refuse(i, last)
			return true
		}
		return r.place(i, now)
	})
}

// arrive tries a new job. Those that wait have been tried since the last release.
func (r *run) arrive(i int) {
	j := &r.jobs[i]
	if j.GPUs > PerNode*len(r.poolOf(j).nodes) {
		r.refuse(i, j.Arrival)
	} else if !r.place(i, j.Arrival) {
		r.waiting = append(r.waiting, i)
	}
}

func (r *run) refuse(i int, at time.Duration) { r.outcomes[i] = Outcome{Refused: true, Gone: at} }

// place gives a job its GPUs, all or none, where they are free.
func (r *run) place(i int, now time.Duration) bool {
	j := &r.jobs[i]
	of := r.poolOf(j)
	if least, known := of.full[j.Tenant]; known && j.GPUs >= least {
		return false
	}
	places := r.find(of, j)
	if places == nil {
		of.full[j.Tenant] = j.GPUs
		return false
	}
	before, after := r.policy.Around(j)
	o := Outcome{Granted: now, Running: now + before, places: places}
	o.Done = o.Running + j.Duration
	o.Gone = o.Done + after
	r.outcomes[i] = o
	heap.Push(&r.ends, end{o.Gone, i})
	return true
}

// find takes GPUs for a job: on one node, or for larger jobs on several, whose pods start together.
func (r *run) find(of *pool, j *Job) []place {
	var places []place
	for left := j.GPUs; left > 0; left -= PerNode {
		at := r.best(of, min(left, PerNode), j.Tenant)
		if at.node == nil {
			for _, p := range places {
				p.node.taken &^= p.gpus
			}
			return nil
		}
		at.node.take(at.gpus, j.Tenant)
		places = append(places, at)
	}
	return places
}

// best asks for GPUs on each node, and returns the place with the best score, one of the best at random.
func (r *run) best(of *pool, count, tenant int) place {
	var best place
	equals := 0
	for _, n := range of.nodes {
		better := 1
		if best.node != nil {
			better = r.compare(n, best.node)
		}
		if better < 0 {
			continue
		}
		got := r.allocator.allocate(n.closed(tenant, r.policy.Domain), count)
		if got == 0 {
			continue
		}
		if better > 0 {
			equals = 0
		}
		if equals++; r.ties.IntN(equals) == 0 {
			best = place{n, got}
		}
	}
	return best
}

// compare compares the scores of two nodes. It is positive where the first is better.
func (r *run) compare(a, b *node) int {
	by := a.taken.count() - b.taken.count()
	if r.policy.Order == Spread {
		return -by
	}
	return by
}

// end is when a job's GPUs become free.
type end struct {
	at  time.Duration
	job int
}

// ends is a heap, the next first.
type ends []end

func (e ends) Len() int { return len(e) }
func (e ends) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(e[i].at, e[j].at), cmp.Compare(e[i].job, e[j].job)) < 0
}
func (e ends) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *ends) Push(x any)   { *e = append(*e, x.(end)) }
func (e *ends) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}
