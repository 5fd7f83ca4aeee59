package plan_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
)

// BenchmarkAssess judges each function of nodes that have all functions in one IOMMU group, as each publication does. It compares the
// time for all functions with that in a group of 64: linear is 4 and 8, and the aim is 10 for the group of 512, which has a drain.
func BenchmarkAssess(b *testing.B) {
	sizes := []int{64, 256, 512}
	nodes, took := make([]plan.Node, len(sizes)), make([]time.Duration, len(sizes))
	for i, n := range sizes {
		nodes[i] = oneGroup(n)
	}
	// The last function of the largest group is drained, so that each function of the group has to find it.
	largest := nodes[len(nodes)-1].Snapshot.Functions
	nodes[len(nodes)-1].Drained = map[pci.Address]string{largest[len(largest)-1].Address: "repair"}
	for b.Loop() {
		for i := range nodes {
			began := time.Now()
			assessor := plan.NewAssessor(nodes[i])
			for j := range nodes[i].Snapshot.Functions {
				assessor.Assess(&nodes[i].Snapshot.Functions[j])
			}
			took[i] += time.Since(began)
		}
	}
	b.ReportMetric(0, "ns/op")
	for i, n := range sizes {
		b.ReportMetric(float64(took[i])/float64(took[0]), fmt.Sprintf("group-of-%d/group-of-64", n))
		b.ReportMetric(float64(took[i])/float64(n)/float64(b.N)/1000, fmt.Sprintf("µs-one-of-%d", n))
	}
}
