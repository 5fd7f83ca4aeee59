package bench

import (
	"fmt"
	"testing"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/audit/check"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/inventory"
	"github.com/kata-vfio/kata-vfio/pkg/nodeconfig"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/publish"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
	"github.com/kata-vfio/kata-vfio/test/board"
)

// fewFunctions is the size of the node that the large one is compared with.
func fewFunctions() int { return functions() / 8 }

// judged is what each judgment of a node took.
type judged struct {
	functions                       int // of the node, bridges included
	scan, assess, publishing, audit time.Duration
}

// BenchmarkJudgment compares the judgment of 4,096 functions, their slices and their audit with one scan of them.
// The growth is what a function costs more on the large node than on one of 512: 1 is linear, 8 quadratic.
func BenchmarkJudgment(b *testing.B) {
	few, many := scaledNode(b, fewFunctions()), scaledNode(b, functions())
	var small, large judged
	for b.Loop() {
		small.add(b, few)
		large.add(b, many)
	}
	b.ReportMetric(0, "ns/op")
	for _, part := range []struct {
		name         string
		small, large time.Duration
	}{
		{"scan", small.scan, large.scan},
		{"assess", small.assess, large.assess},
		{"publish", small.publishing, large.publishing},
		{"audit", small.audit, large.audit},
	} {
		b.ReportMetric(float64(part.large)/float64(large.scan), part.name+"/scan")
		perFunction := float64(part.large) / float64(large.functions)
		b.ReportMetric(perFunction*float64(small.functions)/float64(part.small), part.name+"-growth")
	}
	fmt.Printf("%d functions: scan %v, assess %v, publish %v, audit %v\n", large.functions/b.N,
		large.scan/time.Duration(b.N), large.assess/time.Duration(b.N), large.publishing/time.Duration(b.N), large.audit/time.Duration(b.N))
}

// scaledNode writes a node with n functions that can be assigned, in memory-backed storage where there is some.
func scaledNode(b *testing.B, n int) *sysfs.FS {
	b.Helper()
	inMemoryStorage(b)
	tree := board.New(b)
	for i, a := range tree.Scale(n) {
		if i%64 == 0 {
			tree.Give(fmt.Sprintf("t%d", i), "claim", a)
		}
	}
	fs, err := sysfs.Open(tree.Root())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = fs.Close() })
	return fs
}

// add judges the node once more.
func (j *judged) add(b *testing.B, fs *sysfs.FS) {
	b.Helper()
	var snap *device.Snapshot
	var err error
	j.scan += timed(func() { snap, err = inventory.Scan(b.Context(), fs) })
	if err != nil {
		b.Fatal(err)
	}
	j.functions += len(snap.Functions)
	node := &publish.Node{
		Name: "node", Snapshot: snap, Selection: nodeconfig.Select(nil, snap), Assessments: map[pci.Address]plan.Assessment{},
	}
	assessor := plan.NewAssessor(plan.Node{Snapshot: snap, Selection: node.Selection})
	j.assess += timed(func() {
		for i := range snap.Functions {
			f := &snap.Functions[i]
			node.Assessments[f.Address] = assessor.Assess(f)
		}
	})
	j.publishing += timed(func() { publish.Pools(node) })
	profile, _ := finding.ProfileNamed(finding.MultiTenant)
	all, err := check.Catalogue()
	if err != nil {
		b.Fatal(err)
	}
	j.audit += timed(func() {
		check.Run(facts.New(fs, snap), all, check.Options{Profile: profile, Today: "2026-11-22"})
	})
}
