package page

import (
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/audit/topology"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// marksOf says what the drawing marks.
func marksOf(findings []finding.Finding, refs map[pci.Address][]reference, who *tenants) *topology.Marks {
	m := &topology.Marks{
		Holders: who.holders(), Failing: map[pci.Address]string{},
		Page: func(a pci.Address) string { return "#" + deviceAnchor(a) },
	}
	for a, list := range refs {
		var ids []string
		for _, r := range list {
			if r.Direct && r.State == finding.Fail {
				ids = append(ids, r.Rule.ID)
			}
		}
		if len(ids) > 0 {
			m.Failing[a] = "fails " + strings.Join(slices.Compact(ids), ", ")
		}
	}
	for i := range findings {
		if set := brokenBy(&findings[i], who); len(set) > 0 {
			m.Broken = append(m.Broken, set)
		}
	}
	return m
}

// brokenBy returns the functions of different tenants that a finding says reach
// each other. That somebody accepted it does not mend it.
func brokenBy(f *finding.Finding, who *tenants) []pci.Address {
	if f.State != finding.Fail && f.State != finding.Waived || len(who.namesOf(f.Devices...)) < 2 {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(f.Devices), func(a pci.Address) bool { return len(who.now[a]) == 0 })
}
