package report

import (
	"github.com/kata-vfio/kata-vfio/pkg/audit"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
)

// fabricView is the node's NVLink fabric as the page shows it.
type fabricView struct {
	// Words are the fabric in one line, and Notes why it has no partitions, or why the list may be old.
	Words      string
	Notes      []string
	Partitions []partitionView
}

// partitionView is one row of the table of partitions.
type partitionView struct {
	*plan.PartitionState
	// Bad is set for a partition whose claim has no NVLink, and for an active partition that no claim has.
	Bad bool
}

// newFabricView returns nil for a node without a fabric.
func newFabricView(s *plan.FabricState) *fabricView {
	if s == nil {
		return nil
	}
	v := &fabricView{Words: s.Words(), Notes: s.Notes()}
	for i := range s.Partitions {
		p := &s.Partitions[i]
		v.Partitions = append(v.Partitions, partitionView{PartitionState: p, Bad: audit.PartitionGrade(p) == audit.Bad})
	}
	return v
}

// More are the reasons behind the first one why a partition is blocked.
func (p *partitionView) More() []string {
	if len(p.BlockedBy) < 2 {
		return nil
	}
	return p.BlockedBy[1:]
}

// First describes the use with the first reason only.
func (p *partitionView) First() string {
	if p.Use != plan.PartitionBlocked {
		return p.Words()
	}
	return "blocked by " + p.BlockedBy[0]
}
