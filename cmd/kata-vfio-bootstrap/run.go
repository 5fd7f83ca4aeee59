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
	"github.com/kata-vfio/kata-vfio/pkg/cli/encode"
	"github.com/kata-vfio/kata-vfio/pkg/cli/terminal"
)

// When run applies.
const (
	applyNever  = "Never"
	applyOnce   = "Once"
	applyAlways = "Always"
)

// shortest is how often a node may be looked at: more would be a load.
const shortest = 10 * time.Second

// keeper looks after a node until it is stopped.
type keeper struct {
	*options
	stdout, stderr io.Writer
	apply          string
	every          time.Duration
	now            func() time.Time
	// said is what was reported last, so that each state is reported once.
	said string
	// applied: an apply has succeeded, or nothing was to do.
	applied bool
	fixed   fixes
}

// fixed is what was fixed last. If another program keeps writing the same files, they are fixed at growing
// intervals: each fix may restart the container runtime.
type fixes struct {
	files []string
	at    time.Time
	// pause is how long they are then left as they are.
	pause time.Duration
}

// longest is the longest pause between two mendings of the same file.
const longest = time.Hour

func runCommand(o *options) *cobra.Command {
	k := &keeper{options: o, now: time.Now}
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Look after the node until told to end, as a service or a pod of the chart",
		Long: "run applies the blueprint as --apply says, and verifies the node again and again. The blueprint is read anew for each look,\n" +
			"with --enter-node or from standard input once: the chart starts the pod anew when it changes. What it finds goes to\n" +
			"/var/lib/kata-vfio/bootstrap/verified.json, which kata-vfio-plugin serves as metrics, and where it changed, to standard output.\n" +
			"A node that can't be made fit, or waits for a reboot, is told and looked at again: run never reboots, and ends by a signal only.\n\n" +
			"Exit codes:\n  0  it was told to end\n  1  the node could not be opened\n  2  the command line or the blueprint is wrong",
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
		"when to apply: Never, Once at the start, or Always, which also mends what is found otherwise later, ever more seldom (up to an hour) where somebody else writes the same file again and again")
	cmd.Flags().DurationVar(&k.every, "every", 10*time.Minute, "time between two looks, more or less a tenth of it (10s at least)")
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
	return formats().Check(k.format)
}

// run looks after the node until ctx ends. What fails is reported, and tried again next time; an invalid blueprint
// at the start ends it.
func (k *keeper) run(ctx context.Context) error {
	e, err := k.open()
	if err != nil {
		return err
	}
	if _, _, err := k.read(e); err != nil {
		return errors.Join(err, e.Close())
	}
	for ctx.Err() == nil {
		if err := k.once(ctx, e); err != nil && ctx.Err() == nil {
			_, _ = fmt.Fprintln(k.stderr, "kata-vfio-bootstrap:", terminal.VisibleLines(err.Error()))
		}
		k.sleep(ctx)
	}
	return e.Close()
}

// sleep waits for the next look. The nodes of a pool that started together drift apart.
func (k *keeper) sleep(ctx context.Context) {
	wait := time.NewTimer(k.every - k.every/10 + rand.N(k.every/5))
	defer wait.Stop()
	select {
	case <-ctx.Done():
	case <-wait.C:
	}
}

// once applies where it is time, looks at the node, and leaves and tells what it is.
func (k *keeper) once(ctx context.Context, e *bootstrap.Engine) error {
	p, err := k.fixAndVerify(ctx, e)
	if p == nil {
		k.said = "" // whatever is found next is news
		return errors.Join(err, e.RecordUnknown(ctx, err))
	}
	return errors.Join(err, e.Record(ctx, p), k.report(p))
}

// fixAndVerify returns what the node is once what is due is applied; nil where it could not be looked at.
func (k *keeper) fixAndVerify(ctx context.Context, e *bootstrap.Engine) (*bootstrap.Plan, error) {
	b, text, err := k.read(e)
	if err != nil {
		return nil, err
	}
	p, err := e.Plan(b)
	if err != nil {
		return nil, err
	}
	if outcome := p.Outcome(); outcome == bootstrap.Fit || outcome == bootstrap.RebootNeeded {
		k.applied = true
	}
	if !k.due(p) {
		return p, nil
	}
	failed := k.fix(ctx, e, b, text)
	k.applied = k.applied || failed == nil
	k.backOff(p)
	p, err = e.Plan(b)
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

// backOff notes the files that were mended, and doubles the pause where one of them was mended not long ago.
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
		_, _ = fmt.Fprintf(k.stderr, "kata-vfio-bootstrap: somebody else writes %s again and again; it is mended again after %s at the earliest\n",
			terminal.Visible(strings.Join(again, ", ")), pause)
	}
	k.fixed = fixes{files: files, at: now, pause: pause}
}

// fix applies the blueprint and prints what was changed.
func (k *keeper) fix(ctx context.Context, e *bootstrap.Engine, b *blueprint.Blueprint, text string) error {
	result, err := e.Apply(ctx, b, text)
	if result == nil || len(result.Changed)+len(result.Settings)+len(result.Steps) == 0 {
		return err
	}
	failed := err != nil
	return errors.Join(err, k.print(result, func(out *printer) { printResult(out, result, failed) }))
}

// report prints the node's state, if that is not what was reported last.
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
	if k.format == "json" {
		return encode.JSONLine(k.stdout, "the result", v)
	}
	return k.options.print(k.stdout, v, show)
}
