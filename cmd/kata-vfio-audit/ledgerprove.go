package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/kata-vfio/kata-vfio/pkg/cli/command"
	"github.com/kata-vfio/kata-vfio/pkg/cli/terminal"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
)

func ledgerProveCommand(h *book) *cobra.Command {
	var from, file string
	cmd := &cobra.Command{
		Use:   "prove [EVENT]",
		Short: "Write a small file that proves an event, or that an anchor is of this history",
		Long: "prove EVENT writes the proof that the event of that number (SEQ of `ledger show`) is in the ledger; prove --from FILE\n" +
			"that the ledger's checkpoint of now is of the same history as the checkpoint in the file. Who gets the file checks\n" +
			"it without the ledger: `kata-vfio-audit ledger verify --proof`. There are no proofs from a damaged ledger.\n\n" + ledgerExitCodes,
		Example: "  kata-vfio-audit ledger prove 42 --file event-42.json\n  kata-vfio-audit ledger prove --from anchor.txt",
		Args:    cobra.ArbitraryArgs, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			prove, err := proofOf(cmd.InOrStdin(), args, from)
			if err != nil {
				return err
			}
			l, err := h.open()
			if err != nil {
				return err
			}
			p, err := prove(l.FS)
			if err := errors.Join(l.failed(cmd.Context(), err), l.Close()); err != nil {
				return failedLedger(err)
			}
			data, err := p.Encode()
			if err != nil {
				return err
			}
			if file == "" {
				return deliver(data, "", cmd.OutOrStdout())
			}
			if err := writePrivate(file, data); err != nil {
				return fmt.Errorf("write proof to %s: %w", file, err)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&from, "from", "", "file with an earlier checkpoint, - for standard input")
	cmd.Flags().StringVar(&file, "file", "", "write to this file in place of standard output")
	return cmd
}

// proofOf returns what makes the proof that the command line asks for.
func proofOf(stdin io.Reader, args []string, from string) (func(fs.FS) (*ledger.Proof, error), error) {
	if from != "" && len(args) == 0 {
		anchors, err := readAnchors(stdin, []string{from})
		if err != nil {
			return nil, err
		}
		if len(anchors) != 1 {
			return nil, command.Usagef("--from %s: it has %d checkpoints, want one", from, len(anchors))
		}
		return func(fsys fs.FS) (*ledger.Proof, error) { return ledger.ProveConsistency(fsys, anchors[0]) }, nil
	}
	if from != "" || len(args) != 1 {
		return nil, command.Usagef("want the number of one event, or --from; see `kata-vfio-audit ledger prove --help`")
	}
	seq, err := strconv.ParseInt(args[0], 10, 64)
	if err != nil || seq < 0 {
		return nil, command.Usagef("event %q: want its number, SEQ of `kata-vfio-audit ledger show`", args[0])
	}
	return func(fsys fs.FS) (*ledger.Proof, error) { return ledger.ProveEvent(fsys, seq) }, nil
}

// failedLedger gives the error of a damaged ledger its exit code.
func failedLedger(err error) error {
	_, damaged := errors.AsType[*ledger.DamagedError](err)
	if damaged || errors.Is(err, ledger.ErrNoKey) || errors.Is(err, ledger.ErrForeign) {
		return &verdictError{code: exitLedger, text: terminal.Visible(err.Error())}
	}
	return err
}
