package check

import (
	"fmt"
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// Answer is the result of a check: one finding for each object that fails or is unknown, or one for all of them. Its
// methods change each of its findings and return it, so that a finding is one expression:
//
//	fail("its reset failed", seen).on(f).reaching(others...).fix("reboot the node")
type Answer []finding.Finding

// on says which function the findings are about.
func (a Answer) on(f *device.Function) Answer { return a.at(f.Address) }

// at is [Answer.on] for a function that may not be in the snapshot.
func (a Answer) at(address pci.Address) Answer {
	return a.each(func(f *finding.Finding) { f.Device = new(address) })
}

// object says what else they are about: "claim t1/train".
func (a Answer) object(name string) Answer {
	return a.each(func(f *finding.Finding) { f.Object = name })
}

// reaching adds functions that are in reach.
func (a Answer) reaching(devices ...pci.Address) Answer {
	return a.each(func(f *finding.Finding) { f.Devices = append(f.Devices, devices...) })
}

// held sets the functions that the findings are about. The first is the device of the findings.
func (a Answer) held(devices []pci.Address) Answer {
	if len(devices) == 0 {
		return a
	}
	return a.at(devices[0]).reaching(devices...)
}

// fix sets a fix that is more precise than the rule's.
func (a Answer) fix(text string) Answer {
	return a.each(func(f *finding.Finding) { f.Remediation = text })
}

// weighs gives the findings another severity than the rule's.
func (a Answer) weighs(s rule.Severity) Answer {
	return a.each(func(f *finding.Finding) { f.Severity = s })
}

// as changes the state of the findings, for example to one that a person has to decide.
func (a Answer) as(state finding.State) Answer {
	return a.each(func(f *finding.Finding) { f.State = state })
}

// pending says how the next boot differs.
func (a Answer) pending(text string) Answer {
	return a.each(func(f *finding.Finding) { f.Pending = text })
}

// ofRecord says which claim the findings are about.
func (a Answer) ofRecord(rec *journal.Record) Answer {
	return a.object(claimName(rec)).reaching(rec.Plan.Addresses()...)
}

// or returns the findings, or the other answer if there are none.
func (a Answer) or(other Answer) Answer {
	if len(a) == 0 {
		return other
	}
	return a
}

// seen adds evidence.
func (a Answer) seen(more ...facts.Fact) Answer {
	return a.each(func(f *finding.Finding) { f.Evidence = append(f.Evidence, evidence(more)...) })
}

func (a Answer) each(change func(*finding.Finding)) Answer {
	for i := range a {
		change(&a[i])
	}
	return a
}

// over judges objects one by one. wrong returns no finding for an object without a fault.
func over[T any](objects []T, wrong func(T) Answer) Answer {
	var found Answer
	for _, object := range objects {
		found = append(found, wrong(object)...)
	}
	return found
}

// conclude ends a rule that judges several objects: with the findings, or a pass that shows the objects, or not
// applicable if there are none.
func conclude[T any](found Answer, looked []T, what, none string, read func(T) []facts.Fact) Answer {
	return concludeAs(found, looked, pass(count(len(looked), what)), none, read)
}

// concludeAs is conclude with a pass that has more text than the number of objects.
func concludeAs[T any](found Answer, looked []T, passed Answer, none string, read func(T) []facts.Fact) Answer {
	switch {
	case len(found) > 0:
		return found
	case len(looked) == 0:
		return notApplicable(none)
	}
	return showing(passed, looked, read)
}

// The answers of checks, each a list of one finding.

func pass(text string, seen ...facts.Fact) Answer {
	return say(finding.Pass, text, seen)
}

func fail(text string, seen ...facts.Fact) Answer {
	return say(finding.Fail, text, seen)
}

// notApplicable is for a node without any object of the rule.
func notApplicable(text string, seen ...facts.Fact) Answer {
	return say(finding.NotApplicable, text, seen)
}

// unknown is for unavailable facts. It names the first one.
func unknown(what string, seen ...facts.Fact) Answer {
	for _, f := range seen {
		if !f.OK() {
			why := f.Err
			if f.Status == facts.Absent {
				why = "not present"
			}
			return say(finding.Unknown, fmt.Sprintf("can't tell %s: %s: %s", what, f.Path, why), seen)
		}
	}
	return say(finding.Unknown, "can't tell "+what, seen)
}

func say(state finding.State, text string, seen []facts.Fact) Answer {
	return Answer{{State: state, Text: text, Evidence: evidence(seen)}}
}

// count says how many: "1 function", "3 functions".
func count(n int, what string) string { return output.Count(n, what) }

// The functions below add evidence to a pass, so that a reader need not trust it.

// maxShown limits the objects that a pass shows; the others are counted. A node may have thousands of objects with
// the same facts.
const maxShown = 8

// showing adds the facts of the first objects to a pass, and does not read the others. Other findings have their own
// evidence, and stay unchanged.
func showing[T any](found Answer, objects []T, read func(T) []facts.Fact) Answer {
	if len(found) != 1 || found[0].State != finding.Pass {
		return found
	}
	shown := objects[:min(len(objects), maxShown)]
	var seen []facts.Fact
	for _, object := range shown {
		for _, f := range read(object) {
			if !slices.Contains(seen, f) {
				seen = append(seen, f)
			}
		}
	}
	found[0].Evidence = append(found[0].Evidence, evidence(seen)...)
	found[0].LeftOut = len(objects) - len(shown)
	return found
}

// one makes a reader of one fact a reader for [showing].
func one[T any](read func(T) facts.Fact) func(T) []facts.Fact {
	return func(object T) []facts.Fact { return []facts.Fact{read(object)} }
}

// itself is a reader for objects that are facts.
func itself(f facts.Fact) facts.Fact { return f }

// orPassWith returns the findings, or a pass with the facts.
func orPassWith(found Answer, asked int, what, none string, seen []facts.Fact) Answer {
	if asked == 0 {
		return notApplicable(none)
	}
	return showing(found.or(pass(count(asked, what))), seen, one(itself))
}
