package main

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/kata-vfio/kata-vfio/pkg/cli/command"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/node"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
)

// unprepareCommand takes a claim's functions back.
func unprepareCommand(opts *options) *cobra.Command {
	var dryRun, leave bool
	var wait *time.Duration
	cmd := &cobra.Command{
		Use:   "unprepare <claim UID>",
		Short: "Reset a claim's functions, compare their registers and give them back",
		Long: "unprepare removes a claim from the node. It refuses while a process has a function open. It removes the CDI spec,\n" +
			"resets the functions, compares them with their former state, restores driver and driver_override, and returns\n" +
			"addresses to their pool. A claim that is not prepared is not an error. For a quarantined claim it tries the reset again.\n\n" + exitCodes,
		Args: oneUID, ValidArgsFunction: opts.completeUID,
		Example: `  kata-vfio-plugin unprepare 9f1c2d3e-4b5a-6978-8796-a5b4c3d2e1f0 --dry-run
  kata-vfio-plugin unprepare 9f1c2d3e-4b5a-6978-8796-a5b4c3d2e1f0 --holder-wait 1m`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if dryRun {
				return showRelease(cmd, opts, args[0], leave)
			}
			opts.node.HolderWait = *wait
			n, err := opts.open(opts.progress(cmd.ErrOrStderr()))
			if err != nil {
				return err
			}
			return errors.Join(unprepareOne(cmd, opts.output, n, args[0], leave), n.Close())
		},
	}
	opts.registerWork(cmd)
	wait = waitFlag(cmd, 0)
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "show the steps and touch nothing")
	cmd.Flags().BoolVar(&leave, "leave-addresses", false, "do not return addresses to their pools, if a pool's plugin is gone for good:\nthey stay in use until you free them in the pool")
	return cmd
}

// oneUID requires one argument.
func oneUID(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return command.Usagef("want one argument, the claim's UID; `kata-vfio-plugin status` lists them")
	}
	return nil
}

// completeUID offers the UIDs of the node's claims.
func (o *options) completeUID(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	records, _ := o.node.Records().List() // completion has no place for errors
	var uids []cobra.Completion
	for _, rec := range records {
		uids = append(uids, cobra.CompletionWithDesc(rec.ID(), rec.Plan.Claim.Namespace+"/"+rec.Plan.Claim.Name))
	}
	if len(args) > 0 {
		uids = nil
	}
	return uids, cobra.ShellCompDirectiveNoFileComp
}

// showRelease prints what unprepare would do. leave says whether it leaves the addresses in their pools.
func showRelease(cmd *cobra.Command, opts *options, uid string, leave bool) error {
	w := cmd.OutOrStdout()
	records, err := opts.records()
	if err != nil {
		return err
	}
	rec, err := records.Load(uid)
	if err != nil {
		return readable(err)
	}
	if rec == nil && opts.output == "table" {
		_, err := fmt.Fprintf(w, "Claim %s has nothing on this node; `kata-vfio-plugin status` lists the claims.\n", uid)
		return err
	}
	if rec != nil && leave {
		rec = rec.WithoutLeases()
	}
	steps := opts.ahead(rec, opts.snapshot(cmd.Context()))
	if len(steps) == 0 && rec != nil && opts.boot(rec) != rec.BootID && opts.output == "table" {
		_, err := fmt.Fprintf(w, "The node was restarted since claim %s was prepared: only its record and its CDI spec are removed.\n", uid)
		return err
	}
	return printSteps(w, opts.output, steps)
}

// ahead returns the steps that remove a record's claim from the node, at the places of its functions in a snapshot, which may be nil.
func (o *options) ahead(rec *journal.Record, snap *device.Snapshot) []plan.Step {
	if rec == nil {
		return []plan.Step{}
	}
	rec = followed(rec, snap)
	boot := o.boot(rec)
	return rec.StepsFor(boot, rec.Ahead(boot))
}

// boot returns the node's boot, or the record's if that can't be read.
func (o *options) boot(rec *journal.Record) string { return cmp.Or(o.bootID(), rec.BootID) }

func unprepareOne(cmd *cobra.Command, format string, n *node.Node, uid string, leave bool) error {
	unprepare := n.Preparer.Unprepare
	if leave {
		unprepare = n.Preparer.UnprepareLeavingAddresses
	}
	release, err := unprepare(cmd.Context(), uid)
	if err != nil {
		return err
	}
	return printReleased(cmd.OutOrStdout(), format, uid, release)
}

// statusCommand lists the journal.
func statusCommand(opts *options) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show which claim has which functions, and in what state",
		Long: "status reads the journal. It shows which claim has which functions of this node, their current and original\n" +
			"drivers, why a claim can't be prepared or unprepared, which functions have had no proven reset since their last\n" +
			"tenant, which tenant has each exclusive domain, which partitions of an NVLink fabric are free, and what is drained. It\n" +
			"changes nothing.\n\n" + exitCodes,
		Args: command.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
		Example: `  kata-vfio-plugin status
  kata-vfio-plugin status -o json | jq -r '.records[] | select(.state == "quarantined") | .uid'`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := opts.status(cmd.Context())
			if err != nil {
				return err
			}
			if err := printStatus(cmd.OutOrStdout(), opts.output, s); err != nil {
				return err
			}
			// An incomplete status is still printed. The exit code says that it is incomplete.
			return errors.Join(s.problems...)
		},
	}
}

// recoverCommand recovers once, as `run` does at its start.
func recoverCommand(opts *options) *cobra.Command {
	var wait *time.Duration
	cmd := &cobra.Command{
		Use:   "recover",
		Short: "Complete or remove every claim after a crash",
		Long: "recover does once what `run` does at start. Prepared claims stay prepared, and their CDI specs are written again.\n" +
			"Claims that a crash interrupted are completed or removed. CDI specs without a claim are removed. Quarantined claims\n" +
			"and functions without a claim are listed and left alone.\n\n" + exitCodes,
		Args: command.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
		Example: "  kata-vfio-plugin recover\n  kata-vfio-plugin recover -o json | jq .unfinished",
		RunE: func(cmd *cobra.Command, _ []string) error {
			opts.node.HolderWait = *wait
			n, err := opts.open(opts.progress(cmd.ErrOrStderr()))
			if err != nil {
				return err
			}
			r, err := n.Recover(cmd.Context())
			if err == nil {
				err = printRecovery(cmd.OutOrStdout(), opts.output, r)
			}
			if r != nil {
				err = errors.Join(err, errors.Join(r.Unfinished...))
			}
			return errors.Join(err, n.Close())
		},
	}
	opts.registerWork(cmd)
	wait = waitFlag(cmd, 0)
	return cmd
}
