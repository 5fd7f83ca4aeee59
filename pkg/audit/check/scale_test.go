package check_test

import (
	"fmt"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/audit/check"
	"github.com/kata-vfio/kata-vfio/pkg/audit/check/board"
	"github.com/kata-vfio/kata-vfio/pkg/audit/facts"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/inventory"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// BenchmarkRun judges a node of 2,048 functions, each another tenant's, without
// the scan before it.
func BenchmarkRun(b *testing.B) {
	tree := board.New(b)
	for i, a := range tree.Scale(2048) {
		tree.Give(fmt.Sprintf("t%d", i), "c", a)
	}
	fsys, err := sysfs.Open(tree.Root())
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = fsys.Close() }()
	s, err := inventory.Scan(b.Context(), fsys)
	if err != nil {
		b.Fatal(err)
	}
	profile, _ := finding.ProfileNamed(finding.MultiTenant)
	b.ReportAllocs()
	for b.Loop() {
		check.Run(facts.New(fsys, s), check.Catalogue(), check.Options{Profile: profile, Today: "2026-11-22"})
	}
}
