package main

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap"
	"github.com/kata-vfio/kata-vfio/pkg/cli/command"
)

func planCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Show what apply would do, with a diff for each file",
		Long: "plan compares the node with its blueprint and changes nothing. What is right on disk already and waits for a reboot is\n" +
			"told apart from what is to do.\n\n" + exitCodes,
		Example: "  kata-vfio-bootstrap plan\n  kata-vfio-bootstrap plan -f gpu-pool.yaml -o json | jq -r '.files[] | select(.status==\"to do\") | .path'",
		Args:    command.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
		PreRunE: o.check,
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.plan(cmd, printPlan, false) },
	}
	o.shared(cmd)
	formats().Flag(cmd, &o.format)
	return cmd
}

func verifyCommand(o *options) *cobra.Command {
	var record bool
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Say whether the node is still as the blueprint says",
		Long: "verify changes nothing and names each drift: what differs, by which file, when bootstrap wrote it and since when it is\n" +
			"otherwise. json and yaml are those of plan. With --record it leaves what it found in\n" +
			"/var/lib/kata-vfio/bootstrap/verified.json, which kata-vfio-plugin serves as metrics; `run` does that again and again.\n\n" + exitCodes,
		Example: "  kata-vfio-bootstrap verify || kata-vfio-bootstrap apply",
		Args:    command.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
		PreRunE: o.check,
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.plan(cmd, printVerify, record) },
	}
	o.shared(cmd)
	formats().Flag(cmd, &o.format)
	cmd.Flags().BoolVar(&record, "record", false, "leave what was found on the node, for the plugin's metrics")
	return cmd
}

// plan looks at the node and prints it.
func (o *options) plan(cmd *cobra.Command, show func(*printer, *bootstrap.Plan), record bool) error {
	e, err := o.open()
	if err != nil {
		return err
	}
	p, err := o.look(e)
	if record {
		err = leave(cmd.Context(), e, p, err)
	}
	if err = errors.Join(err, e.Close()); err != nil {
		return err
	}
	if err := o.print(cmd.OutOrStdout(), p, func(out *printer) { show(out, p) }); err != nil {
		return err
	}
	return outcome(p)
}

// leave leaves on the node what was found, or that nothing could be. The error is that of the look, and of leaving it.
func leave(ctx context.Context, e *bootstrap.Engine, p *bootstrap.Plan, err error) error {
	if err != nil {
		return errors.Join(err, e.RecordUnknown(ctx, err))
	}
	return e.Record(ctx, p)
}

func (o *options) look(e *bootstrap.Engine) (*bootstrap.Plan, error) {
	b, _, err := o.read(e)
	if err != nil {
		return nil, err
	}
	return e.Plan(b)
}

// outcome is the exit code of a plan.
func outcome(p *bootstrap.Plan) error {
	switch p.Outcome() {
	case bootstrap.Impossible:
		return &codeError{code: exitImpossible}
	case bootstrap.ChangesNeeded:
		return &codeError{code: exitChanges}
	case bootstrap.RebootNeeded:
		return &codeError{code: exitReboot}
	case bootstrap.Fit:
	}
	return nil
}

func applyCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "apply",
		Short: "Make the node as the blueprint says",
		Long: "apply does what plan shows: all of it, or after an error none of it. It may be repeated, and ends what a former one was\n" +
			"cut off in. Files get backups under /var/lib/kata-vfio/bootstrap, then the tools that belong to them run once: the boot\n" +
			"loader's, the initial RAM file system's, systemd's, udev's, the container runtime's restart. Of an image the first two\n" +
			"are listed as left to do, or run inside it with --chroot-tools.\n\n" + exitCodes,
		Example: "  kata-vfio-bootstrap apply -f gpu-pool.yaml\n  kata-vfio-bootstrap apply --root /mnt/image --chroot-tools",
		Args:    command.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
		PreRunE: o.check,
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.apply(cmd) },
	}
	o.shared(cmd)
	formats().Flag(cmd, &o.format)
	o.toolsFlag(cmd)
	return cmd
}

func (o *options) toolsFlag(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&o.chrootTools, "chroot-tools", false, "with --root DIR: run the image's own tools inside it by chroot(2)")
}

func (o *options) apply(cmd *cobra.Command) error {
	e, err := o.open()
	if err != nil {
		return err
	}
	b, text, err := o.read(e)
	if err != nil {
		return errors.Join(err, e.Close())
	}
	result, err := e.Apply(cmd.Context(), b, text)
	closeErr := e.Close()
	if refused, ok := errors.AsType[*bootstrap.RefusedError](err); ok {
		shown := o.print(cmd.OutOrStdout(), result.Plan, func(out *printer) { printRefusal(out, refused) })
		return &codeError{code: exitImpossible, err: errors.Join(shown, closeErr)}
	}
	if result != nil {
		failed := err != nil
		err = errors.Join(err, o.print(cmd.OutOrStdout(), result, func(out *printer) { printResult(out, result, failed) }))
	}
	if err = errors.Join(err, closeErr); err != nil {
		return err
	}
	return resultCode(result)
}

// resultCode is the exit code of what was done.
func resultCode(r *bootstrap.Result) error {
	switch {
	case keeps(r), unfit(r):
		return &codeError{code: exitImpossible}
	case r.Reboot:
		return &codeError{code: exitReboot}
	case len(r.Changed)+len(r.Settings) > 0, ran(r.Steps):
		return &codeError{code: exitChanges}
	}
	return nil
}

// keeps reports whether revert has left a file that is there.
func keeps(r *bootstrap.Result) bool {
	return slices.ContainsFunc(r.Kept, func(k bootstrap.Kept) bool { return !k.Removed })
}

// unfit reports whether the node is not fit after apply for a reason that apply can't fix, such as a boot that did
// not bring what was applied before.
func unfit(r *bootstrap.Result) bool {
	return r.Plan != nil && r.Plan.Outcome() == bootstrap.Impossible
}

func ran(steps []bootstrap.Step) bool {
	return slices.ContainsFunc(steps, func(s bootstrap.Step) bool { return s.Ran })
}

func revertCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "revert [FILE...]",
		Short: "Bring back what was before apply, all files or those that are named",
		Long: "revert brings files back to the byte, with their modes and owners, removes those that were not there, and sets running\n" +
			"settings back. A file that somebody has changed since is kept, with the difference shown; one that somebody has removed\n" +
			"stays removed. What tools have generated (grub.cfg, initial RAM file systems) is generated again.\n\n" + exitCodes,
		Example: "  kata-vfio-bootstrap revert\n  kata-vfio-bootstrap revert /etc/modprobe.d/50-kata-vfio.conf",
		PreRunE: o.check,
		RunE:    func(cmd *cobra.Command, args []string) error { return o.revert(cmd, args) },
	}
	formats().Flag(cmd, &o.format)
	o.toolsFlag(cmd)
	return cmd
}

func (o *options) revert(cmd *cobra.Command, args []string) error {
	var paths []string
	for _, arg := range args {
		paths = append(paths, strings.TrimPrefix(filepath.Clean(arg), "/"))
	}
	e, err := o.open()
	if err != nil {
		return err
	}
	result, err := e.Revert(cmd.Context(), paths...)
	if result != nil {
		failed := err != nil
		err = errors.Join(err, o.print(cmd.OutOrStdout(), result, func(out *printer) { printResult(out, result, failed) }))
	}
	if err = errors.Join(err, e.Close()); err != nil {
		return err
	}
	return resultCode(result)
}

func statusCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "List what bootstrap has done to the node",
		Long:  "status lists the files and settings that bootstrap has changed and not taken back, and what has become of them. It does\nnot ask what a blueprint wants; `verify` does.\n\nExit codes:\n  0  always, but for\n  1  the journal could not be read\n  2  the command line is wrong",
		Args:  command.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
		PreRunE: o.check,
		RunE: func(cmd *cobra.Command, _ []string) error {
			e, err := o.open()
			if err != nil {
				return err
			}
			report, err := e.Status()
			if err = errors.Join(err, e.Close()); err != nil {
				return err
			}
			return o.print(cmd.OutOrStdout(), report, func(out *printer) { printStatus(out, report) })
		},
	}
	formats().Flag(cmd, &o.format)
	return cmd
}
