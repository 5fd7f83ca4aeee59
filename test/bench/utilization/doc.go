// Package utilization simulates a cluster's GPUs under a trace of container jobs and VM jobs, in virtual time. It compares nodes that
// labels split into a pool for VMs and one for containers with one pool whose GPUs are bound to VFIO on demand.
//
// Generate makes the trace from a seed, after the distributions of a published one (philly.go). Run places the jobs. Which GPUs of a
// node a job gets is the answer of the scheduler's own allocator, asked with the ResourceSlices that the plugin publishes. The order
// of jobs and nodes is the kube-scheduler's: jobs are tried in the order of their arrival, a job that doesn't fit doesn't hold up
// later ones, and the node is the one with the best score of NodeResourcesFit, of equals one at random. Virtual time has no back-off
// (10 s at most in a cluster) and no preemption. With [Policy.Domain], parts of a node belong to one tenant at a time, and [Mix]
// gives the jobs of a trace to tenants.
package utilization
