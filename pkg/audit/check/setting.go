package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/facts"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/kernelargs"
)

// parameter is a module's parameter with good values only.
type parameter struct {
	module, name string
	good         []string
	// bad says what another value does, and none why a kernel without the parameter is
	// not concerned.
	bad, none string
}

func (p parameter) judge(n *facts.Node) Answer {
	s := n.Parameter(p.module, p.name)
	switch {
	case s.Running.Status == facts.Absent:
		return setLater(notApplicable(p.none, s.Running), &s, p.good...)
	case !s.Running.OK():
		return unknown(p.name, s.Running)
	case !isAny(s.Running.Value, p.good):
		return pending(fail(p.bad, s.Running), &s, p.good...)
	}
	return setLater(pass(p.name+"="+s.Running.Value, s.Running), &s, p.good...)
}

// pending adds to a failure what the next boot makes of it: nothing is configured
// that would bring it about again, or it is.
func pending(found Answer, s *facts.Setting, good ...string) Answer {
	next, set := s.Next()
	for i := range found {
		switch {
		case !set:
			found[i].Pending = "not set on disk: it was set after the boot, or is the kernel's default"
		case isAny(next, good):
			found[i].Pending = "fixed on disk, reboot pending"
		default:
			found[i].Pending = "also set on disk: it returns with every boot"
		}
		found[i].Evidence = append(found[i].Evidence, evidence(s.Configured)...)
	}
	return found
}

// setLater turns a good answer into a failure where the next boot would undo it.
func setLater(found Answer, s *facts.Setting, good ...string) Answer {
	next, set := s.Next()
	if !set || isAny(next, good) {
		return found
	}
	last := s.Configured[len(s.Configured)-1]
	return fail(fmt.Sprintf("correct now, but %s sets %s=%s for the next boot", last.Path, s.Name, next), s.Running).
		pending("comes with the next boot").seen(s.Configured...)
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

// badArgument judges by what kernel command lines give a parameter: bad tells
// what is wrong with one of its values, "" for nothing. The running kernel's counts;
// later boots' are told beside it, and fail where the running one is in order.
func badArgument(n *facts.Node, name string, bad func(value string) string) Answer {
	cmdline := n.Cmdline()
	if !cmdline.OK() {
		return unknown("the kernel command line", cmdline)
	}
	now := badOnes(n.RunningArguments(name), bad)
	next := badOnes(n.NextArguments(name), bad)
	switch {
	case len(now) > 0 && len(next) > 0:
		return withPending(argumentFails(name, now), "also set on disk: it returns with every boot", next)
	case len(now) > 0 && len(n.BootFiles()) > 0:
		return withPending(argumentFails(name, now), "removed from the boot loader's files, reboot pending", nil)
	case len(now) > 0:
		return argumentFails(name, now)
	case len(next) > 0:
		return withPending(argumentFails(name, next), "comes with the next boot", nil)
	}
	return pass("no weakening argument "+name+"=", cmdline)
}

// badValue is one value of an argument with what is wrong with it.
type badValue struct {
	facts.Argument
	why string
}

func badOnes(all []facts.Argument, bad func(string) string) []badValue {
	var found []badValue
	for _, a := range all {
		if why := bad(a.Value); why != "" {
			found = append(found, badValue{a, why})
		}
	}
	return found
}

func argumentFails(name string, found []badValue) Answer {
	words := make([]string, len(found))
	seen := make([]facts.Fact, len(found))
	for i, b := range found {
		words[i] = fmt.Sprintf("%s sets %s=%s, which %s", b.Line.Path, name, b.Value, b.why)
		seen[i] = b.Line
	}
	return fail(strings.Join(words, "; "), seen...)
}

func withPending(found Answer, text string, next []badValue) Answer {
	for i := range found {
		found[i].Pending = text
		for _, b := range next {
			found[i].Evidence = append(found[i].Evidence, b.Line.Evidence())
		}
	}
	return found
}

// badWords returns a judge of values that are words with commas between: what is
// wrong with each bad word.
func badWords(words map[string]string) func(string) string {
	return func(value string) string {
		for word := range strings.SplitSeq(value, ",") {
			if why := words[word]; why != "" {
				return why
			}
		}
		return ""
	}
}
