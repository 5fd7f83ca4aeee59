package check

import (
	"fmt"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/facts"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
)

// badArgument judges by what kernel command lines give a parameter: bad tells
// what is wrong with one of its values, "" for nothing. The running kernel's counts;
// later boots' are told beside it, and fail where the running one is in order.
func badArgument(n *facts.Node, name string, bad func(value string) string) []finding.Finding {
	cmdline := n.Cmdline()
	if !cmdline.OK() {
		return unknown("what the kernel was booted with", cmdline)
	}
	now := badOnes(n.RunningArguments(name), bad)
	next := badOnes(n.NextArguments(name), bad)
	switch {
	case len(now) > 0 && len(next) > 0:
		return withPending(argumentFails(name, now), "set on disk too: it comes back with every boot", next)
	case len(now) > 0 && len(n.BootFiles()) > 0:
		return withPending(argumentFails(name, now), "gone from the boot loader's files, reboot pending", nil)
	case len(now) > 0:
		return argumentFails(name, now)
	case len(next) > 0:
		return withPending(argumentFails(name, next), "comes with the next boot", nil)
	}
	return pass("no kernel argument "+name+"= weakens it", cmdline)
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

func argumentFails(name string, found []badValue) []finding.Finding {
	words := make([]string, len(found))
	seen := make([]facts.Fact, len(found))
	for i, b := range found {
		words[i] = fmt.Sprintf("%s has %s=%s, which %s", b.Line.Path, name, b.Value, b.why)
		seen[i] = b.Line
	}
	return fail(strings.Join(words, "; "), seen...)
}

func withPending(found []finding.Finding, text string, next []badValue) []finding.Finding {
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
