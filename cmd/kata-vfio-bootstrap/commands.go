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
		Use:     "plan",
		Short:   "Show what apply would do, with a diff for each file",
		Long:    "plan compares the node with its blueprint and changes nothing. It shows separately what only needs a reboot.\n\n" + exitCodes,
		Example: "  kata-vfio-bootstrap plan\n  kata-vfio-bootstrap plan -f gpu-pool.yaml -o json | jq -r '.files[] | select(.status==\"to do\") | .path'",
		Args:    command.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
		PreRunE: o.check,
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.plan(cmd, printPlan, false) },
	}
	o.shared(cmd)
	formats().Flag(cmd, &o.format)
	cmd.Flags().BoolVar(&o.summary, "summary", false, "show no diffs")
	return cmd
}

func verifyCommand(o *options) *cobra.Command {
	var record bool
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Check whether the node matches the blueprint",
		Long: "verify changes nothing. It lists each difference: the file, when bootstrap wrote it, and since when it differs. json and\n" +
			"yaml have the format of plan. With --record it saves the result to /var/lib/kata-vfio/bootstrap/verified.json, which\n" +
			"kata-vfio-plugin serves as metrics. `run` does so periodically.\n\n" + exitCodes,
		Example: "  kata-vfio-bootstrap verify || kata-vfio-bootstrap apply",
		Args:    command.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
		PreRunE: o.check,
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.plan(cmd, printVerify, record) },
	}
	o.shared(cmd)
	formats().Flag(cmd, &o.format)
	cmd.Flags().BoolVar(&record, "record", false, "save the result on the node, for the plugin's metrics")
	return cmd
}

// plan inspects the node and prints the plan by show. If record is true, it also saves the result on the node.
func (o *options) plan(cmd *cobra.Command, show func(*printer, *bootstrap.Plan), record bool) error {
	e, err := o.open()
	if err != nil {
		return err
	}
	p, err := o.look(cmd.Context(), e)
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

// leave saves the result of an inspection on the node, or its failure. It returns the errors of the inspection and of saving.
func leave(ctx context.Context, e *bootstrap.Engine, p *bootstrap.Plan, err error) error {
	if err != nil {
		return errors.Join(err, e.RecordUnknown(ctx, err))
	}
	return e.Record(ctx, p)
}

func (o *options) look(ctx context.Context, e *bootstrap.Engine) (*bootstrap.Plan, error) {
	b, _, err := o.read(e)
	if err != nil {
		return nil, err
	}
	return e.Plan(ctx, b)
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
		Short: "Configure the node as the blueprint says",
		Long: "apply makes the changes that plan shows. If it can't write one of them, it undoes all. You can repeat it: it completes an\n" +
			"apply that was interrupted, and runs the tools that failed. It backs up files under /var/lib/kata-vfio/bootstrap. Then it runs\n" +
			"each needed tool once: for the boot loader, the initial RAM file system, systemd, udev, and to restart the container runtime.\n" +
			"For an image, it lists the first two as manual steps, or runs them inside the image with --chroot-tools.\n\n" + exitCodes,
		Example: "  kata-vfio-bootstrap apply -f gpu-pool.yaml --dry-run\n  kata-vfio-bootstrap apply -f gpu-pool.yaml\n  kata-vfio-bootstrap apply --root /mnt/image --chroot-tools",
		Args:    command.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
		PreRunE: o.check,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.dryRun {
				return o.plan(cmd, printPlan, false)
			}
			return o.apply(cmd)
		},
	}
	o.shared(cmd)
	formats().Flag(cmd, &o.format)
	o.workFlags(cmd)
	cmd.Flags().BoolVar(&o.dryRun, "dry-run", false, "show what would change, as plan does, and change nothing")
	return cmd
}

// workFlags are those of the commands that change a node.
func (o *options) workFlags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&o.detailed, "detailed-exitcode", false, "exit code 3 if changes were made; without it, they end with 0")
	cmd.Flags().BoolVar(&o.chrootTools, "chroot-tools", false, "with --root DIR: run the image's own tools inside it with chroot(2)")
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
	o.announce(e, cmd.ErrOrStderr())
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
	return o.resultCode(result)
}

// resultCode is the exit code of a result.
func (o *options) resultCode(r *bootstrap.Result) error {
	switch {
	case keeps(r), unfit(r):
		return &codeError{code: exitImpossible}
	case r.Reboot:
		return &codeError{code: exitReboot}
	case o.detailed && (len(r.Changed)+len(r.Settings) > 0 || ran(r.Steps)):
		return &codeError{code: exitChanges}
	}
	return nil
}

// keeps reports whether revert kept an existing file.
func keeps(r *bootstrap.Result) bool {
	return slices.ContainsFunc(r.Kept, func(k bootstrap.Kept) bool { return !k.Removed })
}

// unfit reports whether the node does not match after apply for a reason that apply can't fix, such as a boot that
// did not apply the files.
func unfit(r *bootstrap.Result) bool {
	return r.Plan != nil && r.Plan.Outcome() == bootstrap.Impossible
}

func ran(steps []bootstrap.Step) bool {
	return slices.ContainsFunc(steps, func(s bootstrap.Step) bool { return s.Ran })
}

func revertCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "revert [FILE...]",
		Short: "Restore the state before apply, for all files or for the named ones",
		Long: "revert restores the bytes, modes and owners of files, removes files that did not exist before, and resets running\n" +
			"settings. It keeps a file that was edited after apply, and shows the difference. A file that was removed after apply\n" +
			"stays removed. Generated files (grub.cfg, initial RAM file systems) are generated again.\n\n" + exitCodes,
		Example: "  kata-vfio-bootstrap revert\n  kata-vfio-bootstrap revert /etc/modprobe.d/50-kata-vfio.conf",
		PreRunE: o.check,
		RunE:    func(cmd *cobra.Command, args []string) error { return o.revert(cmd, args) },
	}
	formats().Flag(cmd, &o.format)
	o.workFlags(cmd)
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
	o.announce(e, cmd.ErrOrStderr())
	result, err := e.Revert(cmd.Context(), paths...)
	if result != nil {
		failed := err != nil
		err = errors.Join(err, o.print(cmd.OutOrStdout(), result, func(out *printer) { printResult(out, result, failed) }))
	}
	if err = errors.Join(err, e.Close()); err != nil {
		return err
	}
	return o.resultCode(result)
}

func statusCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "List what bootstrap changed on the node",
		Long:  "status lists the files and settings that bootstrap changed and did not revert, with their current state. It does not\ncompare the node with a blueprint; `verify` does.\n\nExit codes:\n  0  the list is printed\n  1  the journal could not be read\n  2  the command line is wrong",
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
