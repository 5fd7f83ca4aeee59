package utilization

import "time"

// Order is how the scheduler scores the nodes where a job fits.
type Order int

const (
	// Pack prefers the node with the fewest free GPUs: NodeResourcesFit with MostAllocated.
	Pack Order = iota
	// Spread prefers the node with the most: LeastAllocated, the scheduler's default.
	Spread
)

// OnePool is the number of VM nodes if all nodes take both kinds of jobs.
const OnePool = -1

// Policy is how a cluster is operated.
type Policy struct {
	// Nodes is the cluster's size. VMNodes of these nodes have the label for VM jobs, and the others the label for containers.
	// VMNodes may be OnePool.
	Nodes, VMNodes int
	Order          Order
	Costs          Costs
	// Ties is the seed for nodes of equal score. The scheduler takes one of them at random.
	Ties uint64
	// Domain is the number of GPUs of an exclusive domain, which belongs to one tenant while a job of that tenant has one of
	// them; 0 if there are none. It divides [PerNode].
	Domain int
	// Patience is how long a job waits for its GPUs before it is given up.
	Patience time.Duration
}

// Costs are the times for which a job has GPUs that it doesn't use yet, or no longer.
type Costs struct {
	// Bind is the time to take a GPU from its driver and bind it to vfio-pci, and Restore the way back, with the start of the GPU's
	// driver. Only one pool needs them: in a pool for VMs the GPUs stay bound.
	Bind, Restore time.Duration
	// Reset comes after each VM job, and in one pool before it too, as the plugin does it.
	Reset time.Duration
	// Boot is the start of a VM.
	Boot time.Duration
}

// Around returns the times before and after a job's own.
func (p *Policy) Around(j *Job) (before, after time.Duration) {
	c := &p.Costs
	switch {
	case !j.VM:
		return 0, 0
	case p.VMNodes == OnePool:
		return c.Bind + c.Reset + c.Boot, c.Reset + c.Restore
	}
	return c.Boot, c.Reset
}
