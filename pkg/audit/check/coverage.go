package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/facts"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
)

func coverageCheck() Check {
	return Check{Rule: finding.Rule{
		ID: "OBS-004", Title: "The audit could tell all that is of severity High or worse", Severity: isolation.Medium,
		Why: "what was not seen may be wrong: an audit without the privileges that it needs looks better than the node is",
		Fix: "where it was refused, run the audit as root in the node's PID namespace, with CAP_SYS_ADMIN and CAP_SYS_PTRACE (`collect` too); where a file " +
			"is not there, mount its file system or have its owner write it; a damaged one is its owner's to mend",
		Verify: "kata-vfio-audit node --strict -o wide",
	}, Review: coverage}
}

// maxRules is how many rules a sentence names.
const maxRules = 12

// coverage judges the audit by what the other checks have said.
func coverage(said []finding.Finding) []finding.Finding {
	var asked, silent []string
	var why causes
	for i := range said {
		f := &said[i]
		if f.Severity.Compare(isolation.High) > 0 {
			continue
		}
		asked = append(asked, f.ID)
		if f.State != finding.Unknown && f.State != finding.Error {
			continue
		}
		silent = append(silent, f.ID)
		why.add(f)
	}
	asked, silent = distinct(asked), distinct(silent)
	switch {
	case len(asked) == 0:
		return notApplicable("no other check was asked")
	case len(silent) == 0:
		return pass(fmt.Sprintf("%d checks of severity High or worse have an answer", len(asked)), listed(asked, "answered"))
	}
	text := fmt.Sprintf("%d of %d checks of severity High or worse could not tell: %s", len(silent), len(asked), strings.Join(silent[:min(len(silent), maxRules)], ", "))
	if more := len(silent) - maxRules; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	failed := fail(strings.Join(append([]string{text}, why.words()...), "; "), listed(silent, "not answered"))
	failed[0].Remediation = why.fix()
	return failed
}

// causes are why checks could not tell, by what helps: a privilege, a file that is
// there, one that can be read. Where it is none of them the check's own text is all.
type causes struct{ needs, absent, broken, other []string }

// add takes in a finding by the worst that is in its evidence: beside a file that was
// refused, one that is not there is mostly another runtime's or distribution's.
func (c *causes) add(f *finding.Finding) {
	var one causes
	for i := range f.Evidence {
		e := &f.Evidence[i]
		switch {
		case e.Error == "":
		case e.Error == facts.NotThere:
			one.absent = append(one.absent, e.Path)
		case e.Needs != "":
			one.needs = append(one.needs, e.Needs)
		default:
			one.broken = append(one.broken, e.Path)
		}
	}
	switch {
	case len(one.needs) > 0:
		c.needs = append(c.needs, one.needs...)
	case len(one.broken) > 0:
		c.broken = append(c.broken, one.broken...)
	case len(one.absent) > 0:
		c.absent = append(c.absent, one.absent...)
	default:
		c.other = append(c.other, f.ID)
	}
}

// words says what was in the way.
func (c *causes) words() []string {
	var words []string
	for _, cause := range []struct {
		what string
		list []string
	}{{"the audit lacks ", c.needs}, {"not there: ", c.absent}, {"not readable: ", c.broken}} {
		if list := distinct(cause.list); len(list) > 0 {
			words = append(words, cause.what+listOf(list))
		}
	}
	return words
}

// fix says what would help, for each cause that there is.
func (c *causes) fix() string {
	var fixes []string
	if needs := distinct(c.needs); len(needs) > 0 {
		fixes = append(fixes, "run the audit as root in the node's PID namespace, with CAP_SYS_ADMIN and CAP_SYS_PTRACE; give `collect` the same (it lacks "+strings.Join(needs, ", ")+")")
	}
	if absent := distinct(c.absent); len(absent) > 0 {
		fix := "see why there is no " + listOf(absent)
		if commands := mounts(absent); commands != "" {
			fix += " (" + commands + ")"
		}
		fixes = append(fixes, fix)
	}
	if broken := distinct(c.broken); len(broken) > 0 {
		fixes = append(fixes, "mend or replace what can't be read: "+listOf(broken))
	}
	if other := distinct(c.other); len(other) > 0 {
		fixes = append(fixes, "see what each says that the node does not show: `kata-vfio-audit explain "+other[0]+" --root /`")
	}
	return strings.Join(fixes, "; ")
}

// mounts are the commands that bring file systems which a node may be without.
func mounts(paths []string) string {
	var commands []string
	for _, path := range paths {
		for _, system := range [][2]string{{"/sys/kernel/security", "securityfs"}, {"/sys/kernel/debug", "debugfs"}, {"/sys/firmware/efi/efivars", "efivarfs"}, {"/sys/fs/cgroup", "cgroup2"}} {
			if strings.HasPrefix(path, system[0]+"/") || path == system[0] {
				commands = append(commands, "`mount -t "+system[1]+" none "+system[0]+"`")
			}
		}
	}
	return strings.Join(distinct(commands), ", ")
}

// listed is the audit's own report as evidence.
func listed(ids []string, what string) facts.Fact {
	return facts.Fact{Path: "audit: " + count(len(ids), "check") + " " + what, Value: strings.Join(ids, " "), How: "audit"}
}

func distinct(words []string) []string {
	words = slices.Sorted(slices.Values(words))
	return slices.Compact(words)
}
