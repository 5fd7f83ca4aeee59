package plan

import (
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// memo keeps what was found out about the functions of a snapshot: devices of one group
// ask for the same.
type memo struct {
	snapshot *device.Snapshot
	verdicts map[pci.Address]isolation.Verdict
	ways     map[pci.Address][]isolation.Reset
}

func newMemo(s *device.Snapshot) *memo {
	return &memo{snapshot: s, verdicts: map[pci.Address]isolation.Verdict{}, ways: map[pci.Address][]isolation.Reset{}}
}

func (m *memo) verdict(f *device.Function) isolation.Verdict {
	v, ok := m.verdicts[f.Address]
	if !ok {
		v = isolation.Judge(m.snapshot, f)
		m.verdicts[f.Address] = v
	}
	return v
}

// resets returns the ways to reset f, best first.
func (m *memo) resets(f *device.Function) []isolation.Reset {
	ways, ok := m.ways[f.Address]
	if !ok {
		ways = isolation.Resets(m.snapshot, f)
		m.ways[f.Address] = ways
	}
	return ways
}

// fix returns what the verdict on f says to do about a reason with the code.
func (m *memo) fix(f *device.Function, code isolation.Code) string {
	for _, r := range m.verdict(f).Reasons {
		if r.Code == code {
			return r.Fix
		}
	}
	return isolation.Fix(code)
}
