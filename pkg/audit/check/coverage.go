package check

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// maxRules is how many rules a sentence names.
const maxRules = 12

// coverage judges the audit by the answers of the other checks.
func coverage(said Answer) Answer {
	asked, silent, why := map[string]bool{}, map[string]bool{}, causes{}
	for i := range said {
		f := &said[i]
		// The greater of two severities is the milder one.
		if f.Severity.Compare(rule.High) > 0 {
			continue
		}
		asked[f.ID] = true
		if f.State == finding.Unknown || f.State == finding.Error {
			silent[f.ID] = true
			why.add(f)
		}
	}
	all, without := slices.Sorted(maps.Keys(asked)), slices.Sorted(maps.Keys(silent))
	switch {
	case len(all) == 0:
		return notApplicable("no other check ran")
	case len(without) == 0:
		return pass(count(len(all), "check")+" of severity High or worse, all with an answer", listed(all, "answered"))
	}
	text := fmt.Sprintf("%d of %s of severity High or worse %s no answer: %s", len(without), count(len(all), "check"), output.Plural(len(without), "has", "have"), strings.Join(without[:min(len(without), maxRules)], ", "))
	if more := len(without) - maxRules; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return fail(strings.Join(append([]string{text}, why.words()...), "; "), listed(without, "not answered")).fix(why.fix())
}

// causes has the reasons of unknown answers, grouped by their remedy: missing privileges, missing files and unreadable files. other
// has the rules with other reasons, for which only the check's own text says what to do.
type causes struct{ needs, absent, broken, other []string }

// add counts a finding under the worst reason in its evidence. A denied file is worse than a missing one, which often belongs to a
// runtime or distribution that the node does not have.
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

// words names the obstacles.
func (c *causes) words() []string {
	var words []string
	for _, cause := range []struct {
		what string
		list []string
	}{{"the audit lacks ", c.needs}, {"missing: ", c.absent}, {"not readable: ", c.broken}} {
		if list := distinct(cause.list); len(list) > 0 {
			words = append(words, cause.what+joinNames(list))
		}
	}
	return words
}

// fix returns the remedy for each cause that exists.
func (c *causes) fix() string {
	var fixes []string
	if needs := distinct(c.needs); len(needs) > 0 {
		fixes = append(fixes, "run the audit as root in the node's PID namespace, with CAP_SYS_ADMIN and CAP_SYS_PTRACE; give `collect` the same (it lacks "+strings.Join(needs, ", ")+")")
	}
	if absent := distinct(c.absent); len(absent) > 0 {
		fix := "find out why these are missing: " + joinNames(absent)
		if commands := mounts(absent); commands != "" {
			fix += " (" + commands + ")"
		}
		fixes = append(fixes, fix)
	}
	if broken := distinct(c.broken); len(broken) > 0 {
		fixes = append(fixes, "repair or replace unreadable files: "+joinNames(broken))
	}
	if other := distinct(c.other); len(other) > 0 {
		fixes = append(fixes, "see the reason of each: `kata-vfio-audit explain "+other[0]+" --root /`")
	}
	return strings.Join(fixes, "; ")
}

// mounts returns the commands that mount file systems which a node may lack.
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
