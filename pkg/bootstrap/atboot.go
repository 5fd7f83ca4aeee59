package bootstrap

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/boot"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
)

// await says how it stands with what only a boot brings and is not there: files are to be changed first, the next boot brings it, or
// apply had left it to a boot and there was one.
func (e *Engine) await(p *Plan, j *Journal, key string) Status {
	p.awaits = append(p.awaits, key)
	since, left := j.Awaits[key]
	switch {
	case p.diskToDo():
		return ToDo
	case left && since != e.bootID():
		p.NotBrought = true
		return NotBrought
	}
	p.Reboot = true
	return RebootPending
}

// diskToDo reports whether something has to be done before a boot can bring anything.
func (p *Plan) diskToDo() bool {
	return len(p.changes) > 0 || slices.ContainsFunc(p.Steps, func(s Step) bool { return s.Due })
}

// awaited is what the next boot has to bring once the plan is carried out. What was left to a former one already stays that, unless
// what a boot goes by is changed only now.
func (p *Plan) awaited(j *Journal, boot string) map[string]string {
	all := map[string]string{}
	for _, key := range p.awaits {
		since, left := j.Awaits[key]
		if !left || p.diskToDo() {
			since = boot
		}
		all[key] = since
	}
	return all
}

// planBoot judges problems of the running kernel's, and says what to do where a boot has not brought what it should have.
func (e *Engine) planBoot(p *Plan, j *Journal) {
	for _, problem := range p.Problems {
		if problem.AtBoot {
			e.await(p, j, problem.Text)
		}
	}
	var words []string
	for _, s := range p.Settings {
		switch {
		case s.Status != NotBrought:
		case s.Path == state.Cmdline:
			words = append(words, s.Value)
		default:
			p.Problems = append(p.Problems, state.Problem{
				Part: s.Part, Path: s.Path, Text: fmt.Sprintf("/%s is %s and not %s, and the boot since apply has not changed that", s.Path, s.Now, s.Value),
				Fix: "read what the kernel says of it (`dmesg`), and what the device's firmware allows; if it was changed after the boot, reboot",
			})
		}
	}
	if len(words) > 0 {
		p.Problems = append(p.Problems, state.Problem{
			Part: boot.Part, Path: state.Cmdline,
			Text: fmt.Sprintf("the node was rebooted since apply, and its kernel was started without %s", strings.Join(words, " ")),
			Fix: fmt.Sprintf("the files are those of %s: see whether that is what starts the node (another boot loader, network boot, a hypervisor, "+
				"a unified kernel image), and add the arguments there; then reboot", p.platform.Loader.Kind),
		})
	}
}
