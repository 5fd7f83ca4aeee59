package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kata-vfio/kata-vfio/pkg/cli/command"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/ledger/writer"
	"github.com/kata-vfio/kata-vfio/pkg/maintain"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// States of a [sanitizingView].
const (
	stageWaits  = "Waiting"
	stageRuns   = "Running"
	stageFailed = "Failed"
)

// sanitizingView is a device that must be sanitized before its next tenant. Its JSON names are stable.
type sanitizingView struct {
	// Address is where the device is now; where it was, if that is not known.
	Address pci.Address `json:"address"`
	State   string      `json:"state"`
	Since   string      `json:"since,omitempty"`
	// After is the claim of the last tenant.
	After *journal.ClaimName `json:"after,omitempty"`
	// Stage is the stage that has the device, or whose result is not decided yet.
	Stage *journal.Stage `json:"stage,omitempty"`
	// Interrupted counts the stages in a row that were cut off.
	Interrupted int                  `json:"interrupted,omitempty"`
	Failed      *journal.FailedStage `json:"failed,omitempty"`
	// Result is what the ledger has of the failed stage: image, checks, measurements. ResultUnknown says why it is unknown.
	Result        *ledger.Sanitization `json:"result,omitempty"`
	ResultUnknown string               `json:"resultUnknown,omitempty"`
}

// newSanitizingViews returns the views of marks, with the addresses of a snapshot, which may be nil.
func newSanitizingViews(marks []journal.SanitizeMark, snap *device.Snapshot) []sanitizingView {
	var all []sanitizingView
	var finder *device.Finder
	if snap != nil && len(marks) > 0 {
		finder = device.NewFinder(snap)
	}
	for i := range marks {
		m := &marks[i]
		v := sanitizingView{Address: m.Address, State: stageWaits, Since: m.Since, Stage: m.Stage, Interrupted: m.Interrupted, Failed: m.Failed}
		if m.Claim.UID != "" {
			v.After = &m.Claim
		}
		switch {
		case m.Failed != nil:
			v.State = stageFailed
		case m.Stage != nil:
			v.State = stageRuns
		}
		if finder != nil {
			v.Address = present(m.Address, m.Identity, finder)
		}
		all = append(all, v)
	}
	return all
}

// after returns the words for the last tenant's claim.
func (v *sanitizingView) after() string {
	if v.After == nil {
		return "-"
	}
	return claimText(v.After)
}

func claimText(c *journal.ClaimName) string {
	if c.Name == "" {
		return c.UID
	}
	return fmt.Sprintf("%s/%s (%s)", c.Namespace, c.Name, c.UID)
}

// failedWords say why a stage failed.
func (v *sanitizingView) failedWords() string {
	return fmt.Sprintf("its sanitizing stage is %s: %s", v.Failed.Verdict, joinLines(v.Failed.Reason))
}

// printSanitizing prints which devices must be sanitized before their next tenant.
func printSanitizing(w io.Writer, all []sanitizingView) error {
	for i := range all {
		v := &all[i]
		words := "waits for its sanitizing stage"
		switch v.State {
		case stageRuns:
			words = fmt.Sprintf("is in its sanitizing stage (%s, pod %s/%s) since %s", v.Stage.Profile, v.Stage.Claim.Namespace, v.Stage.Pod, v.Stage.Since)
		case stageFailed:
			words = "is quarantined: " + v.failedWords()
		}
		if v.After != nil {
			words += fmt.Sprintf(", after claim %s, %s", claimText(v.After), v.Since)
		}
		if v.Interrupted > 0 {
			words += fmt.Sprintf("; stages that were interrupted: %d", v.Interrupted)
		}
		if _, err := fmt.Fprintf(w, "\n%s %s\n", v.Address, words); err != nil {
			return err
		}
	}
	return nil
}

// failedStages returns the devices whose sanitizing stage failed.
func (o *options) failedStages(snap *device.Snapshot) ([]sanitizingView, error) {
	store, err := o.records()
	if err != nil {
		return nil, err
	}
	marks, err := store.Unsanitized()
	if err != nil {
		return nil, readable(err)
	}
	var failed []sanitizingView
	for _, v := range newSanitizingViews(marks, snap) {
		if v.State == stageFailed {
			failed = append(failed, v)
		}
	}
	return failed, nil
}

// recall adds the result of a failed stage from the ledger, or the reason why it is unknown.
func (o *options) recall(ctx context.Context, v *sanitizingView) {
	v.recall(ctx, o.history(ctx, v.Failed.Stage.Claim.UID))
}

func (v *sanitizingView) recall(ctx context.Context, history *writer.Writer) {
	events, err := history.Tenancy(ctx, v.Failed.Stage.Claim.UID)
	if err != nil {
		v.ResultUnknown = err.Error()
		return
	}
	for i := range events {
		if e := &events[i]; e.Type == ledger.Sanitize {
			v.Result = e.Sanitize
		}
	}
	if v.Result == nil {
		v.ResultUnknown = "the ledger has no result of this stage"
	}
}

// changedFirmware returns the last proof of the device with the name if its firmware changed since it was accepted; nil if it did not.
func (o *options) changedFirmware(name string, snap *device.Snapshot) (*journal.SanitizeProof, error) {
	a, err := deviceNamed(name)
	if err != nil || snap == nil {
		return nil, nil //nolint:nilerr // the caller says that nothing has that name
	}
	f, ok := snap.Function(a)
	if !ok {
		return nil, nil
	}
	store, err := o.records()
	if err != nil {
		return nil, err
	}
	proofs, err := store.Sanitized()
	if err != nil {
		return nil, readable(err)
	}
	proof, _ := journal.FindSanitized(proofs, snap.Identify(f))
	if len(proof.Changed) == 0 {
		return nil, nil
	}
	proof.Address = a
	return &proof, nil
}

// acceptRecorded accepts changes of firmware that the policy Record let pass.
func (o *options) acceptRecorded(cmd *cobra.Command, name, reason string, dryRun bool) error {
	proof, err := o.changedFirmware(name, o.snapshot(cmd.Context()))
	if err != nil {
		return err
	}
	if proof == nil {
		return command.Usagef("%q: no sanitizing stage of that device failed, and its firmware has not changed; `kata-vfio-plugin quarantine list` says what is quarantined", name)
	}
	if dryRun {
		if done, err := document(cmd.OutOrStdout(), o.output, proof); done {
			return err
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%s: its firmware changed since it was accepted, by profile %s at %s\n", proof.Address, orDash(proof.Profile), orDash(proof.Time))
		for _, change := range proof.Changed {
			fmt.Fprintf(cmd.OutOrStdout(), "  firmware   %s\n", change)
		}
		return nil
	}
	return o.onStage(cmd, proof.Address, reason, func(ctx context.Context, m *maintain.Maintainer) error {
		return m.AcceptFirmware(ctx, proof.Address, reason, operator())
	}, "firmware accepted")
}

// failedStageNamed returns the device with the name whose stage failed; nil if there is none.
func (o *options) failedStageNamed(name string, snap *device.Snapshot) (*sanitizingView, error) {
	failed, err := o.failedStages(snap)
	if err != nil {
		return nil, err
	}
	a, err := deviceNamed(name)
	for i := range failed {
		if err == nil && failed[i].Address == a || failed[i].Failed.Stage.Claim.UID == name || failed[i].After != nil && failed[i].After.UID == name {
			return &failed[i], nil
		}
	}
	return nil, nil
}

// printFailedStage prints a failed stage with its evidence.
func printFailedStage(w io.Writer, format string, v *sanitizingView) error {
	if done, err := document(w, format, v); done {
		return err
	}
	f := v.Failed
	fmt.Fprintf(w, "%s: quarantined, because %s\n", v.Address, v.failedWords())
	fmt.Fprintf(w, "  tenant     claim %s, since %s\n", v.after(), orDash(v.Since))
	fmt.Fprintf(w, "  stage      profile %s, pod %s/%s, since %s\n", orDash(f.Stage.Profile), f.Stage.Claim.Namespace, orDash(f.Stage.Pod), orDash(f.Stage.Since))
	for _, change := range f.Changes {
		fmt.Fprintf(w, "  firmware   %s\n", change)
	}
	v.printResult(w)
	_, err := fmt.Fprint(w, "\nWhat to do:\n", v.waysOut())
	return err
}

// printResult prints what the sanitizer answered.
func (v *sanitizingView) printResult(w io.Writer) {
	r := v.Result
	if r == nil {
		fmt.Fprintf(w, "\nWhat the sanitizer answered is not known: %s\n", joinLines(v.ResultUnknown))
		return
	}
	fmt.Fprintf(w, "  image      %s\n\nChecks:\n", orDash(r.Image))
	if len(r.Checks) == 0 {
		fmt.Fprintln(w, "  none: the sanitizer gave no result")
	}
	for i := range r.Checks {
		c := &r.Checks[i]
		fmt.Fprintf(w, "  %s  %s by %s, %d bytes in %.1f s", c.Verdict, c.Name, c.Method, c.Bytes, c.Seconds)
		if c.Reason != "" {
			fmt.Fprint(w, ": ", joinLines(c.Reason))
		}
		fmt.Fprintln(w)
	}
	for _, m := range r.Firmware {
		fmt.Fprintf(w, "  measured  %s: %s %s\n", m.Name, m.Algorithm, m.Value)
	}
}

// waysOut returns what an operator can do, the mildest action first.
func (v *sanitizingView) waysOut() string {
	ways := []string{"run the stage again: `kata-vfio-plugin quarantine clear " + v.Address.String() + " --reason TEXT`; the device is free if the stage then proves it clean"}
	if v.Failed.Proof != nil {
		ways = []string{"if the new firmware is the vendor's and meant, accept it: `kata-vfio-plugin quarantine accept-firmware " + v.Address.String() + " --reason TEXT`; if not, flash the device, then run the stage again by `clear`"}
	}
	ways = append(ways,
		"if stages keep failing, replace the device: its memory or its firmware may have what a tenant left there",
		"if you wiped the device by other means, use `clear` with --without-proof")
	var b strings.Builder
	for i, way := range ways {
		fmt.Fprintf(&b, "  %d. %s\n", i+1, way)
	}
	return b.String()
}

// clearStage ends the quarantine of a failed stage.
func (o *options) clearStage(cmd *cobra.Command, v *sanitizingView, how maintain.Clearance, dryRun bool) error {
	what := "another sanitizing stage runs"
	if how.WithoutProof {
		what = "it is free without a proof, unless its rule has it sanitized before each claim"
	}
	if dryRun {
		if done, err := document(cmd.OutOrStdout(), o.output, map[string]string{"address": v.Address.String(), "outcome": what}); done {
			return err
		}
		_, err := fmt.Fprintf(cmd.OutOrStdout(), "Would end the quarantine of %s: %s.\n", v.Address, what)
		return err
	}
	return o.onStage(cmd, v.Address, how.Reason, func(ctx context.Context, m *maintain.Maintainer) error {
		how.By = operator()
		return m.ClearStage(ctx, v.Address, how)
	}, "quarantine ended: "+what)
}

// onStage opens the node, calls work, which decides about the result of a device's last stage, and prints words about the
// outcome.
func (o *options) onStage(cmd *cobra.Command, a pci.Address, reason string, work func(context.Context, *maintain.Maintainer) error, words string) error {
	if err := wantReason(reason); err != nil {
		return err
	}
	n, err := o.open(o.progress(cmd.ErrOrStderr()))
	if err != nil {
		return err
	}
	err = work(cmd.Context(), n.Maintainer)
	if errors.Is(err, maintain.ErrNoFailedStage) || errors.Is(err, maintain.ErrNotOnlyFirmware) {
		err = &command.UsageError{Err: err}
	}
	if err != nil {
		return errors.Join(err, n.Close())
	}
	done, err := document(cmd.OutOrStdout(), o.output, map[string]string{"address": a.String(), "reason": reason})
	if !done {
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: %s.\n", a, words)
	}
	return errors.Join(err, n.Close())
}

func acceptFirmwareCommand(opts *options) *cobra.Command {
	var reason string
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "accept-firmware ADDRESS|DEVICE --reason TEXT",
		Short: "Accept the changed firmware of a device, which ends its quarantine",
		Long: "accept-firmware makes the measurements of the last sanitizing stage the accepted ones. It ends a quarantine whose only reason is\n" +
			"changed firmware (FirmwareChanged). With the policy Record, which quarantines no device for that, it ends the audit's finding RST-014.\n" +
			"The ledger records reason and operator before anything is changed.\n\n" + clearExitCodes,
		Args: oneQuarantined, ValidArgsFunction: opts.completeQuarantined,
		Example: "  kata-vfio-plugin quarantine accept-firmware 0000:3b:00.0 --reason 'vendor update 1.2, ticket 4711'",
		RunE: func(cmd *cobra.Command, args []string) error {
			v, err := opts.failedStageNamed(args[0], opts.snapshot(cmd.Context()))
			if err != nil {
				return err
			}
			if v == nil {
				return opts.acceptRecorded(cmd, args[0], reason, dryRun)
			}
			if dryRun {
				opts.recall(cmd.Context(), v)
				return printFailedStage(cmd.OutOrStdout(), opts.output, v)
			}
			return opts.onStage(cmd, v.Address, reason, func(ctx context.Context, m *maintain.Maintainer) error {
				return m.AcceptFirmware(ctx, v.Address, reason, operator())
			}, "firmware accepted, quarantine ended")
		},
	}
	opts.registerWork(cmd)
	cmd.Flags().StringVar(&reason, "reason", "", "why the new firmware is right, for the ledger")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "show what would be accepted and touch nothing")
	return cmd
}
