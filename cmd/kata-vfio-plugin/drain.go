package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kata-vfio/kata-vfio/pkg/cli/command"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/maintain"
	"github.com/kata-vfio/kata-vfio/pkg/node"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
)

const drainExitCodes = `Exit codes:
  0  drained: no claim has it, and it is back on its original driver
  1  something failed, or the drain was undrained meanwhile; the message says what is left to do
  2  the command line is wrong, or kata-vfio does not manage the device; nothing was touched
  4  new claims do not get it, but a claim still has it: the node's plugin completes the drain
  5  new claims do not get it, but it is quarantined and stays on its VFIO driver`

// drainOptions are the flags of drain.
type drainOptions struct {
	reason string
	wait   time.Duration
	evict  bool
	dryRun bool
}

// drainCommand takes a device out of use.
func drainCommand(opts *options) *cobra.Command {
	var o drainOptions
	cmd := &cobra.Command{
		Use:   "drain ADDRESS|DEVICE --reason TEXT",
		Short: "Take a device out of use for maintenance, and return it to its driver",
		Long: "drain keeps a device from new claims, together with its IOMMU group, its companions, and a PF's VFs. A claim that has\n" +
			"the device keeps it. Once no claim has it, it is bound to its original driver, even if the node's config binds it to\n" +
			"VFIO from start-up on. The journal keeps the drain across restarts and reboots, until `undrain`. The node's plugin\n" +
			"taints the device (kata-vfio.dev/drain), and completes a drain for which this command does not wait.\n\n" + drainExitCodes,
		Args: oneDevice, ValidArgsFunction: cobra.NoFileCompletions,
		Example: "  kata-vfio-plugin drain 0000:3b:00.0 --reason 'fan, ticket 4711' --dry-run\n" +
			"  kata-vfio-plugin drain gpu-0000-3b-00-0 --reason 'fan, ticket 4711' --wait 1h\n" +
			"  kata-vfio-plugin undrain 0000:3b:00.0 --reason 'fan replaced'",
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := deviceNamed(args[0])
			if err != nil {
				return err
			}
			d := journal.Drain{Address: a, Reason: o.reason, Evict: o.evict}
			if o.dryRun {
				return showDrain(cmd, opts, d)
			}
			if err := wantReason(o.reason); err != nil {
				return err
			}
			n, err := opts.open(opts.progress(cmd.ErrOrStderr()))
			if err != nil {
				return err
			}
			return errors.Join(drain(cmd, opts.output, n, d, o.wait), n.Close())
		},
	}
	opts.registerWork(cmd)
	f := cmd.Flags()
	f.StringVar(&o.reason, "reason", "", "why, for the ledger and for users whose claims are refused")
	f.DurationVar(&o.wait, "wait", 0, "how long to wait until no claim has it (default: do not wait; the plugin completes the drain)")
	f.BoolVar(&o.evict, "evict", false, "evict the pods that have it (the taint's effect is NoExecute)")
	f.BoolVar(&o.dryRun, "dry-run", false, "show what would be drained, and touch nothing")
	return cmd
}

// undrainCommand brings a device back into use.
func undrainCommand(opts *options) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:   "undrain ADDRESS|DEVICE [--reason TEXT]",
		Short: "Bring a drained device back into use",
		Long: "undrain ends the drain of a device, or the drain of another device that includes it. Claims can get\n" +
			"the device again, unless another drain includes it too; undrain then names that one. If the node's config binds the\n" +
			"device from start-up on, it is bound to VFIO again. A device that is not drained is not an error.\n\n" + exitCodes,
		Args: oneDevice, ValidArgsFunction: opts.completeDrained,
		Example: "  kata-vfio-plugin undrain 0000:3b:00.0 --reason 'fan replaced'",
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := deviceNamed(args[0])
			if err != nil {
				return err
			}
			n, err := opts.open(opts.progress(cmd.ErrOrStderr()))
			if err != nil {
				return err
			}
			return errors.Join(undrain(cmd, opts.output, n, a, reason), n.Close())
		},
	}
	opts.registerWork(cmd)
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the ledger")
	return cmd
}

// oneDevice requires one argument.
func oneDevice(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return command.Usagef("want one argument, an address such as 0000:3b:00.0 or a device's name such as gpu-0000-3b-00-0")
	}
	return nil
}

// deviceNamed parses an address, or the name of a device in ResourceSlices. For a pair it returns the GPU's address.
func deviceNamed(text string) (pci.Address, error) {
	if a, err := pci.ParseAddress(text); err == nil {
		return a, nil
	}
	parts, err := device.ParseParts(text)
	if err != nil {
		return pci.Address{}, command.Usagef("%q: want an address such as 0000:3b:00.0 or a device's name such as gpu-0000-3b-00-0", text)
	}
	if device.PartsType(parts) == device.PartitionType {
		return pci.Address{}, command.Usagef("%q has %d GPUs: name one of them, such as %s", text, len(parts), parts[0].Address)
	}
	return parts[0].Address, nil
}

func wantReason(reason string) error {
	if strings.TrimSpace(reason) == "" {
		return command.Usagef("--reason is empty: say why, for the ledger and for other operators")
	}
	return nil
}

// operator returns the user of this command.
func operator() ledger.Operator {
	return ledger.Operator{UID: os.Getuid(), Sudo: os.Getenv("SUDO_USER")}
}

// completeDrained offers the drained devices.
func (o *options) completeDrained(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	marks, _ := o.node.Records().Drains() // completion has no place for errors
	var all []cobra.Completion
	for _, d := range locateDrains(marks, o.snapshot(cmd.Context())) {
		all = append(all, cobra.CompletionWithDesc(d.Address.String(), d.Reason))
	}
	return all, cobra.ShellCompDirectiveNoFileComp
}

// showDrain prints what drain would do.
func showDrain(cmd *cobra.Command, opts *options, d journal.Drain) error {
	n, err := opts.look()
	if err != nil {
		return err
	}
	state, err := n.Maintainer.WouldDrain(cmd.Context(), d)
	if err == nil {
		err = printDraining(cmd.OutOrStdout(), opts.output, state, true)
	}
	return errors.Join(drainError(err), n.Close())
}

// drain drains, waits, and prints the state.
func drain(cmd *cobra.Command, format string, n *node.Node, d journal.Drain, wait time.Duration) error {
	state, err := n.Maintainer.Drain(cmd.Context(), d, operator())
	if err != nil {
		return drainError(err)
	}
	if state, err = await(cmd.Context(), cmd.ErrOrStderr(), n, state, wait); err != nil {
		return err
	}
	if err := printDraining(cmd.OutOrStdout(), format, state, false); err != nil {
		return err
	}
	return undone(state)
}

// undrain ends one drain, and prints whether another includes the device.
func undrain(cmd *cobra.Command, format string, n *node.Node, a pci.Address, reason string) error {
	named, was, err := n.Maintainer.Undrain(cmd.Context(), a, reason, operator())
	if err != nil {
		return err
	}
	v := undrainedView{Address: named, Undrained: was}
	with, still, err := n.Maintainer.DrainedWith(cmd.Context(), a)
	if err != nil {
		return err
	}
	if still {
		v.Still = &with
	}
	return printUndrained(cmd.OutOrStdout(), format, a, v)
}

// drainError returns a usage error if the device is not ours.
func drainError(err error) error {
	if errors.Is(err, maintain.ErrNotOurs) {
		return &command.UsageError{Err: fmt.Errorf("nothing to drain: %w; `kata-vfio-audit devices` lists the node's devices", err)}
	}
	return err
}

// drainPoll is the pause between two looks while drain waits.
const drainPoll = time.Second

// await waits until the drain is done or the limit has passed. It writes the reason of the wait to w each time that it changes.
func await(ctx context.Context, w io.Writer, n *node.Node, state *maintain.Draining, limit time.Duration) (*maintain.Draining, error) {
	over, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(drainPoll)
	defer tick.Stop()
	written := ""
	for !state.Done() && over.Err() == nil {
		if words := waitingFor(state); words != written {
			written = words
			fmt.Fprintf(w, "  waiting: %s\n", words)
		}
		select {
		case <-over.Done():
		case <-tick.C:
			// With ctx, not over: the limit ends the wait, and must not cut off a rebind that has begun.
			next, err := n.Maintainer.FinishDrain(ctx, state.Drain)
			if err != nil {
				return nil, interrupted(ctx, state, err)
			}
			state = next
		}
	}
	if state.Done() {
		return state, nil
	}
	// The end of the limit is not an error: the plugin completes the drain.
	return state, interrupted(ctx, state, context.Cause(ctx))
}

// interrupted returns an error of the wait for a drain. If the operator ended the wait, it says that the drain stands.
func interrupted(ctx context.Context, d *maintain.Draining, err error) error {
	if err == nil || ctx.Err() == nil || errors.Is(err, maintain.ErrNotDrained) {
		return err
	}
	return fmt.Errorf("%s is drained, but not free, and the wait for that was interrupted: %w; the plugin completes the drain", d.Address, err)
}

// waitingFor returns why a drain is not done.
func waitingFor(d *maintain.Draining) string {
	switch {
	case d.Unsure != "":
		return d.Unsure + " can't be read, and its claim may have it"
	case len(d.Holders) > 0:
		return claimsWords(d.Holders) + " has it"
	case len(d.Quarantined) > 0:
		return "quarantined since claim " + claimsWords(d.Quarantined)
	}
	return "not with its driver yet"
}

func claimsWords(refs []plan.Ref) string {
	words := make([]string, len(refs))
	for i := range refs {
		words[i] = refs[i].String()
	}
	return strings.Join(words, ", ")
}

// undone returns an error if a drain is not done.
func undone(d *maintain.Draining) error {
	if d.Done() {
		return nil
	}
	return &drainingError{state: d}
}

// drainingError says that new claims do not get a device, but it is not free yet.
type drainingError struct{ state *maintain.Draining }

func (e *drainingError) Error() string {
	text := fmt.Sprintf("%s is drained, but not free: %s", e.state.Address, waitingFor(e.state))
	if e.quarantined() {
		return text + fmt.Sprintf("; `kata-vfio-plugin quarantine explain %s` says why it stays on its VFIO driver", e.state.Quarantined[0].UID)
	}
	return text + "; the plugin completes the drain after that, and so does `drain` with --wait"
}

func (e *drainingError) quarantined() bool {
	return len(e.state.Holders) == 0 && len(e.state.Quarantined) > 0
}
