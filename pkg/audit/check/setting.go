package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/kernelargs"
)

// parameter is a module's parameter with good values only.
type parameter struct {
	module, name string
	good         []string
	// bad describes the effect of another value, and none is the reason why a kernel without the parameter is not
	// concerned.
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

// pending adds the effect of the next boot to a failure: it ends, or a file sets it again.
func pending(found Answer, s *facts.Setting, good ...string) Answer {
	text := "also set on disk: it returns with every boot"
	switch next, set := s.Next(); {
	case !set:
		text = "not set on disk: it was set after the boot, or is the kernel's default"
	case isAny(next, good):
		text = "fixed on disk, reboot pending"
	}
	return found.pending(text).seen(s.Configured...)
}

// setLater turns a good answer into a failure if the next boot would undo it.
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

// badArgument judges a parameter of the kernel command line: bad returns the fault of a value, or "". The running
// kernel's value counts. Values for later boots are shown as well, and fail if the running kernel's value is good.
func badArgument(n *facts.Node, name string, bad func(value string) string) Answer {
	cmdline := n.Cmdline()
	if !cmdline.OK() {
		return unknown("the kernel command line", cmdline)
	}
	now, lines := argumentFails(name, n.RunningArguments(name), bad)
	next, later := argumentFails(name, n.NextArguments(name), bad)
	switch {
	case len(lines) > 0 && len(later) > 0:
		return now.pending("also set on disk: it returns with every boot").seen(later...)
	// Without readable boot files, the argument is not known to be removed.
	case len(lines) > 0 && len(n.BootFiles()) > 0:
		return now.pending("removed from the boot loader's files, reboot pending")
	case len(lines) > 0:
		return now
	case len(later) > 0:
		return next.pending("comes with the next boot")
	}
	return pass("no weakening argument "+name+"=", cmdline)
}

// argumentFails names the bad values of an argument, and the lines that set them.
func argumentFails(name string, all []facts.Argument, bad func(string) string) (Answer, []facts.Fact) {
	var words []string
	var lines []facts.Fact
	for _, a := range all {
		if why := bad(a.Value); why != "" {
			words = append(words, fmt.Sprintf("%s sets %s=%s, which %s", a.Place(), name, a.Value, why))
			lines = append(lines, a.Line)
		}
	}
	return fail(strings.Join(words, "; "), lines...), lines
}

// badWords returns a judge of values that are words with commas between. The map has the fault of each bad word.
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

func judgeSysctl(s *facts.Setting, good []string) Answer {
	switch {
	case !s.Running.OK():
		return unknown(s.Name, s.Running)
	case !s.Running.Is(good...):
		return pending(fail(fmt.Sprintf("%s is %s", s.Name, s.Running.Value), s.Running), s, good...)
	}
	return setLater(pass(s.Running.Value, s.Running), s, good...)
}
