package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/finding"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
)

func coverageCheck() Check {
	return Check{Rule: finding.Rule{
		ID: "OBS-004", Title: "The audit could tell all that is of severity High or worse", Severity: isolation.Medium,
		Why:    "what was not seen may be wrong: an audit without the privileges that it needs looks better than the node is",
		Fix:    "run the audit as root in the node's PID namespace, with CAP_SYS_ADMIN and CAP_SYS_PTRACE; give `collect` the same",
		Verify: "kata-vfio-audit node --strict -o wide",
	}, Review: coverage}
}

// maxRules is how many rules a sentence names.
const maxRules = 12

// coverage judges the audit by what the other checks have said.
func coverage(said []finding.Finding) []finding.Finding {
	var asked, silent, needs []string
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
		for _, e := range f.Evidence {
			if e.Needs != "" && e.Error != "" {
				needs = append(needs, e.Needs)
			}
		}
	}
	asked, silent, needs = distinct(asked), distinct(silent), distinct(needs)
	switch {
	case len(asked) == 0:
		return notApplicable("no other check was asked")
	case len(silent) == 0:
		return pass(fmt.Sprintf("%d checks of severity High or worse have an answer", len(asked)), told(asked, "answered"))
	}
	text := fmt.Sprintf("%d of %d checks of severity High or worse could not tell: %s", len(silent), len(asked), strings.Join(silent[:min(len(silent), maxRules)], ", "))
	if more := len(silent) - maxRules; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	if len(needs) > 0 {
		text += "; the audit lacks " + strings.Join(needs, ", ")
	}
	return fail(text, told(silent, "not answered"))
}

// told is the audit's own report as evidence.
func told(ids []string, what string) facts.Fact {
	return facts.Fact{Path: "audit: " + count(len(ids), "check") + " " + what, Value: strings.Join(ids, " "), How: "audit"}
}

func distinct(words []string) []string {
	slices.Sort(words)
	return slices.Compact(words)
}
