package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/kernelargs"
)

// setting is one setting of the kernel, with the values that are good or bad.
type setting interface {
	// judge returns one finding for each bad value, or one finding that says that there is none.
	judge(*facts.Node) Answer
}

// kernelSettings are the rules that compare settings of the kernel with values. Checks that depend on more than the values pass
// their entries to judgeSettings themselves. The settings that weaken isolation are in a table of package kernelargs, because
// bootstrap refuses them, too.
func kernelSettings() map[string][]setting {
	const vfioLess = "vfio-pci is not loaded, or lacks this parameter"
	off := []string{"N"}
	all := map[string][]setting{
		// On x86, the error of a device can arrive as an NMI (pci_serr_error and io_check_error in arch/x86/kernel/nmi.c).
		"ACS-016": {
			sysctl{"kernel.panic_on_io_nmi", []string{"0"}},
			sysctl{"kernel.unknown_nmi_panic", []string{"0"}},
			sysctl{"kernel.panic_on_unrecovered_nmi", []string{"0"}},
		},
		"HOST-020": {
			sysctl{"kernel.dmesg_restrict", []string{"1"}},
			sysctl{"kernel.kexec_load_disabled", []string{"1"}},
			sysctl{"kernel.unprivileged_bpf_disabled", []string{"1", "2"}},
		},
		"HOST-008": {
			ofLoaded{parameter{"kvm_intel", "nested", []string{"0", "N"}, "nested virtualization is on", "kvm_intel is not loaded"}},
			ofLoaded{parameter{"kvm_amd", "nested", []string{"0", "N"}, "nested virtualization is on", "kvm_amd is not loaded"}},
		},
		"VFIO-002": {parameter{"vfio_pci", "enable_sriov", off, "a VM or process with a PF can create VFs", vfioLess}},
		"VFIO-015": {parameter{"vfio_pci", "nointxmask", off, "interrupts are masked at the interrupt controller", vfioLess}},
	}
	addWeakenings(all)
	return all
}

// addWeakenings adds the settings that weaken isolation to their rules, one for each name.
func addWeakenings(all map[string][]setting) {
	byName := map[string][]kernelargs.Weakening{}
	for _, w := range kernelargs.Weakenings() {
		if byName[w.Name] == nil {
			all[w.Rule] = append(all[w.Rule], argument{w.Name, func(value string, values []string) string { return fault(byName[w.Name], value, values) }})
		}
		byName[w.Name] = append(byName[w.Name], w)
	}
	for _, w := range kernelargs.WeakeningParameters() {
		module, name, _ := strings.Cut(strings.ReplaceAll(w.Name, "-", "_"), ".")
		all[w.Rule] = []setting{parameter{
			module, name, []string{"N"}, name + " is on, which " + w.Why, "module " + module + " is not loaded, or lacks this parameter",
		}}
	}
}

// fault returns the reason why one of an argument's values is bad, or "".
func fault(of []kernelargs.Weakening, value string, values []string) string {
	for i := range of {
		if of[i].Matches(value) && !of[i].IsUndone(values) {
			return of[i].Why
		}
	}
	return ""
}

// ofSettings returns the check of a rule that only compares settings.
func ofSettings(id string) Check {
	return Check{ID: id, Judge: func(n *facts.Node) Answer { return judgeSettings(n, kernelSettings()[id]...) }}
}

// judgeSettings returns the findings of the settings that are bad or can't be read. If there are none, it returns one finding that
// names the good settings, or one that is not applicable if the kernel has none of the settings.
func judgeSettings(n *facts.Node, all ...setting) Answer {
	by := map[finding.State]Answer{}
	var wrong Answer
	for _, s := range all {
		for _, f := range s.judge(n) {
			by[f.State] = append(by[f.State], f)
			if f.State != finding.Pass && f.State != finding.NotApplicable {
				wrong = append(wrong, f)
			}
		}
	}
	return wrong.or(joined(by[finding.Pass])).or(joined(by[finding.NotApplicable]))
}

// joined makes one finding of several with the same state.
func joined(all Answer) Answer {
	if len(all) == 0 {
		return nil
	}
	one := all[0]
	for _, f := range all[1:] {
		one.Text += "; " + f.Text
		for _, e := range f.Evidence {
			if !slices.Contains(one.Evidence, e) {
				one.Evidence = append(one.Evidence, e)
			}
		}
	}
	return Answer{one}
}

// parameter is a module's parameter with good values only.
type parameter struct {
	module, name string
	good         []string
	// bad describes the effect of another value. none is the reason why the rule does not apply to a kernel without the parameter.
	bad, none string
}

func (p parameter) judge(n *facts.Node) Answer { return p.judgeUnless(spellings(p.good), n) }

// judgeUnless is judge for values of the next boot that a function accepts.
func (p parameter) judgeUnless(later func(value string) bool, n *facts.Node) Answer {
	s := n.Parameter(p.module, p.name)
	switch {
	case s.Running.Status == facts.Absent:
		// If the module is loaded later, it gets the options of modprobe.d.
		return setLaterUnless(later, notApplicable(p.none, s.Running), &s)
	case !s.Running.OK():
		return unknown(p.name, s.Running)
	case !isAny(s.Running.Value, p.good):
		return pendingUnless(later, fail(p.bad, s.Running), &s)
	}
	return setLaterUnless(later, pass(p.name+"="+s.Running.Value, s.Running), &s)
}

// ofLoaded is a parameter that matters only while its module is loaded. Options for a module that this CPU does not use have no effect.
type ofLoaded struct{ of parameter }

func (o ofLoaded) judge(n *facts.Node) Answer {
	if s := n.Parameter(o.of.module, o.of.name); s.Running.Status == facts.Absent {
		return notApplicable(o.of.none, s.Running)
	}
	return o.of.judge(n)
}

// sysctl is one of the kernel's runtime settings.
type sysctl struct {
	name string
	good []string
}

func (c sysctl) judge(n *facts.Node) Answer {
	s := n.Sysctl(c.name)
	switch {
	case s.Running.Status == facts.Absent:
		return notApplicable("the kernel was built without "+c.name, s.Running)
	case !s.Running.OK():
		return unknown(c.name, s.Running).object(c.name)
	case !c.isGood(s.Running.Value):
		return pendingUnless(c.isGood, fail(fmt.Sprintf("%s is %s", c.name, s.Running.Value), s.Running), &s).object(c.name)
	}
	found := setLaterUnless(c.isGood, pass(c.name+"="+s.Running.Value, s.Running), &s)
	if found[0].State == finding.Pass {
		return found
	}
	return found.object(c.name)
}

// isGood compares exactly, because few sysctls are booleans: 10 is not 1. The kernel separates the numbers of a list by tabs.
func (c sysctl) isGood(value string) bool {
	return slices.Contains(c.good, strings.Join(strings.Fields(value), " "))
}

// pending adds the effect of the next boot to a failure: it ends, or a file sets it again.
func pending(found Answer, s *facts.Setting, good ...string) Answer {
	return pendingUnless(spellings(good), found, s)
}

// pendingUnless is [pending] for values of the next boot that a function accepts.
func pendingUnless(good func(value string) bool, found Answer, s *facts.Setting) Answer {
	text := "also set on disk: it returns with every boot"
	switch next, set := s.Next(); {
	case !set:
		text = "not set on disk: it was set after the boot, or is the kernel's default"
	case good(next):
		text = "fixed on disk, reboot pending"
	}
	return found.pending(text).seen(s.Configured...)
}

// setLater turns a good answer into a failure if the next boot would undo it.
func setLater(found Answer, s *facts.Setting, good ...string) Answer {
	return setLaterUnless(spellings(good), found, s)
}

// setLaterUnless is [setLater] for values of the next boot that a function accepts.
func setLaterUnless(good func(value string) bool, found Answer, s *facts.Setting) Answer {
	next, set := s.Next()
	if !set || good(next) {
		return found
	}
	// Places are in the order in which they apply, so the last one decides.
	last := s.Configured[len(s.Configured)-1]
	return fail(fmt.Sprintf("correct now, but %s sets %s=%s for the next boot", last.Path, s.Name, next), s.Running).
		pending("comes with the next boot").seen(s.Configured...)
}

// spellings accepts what isAny accepts of the words.
func spellings(words []string) func(value string) bool {
	return func(value string) bool { return isAny(value, words) }
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

// argument is a parameter of the kernel command line with bad values: bad returns the fault of a value, or "". values are all
// values on the running kernel's command line, because a later value may undo an earlier one. They are nil for a value in a file,
// because other files may or may not follow it.
type argument struct {
	name string
	bad  func(value string, values []string) string
}

// judge judges the running kernel's values first. It also shows the values for later boots, which fail if the running kernel's
// values are good.
func (a argument) judge(n *facts.Node) Answer {
	cmdline := n.Cmdline()
	if !cmdline.OK() {
		return unknown("the kernel command line", cmdline)
	}
	now, lines := a.fails(n.RunningArguments(a.name), kernelargs.Values(cmdline.Value, a.name))
	next, later := a.fails(n.NextArguments(a.name), nil)
	switch {
	case len(lines) > 0 && len(later) > 0:
		return now.pending("also set on disk: it returns with every boot").seen(later...)
	// Without readable boot files, it is unknown whether the argument was removed.
	case len(lines) > 0 && len(n.BootFiles()) > 0:
		return now.pending("removed from the boot loader's files, reboot pending")
	case len(lines) > 0:
		return now
	case len(later) > 0:
		return next.pending("comes with the next boot")
	}
	return pass("no weakening argument "+a.name+"=", cmdline)
}

// fails names the bad values, and the lines that set them.
func (a argument) fails(all []facts.Argument, values []string) (Answer, []facts.Fact) {
	var texts []string
	var lines []facts.Fact
	for _, found := range all {
		if why := a.bad(found.Value, values); why != "" {
			texts = append(texts, fmt.Sprintf("%s sets %s, which %s", found.Place(), strings.TrimSuffix(a.name+"="+found.Value, "="), why))
			lines = append(lines, found.Line)
		}
	}
	return fail(strings.Join(texts, "; "), lines...), lines
}
