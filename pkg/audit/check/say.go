package check

import (
	"fmt"

	"github.com/kata-vfio/kata-vfio/pkg/audit/facts"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
)

// The words by which checks answer. Each returns a list of one, so that a check
// that is done may return it as it is.

func pass(text string, seen ...facts.Fact) []finding.Finding {
	return say(finding.Pass, text, seen)
}

func fail(text string, seen ...facts.Fact) []finding.Finding {
	return say(finding.Fail, text, seen)
}

// notApplicable is for a node that has nothing the rule is about.
func notApplicable(text string, seen ...facts.Fact) []finding.Finding {
	return say(finding.NotApplicable, text, seen)
}

// unknown is for facts that were not to be had: it names the first that was not.
func unknown(what string, seen ...facts.Fact) []finding.Finding {
	for _, f := range seen {
		if !f.OK() {
			why := f.Err
			if f.Status == facts.Absent {
				why = "it is not there"
			}
			return say(finding.Unknown, fmt.Sprintf("%s can't be told: %s: %s", what, f.Path, why), seen)
		}
	}
	return say(finding.Unknown, what+" can't be told", seen)
}

func say(state finding.State, text string, seen []facts.Fact) []finding.Finding {
	f := finding.Finding{State: state, Text: text}
	for _, s := range seen {
		f.Evidence = append(f.Evidence, s.Evidence())
	}
	return []finding.Finding{f}
}

// count says how many: "1 function", "3 functions".
func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
