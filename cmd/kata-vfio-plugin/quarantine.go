package main

import (
	"errors"
	"slices"

	"github.com/spf13/cobra"

	"github.com/kata-vfio/kata-vfio/pkg/cli/command"
	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/maintain"
	"github.com/kata-vfio/kata-vfio/pkg/node"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
)

const clearExitCodes = `Exit codes:
  0  the quarantine has ended
  1  something failed; the message says what is left to do
  2  the command line is wrong, or nothing of that name is quarantined; nothing was touched
  3  the node has used a disk of it since its restart; nothing was touched
  4  a process has the device open; nothing was touched
  5  the reset still can't be proven, and the device stays quarantined`

// quarantineCommand groups the commands for quarantined devices.
func quarantineCommand(opts *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "quarantine",
		Short: "List, explain and clear devices that could not be proven clean",
		Long: "A device is quarantined if its reset after a tenant failed, or did not restore its former state. It stays on its VFIO\n" +
			"driver, and no claim gets it. A device whose sanitizing stage failed is quarantined, too.\n\n" + clearExitCodes,
		Example: "  kata-vfio-plugin quarantine list\n  kata-vfio-plugin quarantine explain 0000:3b:00.0",
		Args:    command.NoSubcommand,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(quarantineListCommand(opts), quarantineExplainCommand(opts), quarantineClearCommand(opts), acceptFirmwareCommand(opts))
	return cmd
}

func quarantineListCommand(opts *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "Show which devices are quarantined: since when, since which claim, why, and what was tried",
		Long:  "list reads the journal and the ledger, and where the devices are now if they have moved since.\n\n" + exitCodes,
		Args:  command.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
		Example: "  kata-vfio-plugin quarantine list\n  kata-vfio-plugin quarantine list -o json | jq -r '.quarantined[].reason'",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return listQuarantines(cmd, opts)
		},
	}
	ledgerFlag(cmd, opts)
	return cmd
}

// listQuarantines prints quarantined records and failed stages. It reads the ledger once for all of them.
func listQuarantines(cmd *cobra.Command, opts *options) error {
	ctx := cmd.Context()
	records, problems, err := opts.quarantined()
	if err != nil {
		return err
	}
	snap := opts.snapshot(ctx)
	stages, err := opts.failedStages(snap)
	var uids []string
	for _, rec := range records {
		uids = append(uids, rec.ID())
	}
	for i := range stages {
		uids = append(uids, stages[i].Failed.Stage.Claim.UID)
	}
	history := opts.history(ctx, uids...)
	var all []*quarantine
	for _, rec := range records {
		all = append(all, newQuarantine(ctx, history, rec, snap))
	}
	for i := range stages {
		stages[i].recall(ctx, history)
	}
	return errors.Join(printQuarantines(cmd.OutOrStdout(), opts.output, all, stages, problems == nil && err == nil), problems, err)
}

func quarantineExplainCommand(opts *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "explain ADDRESS|DEVICE|UID",
		Short: "Show the evidence for a quarantine, and what to do",
		Long: "explain shows the resets that were tried, how the device differs from its state before the tenant (after the last\n" +
			"reset, and now), and what you can do. Of a sanitizing stage that failed it shows the image's digest, the checks and the\n" +
			"measurements.\n\n" + exitCodes,
		Args: oneQuarantined, ValidArgsFunction: opts.completeQuarantined,
		Example: "  kata-vfio-plugin quarantine explain 0000:3b:00.0",
		RunE: func(cmd *cobra.Command, args []string) error {
			q, err := opts.quarantineNamed(cmd.Context(), args[0])
			if v := opts.otherwiseFailed(err, args[0], opts.snapshot(cmd.Context())); v != nil {
				opts.recall(cmd.Context(), v)
				return printFailedStage(cmd.OutOrStdout(), opts.output, v)
			}
			if err != nil {
				return err
			}
			opts.lookNow(q)
			return printQuarantine(cmd.OutOrStdout(), opts.output, q)
		},
	}
	ledgerFlag(cmd, opts)
	return cmd
}

func quarantineClearCommand(opts *options) *cobra.Command {
	var how maintain.Clearance
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "clear ADDRESS|DEVICE|UID --reason TEXT",
		Short: "End a quarantine, with a reset that is proven",
		Long: "clear tries the reset again, and gives the device back to its driver if its registers are as before. With\n" +
			"--without-proof it gives the device back marked: before the next claim whose class asks for resets, it is reset and\n" +
			"its registers are compared. A host driver gets it only after a reset that succeeds; if resets fail, power-cycle the node first.\n" +
			"The ledger records reason and operator before anything is changed. After a failed sanitizing stage, clear runs the stage again.\n\n" + clearExitCodes,
		Args: oneQuarantined, ValidArgsFunction: opts.completeQuarantined,
		Example: "  kata-vfio-plugin quarantine clear 0000:3b:00.0 --reason 'power-cycled, ticket 4711'\n" +
			"  kata-vfio-plugin quarantine clear 0000:3b:00.0 --reason 'card replaced' --without-proof",
		RunE: func(cmd *cobra.Command, args []string) error {
			snap := opts.snapshot(cmd.Context())
			rec, err := opts.recordQuarantined(args[0], snap)
			if v := opts.otherwiseFailed(err, args[0], snap); v != nil {
				return opts.clearStage(cmd, v, how, dryRun)
			}
			if err != nil {
				return err
			}
			if dryRun {
				return printSteps(cmd.OutOrStdout(), opts.output, opts.clearSteps(rec, snap, how.WithoutProof))
			}
			if err := wantReason(how.Reason); err != nil {
				return err
			}
			how.By = operator()
			n, err := opts.open(opts.progress(cmd.ErrOrStderr()))
			if err != nil {
				return err
			}
			return errors.Join(clearOne(cmd, opts.output, n, rec, locate(rec, snap), how), n.Close())
		},
	}
	opts.registerWork(cmd)
	f := cmd.Flags()
	f.StringVar(&how.Reason, "reason", "", "why it may be used again, for the ledger")
	f.BoolVar(&how.WithoutProof, "without-proof", false, "give it back without a proof, marked for a reset")
	f.BoolVar(&dryRun, "dry-run", false, "show the steps and touch nothing")
	return cmd
}

// ledgerFlag adds the flag of commands that read the ledger.
func ledgerFlag(cmd *cobra.Command, opts *options) {
	cmd.Flags().StringVar(&opts.node.Ledger.Dir, "ledger-dir", "", "where the ledger lies, below the root (default: ledger in --state-dir)")
}

// oneQuarantined requires one argument.
func oneQuarantined(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return command.Usagef("want one argument, an address, a device's name or a claim's UID; `kata-vfio-plugin quarantine list` has them")
	}
	return nil
}

// completeQuarantined offers the functions that are quarantined.
func (o *options) completeQuarantined(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	snap := o.snapshot(cmd.Context())
	records, _ := o.node.Records().List() // completion has no place for errors
	var all []cobra.Completion
	for _, rec := range records {
		at := locate(rec, snap)
		for _, d := range rec.Plan.Devices {
			if rec.State == journal.Quarantined {
				all = append(all, cobra.CompletionWithDesc(at.now(d.Address).String(), rec.Reason))
			}
		}
	}
	stages, _ := o.failedStages(snap)
	for i := range stages {
		all = append(all, cobra.CompletionWithDesc(stages[i].Address.String(), stages[i].failedWords()))
	}
	return all, cobra.ShellCompDirectiveNoFileComp
}

// otherwiseFailed returns the device with the name whose sanitizing stage failed, or nil. err is the error of the search for a
// quarantined record with this name. Such a record takes precedence, because a stage can run only after its quarantine.
func (o *options) otherwiseFailed(err error, name string, snap *device.Snapshot) *sanitizingView {
	if _, unknown := errors.AsType[*command.UsageError](err); !unknown {
		return nil
	}
	v, _ := o.failedStageNamed(name, snap) // the first error says what is wrong
	return v
}

// recordQuarantined returns the quarantined record with the name. An address is a function's present address in the
// snapshot, or else its recorded one.
func (o *options) recordQuarantined(name string, snap *device.Snapshot) (*journal.Record, error) {
	store, err := o.records()
	if err != nil {
		return nil, err
	}
	records, problems := store.List()
	records = slices.DeleteFunc(records, func(rec *journal.Record) bool { return rec.State != journal.Quarantined })
	// Compare present addresses first: after a reboot, the recorded address of one function may be the present address of
	// another.
	for _, rec := range records {
		if isNamed(rec, name, locate(rec, snap)) {
			return rec, nil
		}
	}
	for _, rec := range records {
		if isNamed(rec, name, locations{}) {
			return rec, nil
		}
	}
	if len(problems) > 0 {
		return nil, readable(problems[0])
	}
	return nil, command.Usagef("%q: nothing of that name is quarantined; `kata-vfio-plugin quarantine list` says what is", name)
}

// isNamed reports whether a name is the record's, the present address of one of its functions, or the name of its partition, which
// has several addresses.
func isNamed(rec *journal.Record, name string, at locations) bool {
	if rec.ID() == name {
		return true
	}
	a, err := deviceNamed(name)
	if err != nil {
		return slices.ContainsFunc(rec.Plan.Devices, func(d plan.Device) bool { return d.Published() == name })
	}
	return slices.ContainsFunc(rec.Plan.Addresses(), func(was pci.Address) bool {
		return at.now(was) == a && !slices.Contains(at.gone, was)
	})
}

// clearSteps returns the steps that end a quarantine, with or without a proof. A quarantine of an earlier boot follows its
// functions to their places in the snapshot.
func (o *options) clearSteps(rec *journal.Record, snap *device.Snapshot, withoutProof bool) []plan.Step {
	if !withoutProof {
		return o.ahead(rec, snap)
	}
	rec = followed(rec, snap)
	boot := o.boot(rec)
	return rec.StepsFor(boot, rec.AheadWithoutProof(boot))
}

func clearOne(cmd *cobra.Command, format string, n *node.Node, rec *journal.Record, at locations, how maintain.Clearance) error {
	proofs, err := n.Maintainer.Clear(cmd.Context(), rec.ID(), how)
	if errors.Is(err, maintain.ErrNotQuarantined) {
		return &command.UsageError{Err: err}
	}
	if err != nil {
		return err
	}
	return printCleared(cmd.OutOrStdout(), format, rec, &at, how, proofs)
}

// clearedView is the result of clear. Its JSON names are stable.
type clearedView struct {
	UID    string            `json:"uid"`
	Proven bool              `json:"proven"`
	Resets []isolation.Proof `json:"resets"`
	Reason string            `json:"reason"`
	By     string            `json:"by"`
}

func clearedWords(how maintain.Clearance, proofs []isolation.Proof) string {
	switch {
	case how.WithoutProof:
		return "cleared without a proof: the next claim whose class asks for resets has it reset first"
	case len(proofs) == 0:
		return "cleared: its functions are off the bus"
	}
	return "cleared by " + output.Count(len(proofs), "reset") + ": " + isolation.Proven
}
