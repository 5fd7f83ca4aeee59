package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/blueprint"
	"github.com/kata-vfio/kata-vfio/pkg/command"
	"github.com/kata-vfio/kata-vfio/pkg/encode"
	"github.com/kata-vfio/kata-vfio/pkg/terminal"
)

// When run applies.
const (
	applyNever  = "Never"
	applyOnce   = "Once"
	applyAlways = "Always"
)

// shortest is how often a node may be looked at: more would be a load.
const shortest = 10 * time.Second

// keeper looks after a node until it is told to end.
type keeper struct {
	*options
	stdout, stderr io.Writer
	apply          string
	every          time.Duration
	// said is what was told last, so that each state is told once.
	said string
}

func runCommand(o *options) *cobra.Command {
	k := &keeper{options: o}
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Look after the node until told to end, as a service or a pod of the chart",
		Long: "run applies the blueprint as --apply says, and verifies the node again and again. What it finds goes to\n" +
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
		"when to apply: Never, Once at the start, or Always, which also mends what is found otherwise later")
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

// run looks after the node until ctx ends. What can't be done is told, and tried again next time; but for a blueprint that is wrong at
// the start.
func (k *keeper) run(ctx context.Context) error {
	e, err := k.open()
	if err != nil {
		return err
	}
	if _, _, err := k.read(e); err != nil {
		return errors.Join(err, e.Close())
	}
	for first := true; ctx.Err() == nil; first = false {
		if err := k.once(ctx, e, first); err != nil && ctx.Err() == nil {
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
func (k *keeper) once(ctx context.Context, e *bootstrap.Engine, first bool) error {
	b, text, err := k.read(e)
	if err != nil {
		return err
	}
	p, err := e.Plan(b)
	if err != nil {
		return err
	}
	var errs []error
	if k.due(p, first) {
		errs = append(errs, k.mend(ctx, e, b, text))
		if p, err = e.Plan(b); err != nil {
			return errors.Join(append(errs, err)...)
		}
	}
	_, err = e.Record(p)
	return errors.Join(append(errs, err, k.tell(p))...)
}

func (k *keeper) due(p *bootstrap.Plan, first bool) bool {
	return p.Outcome() == bootstrap.ChangesNeeded && (k.apply == applyAlways || k.apply == applyOnce && first)
}

// mend applies the blueprint and prints what was changed.
func (k *keeper) mend(ctx context.Context, e *bootstrap.Engine, b *blueprint.Blueprint, text string) error {
	result, err := e.Apply(ctx, b, text)
	if result == nil || len(result.Changed)+len(result.Settings)+len(result.Steps) == 0 {
		return err
	}
	return errors.Join(err, k.print(result, func(out *printer) { printResult(out, result, "apply") }))
}

// tell prints what the node is, if that is not what was told last.
func (k *keeper) tell(p *bootstrap.Plan) error {
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
