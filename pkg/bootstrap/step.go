package bootstrap

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/blueprint"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/containers"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/host"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
)

// Step is a tool of the node that has to run after changes. Its output (grub.cfg, initial RAM file systems) is neither
// backed up nor restored: the tool runs again after a revert.
type Step struct {
	FollowUp state.FollowUp `json:"followUp"`
	// Commands are run in order.
	Commands []string `json:"commands"`
	// Due is true if the step has to run now. Runs is true if bootstrap runs it. Otherwise the operator has to run it:
	// bootstrap runs the tools of an image only on request.
	Due  bool `json:"due"`
	Runs bool `json:"runs"`
	// Ran is set after the step has completed. Error is the reason of a failure.
	Ran   bool   `json:"ran"`
	Error string `json:"error,omitempty"`

	argv  [][]string
	limit time.Duration
}

// order is the order in which follow-ups run: first those that the next boot needs, last those that interrupt other
// programs.
func order() []state.FollowUp {
	return []state.FollowUp{
		state.BootConfig, state.Initramfs, state.SocketStop, state.UnitsReload, state.ModulesLoad, state.UdevReload, state.NetworkReload,
		state.SocketStart, state.ContainerdRestart, state.CRIORestart,
	}
}

// backward returns the follow-ups of reverting a file whose follow-ups were these. Modules are not loaded again, but stay
// loaded: without their options they would be loaded in a worse state.
func backward(then []state.FollowUp) []state.FollowUp {
	var back []state.FollowUp
	for _, f := range then {
		switch f {
		case state.ModulesLoad:
		case state.SocketStart:
			back = append(back, state.SocketStop)
		default:
			back = append(back, f)
		}
	}
	return back
}

// forward returns the pending follow-ups for required files. An interrupted revert may have left the stop of the socket
// pending: it becomes a start if a required file needs one.
func forward(pending []state.FollowUp, wanted []state.File) []state.FollowUp {
	starts := slices.ContainsFunc(wanted, func(f state.File) bool { return slices.Contains(f.Then, state.SocketStart) })
	pending = slices.Clone(pending)
	if i := slices.Index(pending, state.SocketStop); i >= 0 && starts {
		pending[i] = state.SocketStart
	}
	return pending
}

// over returns the follow-ups of a file that are no longer needed once the file is reverted.
func over(then []state.FollowUp) []state.FollowUp {
	back := backward(then)
	return slices.DeleteFunc(slices.Clone(then), func(f state.FollowUp) bool { return slices.Contains(back, f) })
}

// follow returns the pending follow-ups after a change. The change of a revert cancels the follow-ups of its file that did not
// run yet and that only bootstrap's version needs.
func follow(pending []state.FollowUp, c *change) []state.FollowUp {
	pending = slices.DeleteFunc(slices.Clone(pending), func(f state.FollowUp) bool { return slices.Contains(c.over, f) })
	for _, f := range c.file.Then {
		if !slices.Contains(pending, f) {
			pending = append(pending, f)
		}
	}
	return pending
}

// ofImage reports whether a follow-up applies to an image. The other follow-ups notify running daemons.
func ofImage(f state.FollowUp) bool { return f == state.BootConfig || f == state.Initramfs }

// steps returns the steps for the changes and the pending follow-ups, in order.
func (e *Engine) steps(p *host.Platform, pending []state.FollowUp, changes []change) []Step {
	due := pending
	for i := range changes {
		due = follow(due, &changes[i])
	}
	steps := []Step{}
	for _, f := range order() {
		if !slices.Contains(due, f) || !e.Live && !ofImage(f) {
			continue
		}
		s := Step{FollowUp: f, Due: true, Runs: e.Tools != nil, limit: 2 * time.Minute}
		s.argv = e.commands(f, p)
		if missing := missingTool(f, p); missing != "" && s.argv == nil {
			s.Runs, s.Commands = false, []string{missing}
		}
		if ofImage(f) {
			// These tools do their work once for each installed kernel.
			s.limit = 20 * time.Minute
		}
		for _, argv := range s.argv {
			s.Commands = append(s.Commands, strings.Join(argv, " "))
		}
		steps = append(steps, s)
	}
	return steps
}

// missingTool describes the tool that a follow-up needs if bootstrap knows no command for it on this node.
func missingTool(f state.FollowUp, p *host.Platform) string {
	switch {
	case f == state.BootConfig && p.Loader.Generated():
		return "the tool that generates the boot loader's configuration (update-grub, grub2-mkconfig), which is not installed"
	case f == state.Initramfs:
		return "the tool that generates the initial RAM file systems, which bootstrap does not know"
	}
	return ""
}

// commands returns the commands of a follow-up on this node, or none if nothing has to run.
func (e *Engine) commands(f state.FollowUp, p *host.Platform) [][]string {
	if ofSystemd := slices.Contains([]state.FollowUp{
		state.UnitsReload, state.NetworkReload, state.SocketStart, state.SocketStop, state.ContainerdRestart, state.CRIORestart,
	}, f); ofSystemd && !p.SystemdRuns || f == state.UdevReload && !p.UdevRuns {
		return nil
	}
	switch f {
	case state.BootConfig:
		return bootConfig(&p.Loader)
	case state.Initramfs:
		return initramfs(p.Initramfs)
	case state.UnitsReload:
		return [][]string{{"systemctl", "daemon-reload"}}
	case state.ModulesLoad:
		return modprobe(p)
	case state.UdevReload:
		// Only interfaces are triggered, which gives VFs their marks. The rules of PCI functions apply when a function is
		// added.
		return [][]string{{"udevadm", "control", "--reload"}, {"udevadm", "trigger", "--subsystem-match=net", "--action=change"}}
	case state.NetworkReload: // only if it runs: systemd-networkd is often installed, but not used
		return [][]string{{"systemctl", "try-reload-or-restart", "systemd-networkd.service"}}
	case state.SocketStart:
		return [][]string{{"systemctl", "start", facts.PodResourcesSocket}}
	case state.SocketStop: // by a pattern, so that it is not an error if systemd does not have the unit
		return [][]string{{"systemctl", "stop", facts.PodResourcesSocket + "*"}}
	case state.ContainerdRestart:
		return e.restart(blueprint.RuntimeContainerd)
	case state.CRIORestart:
		return e.restart(blueprint.RuntimeCRIO)
	case state.Reboot: // left to the operator
	}
	return nil
}

// restart restarts the running services that start a runtime. It does nothing if the node has none, which package
// containers reports.
func (e *Engine) restart(r blueprint.Runtime) [][]string {
	units := containers.Units(e.Tree, r)
	if len(units) == 0 {
		return nil
	}
	return [][]string{append([]string{"systemctl", "try-restart"}, units...)}
}

// bootConfig returns the command that generates the loader's configuration, or none if no tool generates it. The follow-up may
// be left from a run on the image, which found another loader: that loader's tool is of no use to this one.
func bootConfig(l *host.Loader) [][]string {
	if !l.Generated() || l.Tool == "" {
		return nil
	}
	return [][]string{append([]string{"/" + l.Tool}, l.Arguments...)}
}

// initramfs returns the commands that generate the initial RAM file systems, or none if the tool is not known.
func initramfs(tool host.Initramfs) [][]string {
	return map[host.Initramfs][][]string{
		host.UpdateInitramfs: {{"update-initramfs", "-u", "-k", "all"}},
		host.Dracut:          {{"dracut", "--regenerate-all", "--force"}},
		// --continue: in the snapshot that has the boot loader's new configuration.
		host.TransactionalDracut: {{"transactional-update", "--non-interactive", "--continue", "initrd"}},
		host.Mkinitcpio:          {{"mkinitcpio", "-P"}},
		host.Booster:             {{"/usr/lib/booster/regenerate_images"}},
	}[tool]
}

func modprobe(p *host.Platform) [][]string {
	argv := []string{"modprobe", "-a", "vfio_pci"}
	for _, name := range []string{"vfio_iommu_type1", "iommufd"} {
		// modprobe fails for a module that the kernel does not have. A built-in one needs no loading.
		if p.Modules[name].Loadable {
			argv = append(argv, name)
		}
	}
	return [][]string{argv}
}

// run runs the steps and removes each from the journal when it succeeded. The next apply or revert, named by verb,
// repeats steps that failed or were interrupted.
func (e *Engine) run(ctx context.Context, j *Journal, steps []Step, verb string) error {
	for i := range steps {
		s := &steps[i]
		if !s.Runs {
			continue
		}
		if err := e.runStep(ctx, s); err != nil {
			s.Error = err.Error()
			return fmt.Errorf("the files are written, but %w; fix that and run %s again", err, verb)
		}
		s.Ran = true
		j.Pending = slices.DeleteFunc(slices.Clone(j.Pending), func(f state.FollowUp) bool { return f == s.FollowUp })
		if err := e.save(j); err != nil {
			return err
		}
	}
	return nil
}

func (e *Engine) runStep(ctx context.Context, s *Step) error {
	ctx, cancel := context.WithTimeoutCause(ctx, s.limit, fmt.Errorf("it did not end within %v", s.limit))
	defer cancel()
	for _, argv := range s.argv {
		if err := e.Tools.Run(ctx, argv); err != nil {
			return fmt.Errorf("%s failed: %w", strings.Join(argv, " "), err)
		}
	}
	return nil
}
