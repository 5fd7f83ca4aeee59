package isolation

import (
	"fmt"
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// judgement gathers the verdict on one function.
type judgement struct {
	s *device.Snapshot
	f *device.Function
	// group is nil when f has none.
	group *device.Group
	v     Verdict
}

func judge(s *device.Snapshot, f *device.Function) Verdict {
	j := &judgement{s: s, f: f}
	j.group, _ = s.GroupOf(f)
	if f.IsBridge() {
		j.bridge()
		return j.verdict()
	}
	for _, check := range []func(*judgement){
		(*judgement).grouped, (*judgement).viable, (*judgement).interrupts,
		(*judgement).reserved, (*judgement).peers, (*judgement).translation,
		(*judgement).domain, (*judgement).alive, (*judgement).resettable,
	} {
		check(j)
	}
	return j.verdict()
}

// verdict puts what was gathered into its stable order.
func (j *judgement) verdict() Verdict {
	worstFirst := func(a, b Reason) int { return a.Severity.rank() - b.Severity.rank() }
	slices.SortStableFunc(j.v.Reasons, worstFirst)
	slices.SortStableFunc(j.v.Notes, worstFirst)
	j.v.Isolated = len(j.v.Reasons) == 0
	return j.v
}

func (j *judgement) reason(r Reason) { j.v.Reasons = append(j.v.Reasons, r) }

func (j *judgement) note(r Reason) { j.v.Notes = append(j.v.Notes, r) }

// saw records a fact that was looked at and returns it, so that a reason can
// cite it.
func (j *judgement) saw(path, value string) []Evidence {
	e := Evidence{Path: path, Value: value}
	j.v.Evidence = append(j.v.Evidence, e)
	return []Evidence{e}
}

// bridge explains why the other checks are left out for a bridge.
func (j *judgement) bridge() {
	j.reason(Reason{
		Code: IsBridge, Severity: Low,
		Text:     fmt.Sprintf("%s is a bridge, and bridges are never given to a VM", j.f.Address),
		Fix:      "give the VM functions below it",
		Evidence: j.saw(attribute(j.f.Address, "class"), "0x"+j.f.Class.String()),
	})
}

// alive checks that the function answers.
func (j *judgement) alive() {
	if !j.f.ConfigDead {
		return
	}
	j.reason(Reason{
		Code: Dead, Severity: High,
		Text:     fmt.Sprintf("configuration space of %s reads all ones: the function does not answer", j.f.Address),
		Fix:      deadFix(attribute(j.f.Address, "remove")),
		Evidence: j.saw(attribute(j.f.Address, "config"), "ff ff ff ff"),
	})
}

// rank orders severities, worst first.
func (s Severity) rank() int {
	return slices.Index([]Severity{Critical, High, Medium, Low, Info}, s)
}

// Compare orders severities, worst first. It suits slices.SortFunc.
func (s Severity) Compare(other Severity) int { return s.rank() - other.rank() }

// attribute returns the path of a function's sysfs attribute.
func attribute(a pci.Address, name string) string {
	return "/sys/bus/pci/devices/" + a.String() + "/" + name
}

// groupFile returns the path of a file of an IOMMU group.
func groupFile(number int, name string) string {
	return fmt.Sprintf("/sys/kernel/iommu_groups/%d/%s", number, name)
}

// unbindFix returns the command that takes a function from its driver.
func unbindFix(f *device.Function) string {
	return fmt.Sprintf("unbind %s from %s: `echo %s > /sys/bus/pci/drivers/%s/unbind`", f.Address, f.Driver, f.Address, f.Driver)
}
