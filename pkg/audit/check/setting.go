package check

import (
	"fmt"
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/audit/facts"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/kernelargs"
)

// pending adds to a failure what the next boot makes of it: nothing is configured
// that would bring it about again, or it is.
func pending(found []finding.Finding, s *facts.Setting, good ...string) []finding.Finding {
	next, set := s.Next()
	for i := range found {
		switch {
		case !set:
			found[i].Pending = "nothing on disk asks for it: it was set since boot, or is the kernel's default"
		case isAny(next, good):
			found[i].Pending = "fixed on disk, reboot pending"
		default:
			found[i].Pending = "set on disk too: it comes back with every boot"
		}
		found[i].Evidence = append(found[i].Evidence, evidence(s.Configured)...)
	}
	return found
}

// setLater turns a good answer into a failure where the next boot would undo it.
func setLater(found []finding.Finding, s *facts.Setting, good ...string) []finding.Finding {
	next, set := s.Next()
	if !set || isAny(next, good) {
		return found
	}
	last := s.Configured[len(s.Configured)-1]
	later := fail(fmt.Sprintf("it is in order now, but %s sets %s=%s for the next boot", last.Path, s.Name, next), s.Running)
	later[0].Pending = "comes with the next boot"
	later[0].Evidence = append(later[0].Evidence, evidence(s.Configured)...)
	return later
}

// isAny reports whether a value is one of the words, or the same boolean, which
// modules take in many spellings.
func isAny(value string, words []string) bool {
	on, ok := kernelargs.Bool(value)
	return slices.ContainsFunc(words, func(w string) bool {
		switch w {
		case value:
			return true
		case "Y", "1":
			return ok && on
		case "N", "0":
			return ok && !on
		}
		return false
	})
}

// isYes reports whether a boolean is set to true.
func isYes(value string) bool {
	on, _ := kernelargs.Bool(value)
	return on
}

func evidence(seen []facts.Fact) []finding.Evidence {
	var all []finding.Evidence
	for _, f := range seen {
		all = append(all, f.Evidence())
	}
	return all
}
