// Package cluster judges a cluster through its API: whether the policies that keep
// tenants' pods in VMs are there and work, who may go round them, and whether what
// runs agrees with what was allocated. It reads; the only requests that create
// something are dry runs in a namespace of its own.
package cluster
