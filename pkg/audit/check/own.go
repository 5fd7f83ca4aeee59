package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// ownChecks are the checks of rules that an organization wrote.
func ownChecks(own []rule.Own) []Check {
	checks := make([]Check, len(own))
	for i := range own {
		checks[i] = Check{ID: own[i].Rule.ID, Judge: ownCheck(own[i].Rule.Settings).judge}
	}
	return checks
}

// ownCheck are the settings of an organization's rule.
type ownCheck []rule.Setting

func (c ownCheck) judge(n *facts.Node) Answer {
	all := make([]setting, len(c))
	for i := range c {
		all[i] = ownSetting{c[i]}
	}
	return judgeSettings(n, all...)
}

// ownSetting is judged like a setting of kata-vfio's own rules, but fails if the node does not have the setting, unless the rule
// accepts that.
type ownSetting struct{ rule.Setting }

func (s ownSetting) judge(n *facts.Node) Answer {
	return s.ask(n).each(func(f *finding.Finding) {
		if f.State == finding.NotApplicable && !s.AbsentAccepted {
			f.State, f.Text = finding.Fail, fmt.Sprintf("the node has no %s %s, or the name is wrong", s.Kind, s.Name)
		}
		if f.State == finding.Pass || f.State == finding.NotApplicable {
			return
		}
		f.Object = s.Name
		if f.State == finding.Fail && len(s.Values) > 0 {
			f.Text += "; want " + strings.Join(s.Values, " or ")
		}
	})
}

// ask judges the setting like kata-vfio's own rules judge a setting of the same kind.
func (s ownSetting) ask(n *facts.Node) Answer {
	switch s.Kind {
	case rule.Sysctl:
		return sysctl{s.Name, s.Values}.judge(n)
	case rule.Parameter:
		return s.askParameter(n)
	case rule.Argument:
	}
	asked := argument{s.Name, s.fault}
	if len(s.Forbidden) > 0 || s.AbsentAccepted {
		return s.saying(n, asked.judge(n))
	}
	return s.saying(n, requiredArgument{asked}.judge(n))
}

func (s ownSetting) askParameter(n *facts.Node) Answer {
	module, name := s.OfModule()
	now := n.Parameter(module, name)
	bad := fmt.Sprintf("%s is %s", s.Name, now.Running.Value)
	// The kernel shows a boolean as Y or N. A longer word is a text, even if it begins like a boolean: "never".
	if now.Running.OK() && len(now.Running.Value) > 1 && !slices.Contains(s.Values, now.Running.Value) {
		return pendingUnless(s.isGoodOnDisk, fail(bad, now.Running), &now)
	}
	return parameter{module, name, s.Values, bad, "the node has no parameter " + s.Name}.judgeUnless(s.isGoodOnDisk, n)
}

// isGoodOnDisk reports whether a parameter's value in a file is good. A file has booleans as whole words, too. Other words and
// numbers, such as 10 for 1, are not booleans, even if they begin like one.
func (s ownSetting) isGoodOnDisk(value string) bool {
	isBoolean := len(value) <= 1 || slices.Contains([]string{
		"on", "yes", "true", "enable", "enabled", "off", "no", "false", "disable", "disabled",
	}, strings.ToLower(value))
	return slices.Contains(s.Values, value) || isBoolean && isAny(value, s.Values)
}

// saying shows in an argument's pass which values it has.
func (s ownSetting) saying(n *facts.Node, found Answer) Answer {
	return found.each(func(f *finding.Finding) {
		if f.State != finding.Pass {
			return
		}
		f.Text = "no argument " + s.Name
		for i, a := range n.RunningArguments(s.Name) {
			if i == 0 {
				f.Text = "arguments"
			}
			f.Text += " " + strings.TrimSuffix(s.Name+"="+a.Value, "=")
		}
		if len(n.BootFiles()) == 0 {
			f.Text += " (in this boot; no file of a boot loader was found, so that the next one is not known)"
		}
	})
}

// fault returns why the value of an argument is bad, or "".
func (s ownSetting) fault(value string, _ []string) string {
	switch {
	case s.IsForbidden(value):
		return "is forbidden"
	case len(s.Forbidden) > 0 || slices.Contains(s.Values, value):
		return ""
	}
	return "is another value"
}

// requiredArgument is an argument that the kernel's command line must have, each time with a good value, in this boot and in the next.
type requiredArgument struct{ argument }

func (a requiredArgument) judge(n *facts.Node) Answer {
	cmdline, without := n.Cmdline(), n.NextBootsWithout(a.name)
	if !cmdline.OK() {
		return a.argument.judge(n)
	}
	if len(n.RunningArguments(a.name)) > 0 {
		return a.kept(a.argument.judge(n), without)
	}
	found, next := fail("the kernel was booted without the argument "+a.name, cmdline), n.NextArguments(a.name)
	switch _, bad := a.fails(next, nil); {
	case len(bad) > 0:
		return found.pending("the boot loader's files have it with another value").seen(bad...)
	case len(next) > 0 && len(without) > 0:
		return found.pending("set on disk, but not in " + paths(without) + ", which the boot loader reads").seen(without...)
	case len(next) > 0:
		return found.pending("fixed on disk, reboot pending")
	}
	return found
}

// kept turns a good answer into a failure if the command line of the next boot lacks the argument.
func (a requiredArgument) kept(found Answer, without []facts.Fact) Answer {
	if len(without) == 0 || slices.ContainsFunc(found, func(f finding.Finding) bool { return f.State != finding.Pass }) {
		return found
	}
	return fail("correct now, but the next boot is without the argument "+a.name+": it is not in "+paths(without), without...).
		pending("comes with the next boot")
}

// paths names the files.
func paths(files []facts.Fact) string {
	var all []string
	for _, f := range files {
		if !slices.Contains(all, f.Path) {
			all = append(all, f.Path)
		}
	}
	return strings.Join(all, ", ")
}
