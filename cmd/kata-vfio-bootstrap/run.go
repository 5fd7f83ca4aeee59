package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/blueprint"
	"github.com/kata-vfio/kata-vfio/pkg/cli/command"
	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
)

// Values of --apply.
const (
	applyNever  = "Never"
	applyOnce   = "Once"
	applyAlways = "Always"
)

// shortest is the minimum of --every, which bounds the load on the node.
const shortest = 10 * time.Second

// keeper verifies a node periodically until it is stopped.
type keeper struct {
	options        *options
	stdout, stderr io.Writer
	apply          string
	every          time.Duration
	now            func() time.Time
	// said is the last report, so that each state is reported once.
	said string
	// applied is true once an apply succeeded, or was not needed.
	applied bool
	fixed   fixes
}

// fixes is the last fix. If another program keeps writing the same files, they are fixed at growing
// intervals: each fix may restart the container runtime.
type fixes struct {
	files []string
	at    time.Time
	// pause is the time until the same files may be fixed again.
	pause time.Duration
}

// longest is the maximum pause between two fixes of the same file.
const longest = time.Hour

func runCommand(o *options) *cobra.Command {
	k := &keeper{options: o, now: time.Now}
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Verify the node periodically, as a service or in a pod of the chart",
		Long: "run applies the blueprint as --apply says, and verifies the node periodically. It reads the blueprint each time. With\n" +
			"--enter-node or from standard input it reads it once; the chart restarts the pod when the blueprint changes. It saves each\n" +
			"result to /var/lib/kata-vfio/bootstrap/verified.json, which kata-vfio-plugin serves as metrics, and prints it when it changes.\n" +
			"If the node can't match or needs a reboot, run reports that and continues. It never reboots, and ends only on a signal.\n\n" +
			"Exit codes:\n  0  it ended on a signal\n  1  the node could not be opened\n  2  the command line or the blueprint is wrong",
		Example: "  kata-vfio-bootstrap run --every 10m\n  kata-vfio-bootstrap run --enter-node --apply Once -f /config/blueprint.yaml",
		Args:    command.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
		PreRunE: func(*cobra.Command, []string) error { return k.check() },
		RunE: func(cmd *cobra.Command, _ []string) error {
			k.stdout, k.stderr = cmd.OutOrStdout(), cmd.ErrOrStderr()
			return k.run(cmd.Context())
		},
	}
	o.shared(cmd)
	formats().Flag(cmd, &o.format)
	cmd.Flags().StringVar(&k.apply, "apply", applyNever,
		"when to apply: Never, Once (at the start), or Always, which also fixes later drift; if another program keeps changing the same file, the interval between fixes grows up to an hour")
	cmd.Flags().DurationVar(&k.every, "every", 10*time.Minute, "time between two checks, varied by up to a tenth (at least 10s)")
	// The only error is a flag that does not exist.
	_ = cmd.RegisterFlagCompletionFunc("apply", cobra.FixedCompletions([]string{applyNever, applyOnce, applyAlways}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (k *keeper) check() error {
	switch {
	case !slices.Contains([]string{applyNever, applyOnce, applyAlways}, k.apply):
		return command.Usagef("--apply %s: want Never, Once or Always", k.apply)
	case k.every < shortest:
		return command.Usagef("--every %s: want %s or more", k.every, shortest)
	}
	return formats().Check(k.options.format)
}

// run verifies the node until ctx ends. It reports a failure and tries again next time. Only an invalid blueprint
// at the start ends it.
func (k *keeper) run(ctx context.Context) error {
	e, err := k.options.open()
	if err != nil {
		return err
	}
	if _, _, err := k.options.read(e); err != nil {
		return errors.Join(err, e.Close())
	}
	for ctx.Err() == nil {
		if err := k.once(ctx, e); err != nil && ctx.Err() == nil {
			_, _ = fmt.Fprintln(k.stderr, "kata-vfio-bootstrap:", output.VisibleLines(err.Error()))
		}
		k.sleep(ctx)
	}
	return e.Close()
}

// sleep waits for the next check. The interval varies, so that the nodes of a pool do not check at the same time.
func (k *keeper) sleep(ctx context.Context) {
	wait := time.NewTimer(k.every - k.every/10 + rand.N(k.every/5))
	defer wait.Stop()
	select {
	case <-ctx.Done():
	case <-wait.C:
	}
}

// once applies the blueprint if that is due, verifies the node, and saves and reports the result.
func (k *keeper) once(ctx context.Context, e *bootstrap.Engine) error {
	p, err := k.fixAndVerify(ctx, e)
	if p == nil {
		k.said = "" // report the next result in any case
		return errors.Join(err, e.RecordUnknown(ctx, err))
	}
	return errors.Join(err, e.Record(ctx, p), k.report(p))
}

// fixAndVerify applies the blueprint if that is due, and returns the plan of the remaining changes, or nil if it can't be made.
func (k *keeper) fixAndVerify(ctx context.Context, e *bootstrap.Engine) (*bootstrap.Plan, error) {
	b, text, err := k.options.read(e)
	if err != nil {
		return nil, err
	}
	p, err := e.Plan(ctx, b)
	if err != nil {
		return nil, err
	}
	if outcome := p.Outcome(); outcome == bootstrap.Fit || outcome == bootstrap.RebootNeeded {
		// A node that matches needs no apply, also with --apply Once.
		k.applied = true
	}
	if !k.due(p) {
		return p, nil
	}
	failed := k.fix(ctx, e, b, text)
	k.applied = k.applied || failed == nil
	k.backOff(p)
	// Plan again: the result is what is left to do after the fix, and not what was to do before it.
	p, err = e.Plan(ctx, b)
	return p, errors.Join(failed, err)
}

func (k *keeper) due(p *bootstrap.Plan) bool {
	switch {
	case p.Outcome() != bootstrap.ChangesNeeded:
		return false
	case k.apply == applyAlways:
		return !k.now().Before(k.fixed.at.Add(k.fixed.pause))
	}
	return k.apply == applyOnce && !k.applied
}

// backOff notes the files that were fixed, and doubles the pause if one of them was fixed recently.
func (k *keeper) backOff(p *bootstrap.Plan) {
	var files, again []string
	for _, f := range p.Files {
		if f.Status == bootstrap.ToDo && f.Drift != nil {
			files = append(files, f.Path)
			if slices.Contains(k.fixed.files, f.Path) {
				again = append(again, "/"+f.Path)
			}
		}
	}
	now, pause := k.now(), time.Duration(0)
	if len(again) > 0 && now.Sub(k.fixed.at) < 2*max(longest, k.every) {
		pause = min(2*max(k.fixed.pause, k.every), max(longest, k.every))
		_, _ = fmt.Fprintf(k.stderr, "kata-vfio-bootstrap: another program keeps changing %s; the next fix is in %s at the earliest\n",
			output.Visible(strings.Join(again, ", ")), pause)
	}
	k.fixed = fixes{files: files, at: now, pause: pause}
}

// fix applies the blueprint and prints the changes.
func (k *keeper) fix(ctx context.Context, e *bootstrap.Engine, b *blueprint.Blueprint, text string) error {
	result, err := e.Apply(ctx, b, text)
	if result == nil || len(result.Changed)+len(result.Settings)+len(result.Steps) == 0 {
		return err
	}
	failed := err != nil
	return errors.Join(err, k.print(result, func(out *printer) { printResult(out, result, failed) }))
}

// report prints the node's state if it differs from the last report.
func (k *keeper) report(p *bootstrap.Plan) error {
	out := &printer{}
	printVerify(out, p)
	if out.text.String() == k.said {
		return nil
	}
	k.said = out.text.String()
	return k.print(p, func(out *printer) { printVerify(out, p) })
}

// print writes a value, with json on one line.
func (k *keeper) print(v any, show func(*printer)) error {
	if k.options.format == "json" {
		return output.JSONLine(k.stdout, "the result", v)
	}
	return k.options.print(k.stdout, v, show)
}
