package isolation

import (
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// FixAt is fixAt for tests.
func FixAt(code rule.Code, placeholder, value string) string { return fixAt(code, placeholder, value) }

// ACSAtBootBy is acsAtBootBy for tests.
func ACSAtBootBy(value string) string { return acsAtBootBy(value) }

// OtherSlotFix is otherSlotFix for tests.
func OtherSlotFix(slot string) string { return otherSlotFix(slot) }

// JudgeByEachMate is [Judge] with a look at each member of the group, suspect or not.
func JudgeByEachMate(s *device.Snapshot, f *device.Function) Judgment {
	k := NewJudger(s)
	if g, ok := s.GroupWith(f); ok {
		facts := k.facts(g)
		facts.suspects = nil
		for i := range facts.members {
			facts.suspects = append(facts.suspects, i)
		}
	}
	return k.Judge(f)
}
