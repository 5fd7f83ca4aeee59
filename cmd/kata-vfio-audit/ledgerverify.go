package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kata-vfio/kata-vfio/pkg/cli/command"
	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
)

// maxAnchors limits the bytes that are read in search of anchors: the claims of a
// large cluster.
const maxAnchors = 256 << 20

func ledgerVerifyCommand(h *book) *cobra.Command {
	var format, key, proof string
	var anchors []string
	formats := command.Formats{"table", "json", "yaml"}
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Verify that the ledger was not changed",
		Long: "verify reads the whole ledger and checks every line, its chain, the tree over all lines and all signatures, and\n" +
			"says where each problem is. Anchors are checkpoints that are kept off the node. Only anchors show whether the\n" +
			"ledger was cut off at its end, restored from a backup, or rewritten with the node's key. --anchor finds them in any\n" +
			"file: claims' statuses or Events as JSON or YAML, a log, notes. An anchor that the ledger's key did not sign counts\n" +
			"against the ledger only where nobody but the plugin and you can write: a status.devices entry of the node's own\n" +
			"device (JSON), or a file of notes alone. Elsewhere it is left out, with its object's name.\n" +
			"\n" +
			"--proof checks a file of `ledger prove` instead, and needs no ledger.\n" +
			"\n" +
			ledgerExitCodes,
		Example: "  kubectl get resourceclaims -A -o json | kata-vfio-audit ledger verify --anchor -\n" +
			"  kata-vfio-audit ledger verify --root /mnt/disk-of-node --key gpu-07.pub --anchor claims.json\n" +
			"  kata-vfio-audit ledger verify --proof event-42.json --key gpu-07.pub",
		Args:    command.NoArgs,
		PreRunE: func(*cobra.Command, []string) error { return formats.Check(format) },
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if key, err = readKey(key); err != nil {
				return err
			}
			if proof != "" {
				return verifyProof(cmd.OutOrStdout(), cmd.InOrStdin(), proof, key)
			}
			o := ledger.Options{Key: key}
			if o.Anchors, err = readAnchors(cmd.InOrStdin(), anchors); err != nil {
				return err
			}
			r, err := h.verify(cmd.Context(), cmd.ErrOrStderr(), o)
			if err != nil {
				return err
			}
			return printReport(cmd.OutOrStdout(), format, r)
		},
	}
	cmd.Flags().StringVar(&key, "key", "", "the node's public key, or a file that contains it, from a trusted source (default: the key beside the ledger,\n"+
		"which an attacker who rewrites the ledger can replace)")
	cmd.Flags().StringArrayVar(&anchors, "anchor", nil, "file with checkpoints that are kept off the node; - for standard input; may be repeated")
	cmd.Flags().StringVar(&proof, "proof", "", "check this proof instead of a ledger; - for standard input")
	formats.Flag(cmd, &format)
	return cmd
}

// verify verifies the ledger, and warns of parts that an archive leaves out.
func (h *book) verify(ctx context.Context, warnings io.Writer, o ledger.Options) (*ledger.Report, error) {
	l, err := h.open()
	if err != nil {
		return nil, err
	}
	r, err := l.verify(ctx, o)
	return r, errors.Join(err, warn(warnings, l.leftOut), l.closer.Close())
}

func readAnchors(stdin io.Reader, names []string) ([]ledger.Anchor, error) {
	var anchors []ledger.Anchor
	for _, name := range names {
		data, err := command.ReadArgument(stdin, name, maxAnchors)
		if err != nil {
			return nil, err
		}
		found := ledger.FindAnchors(data, name)
		if len(found) == 0 {
			return nil, command.Usagef("--anchor %s: it contains no signed checkpoint", name)
		}
		anchors = append(anchors, found...)
	}
	return anchors, nil
}

// printReport prints the report, and returns the error of a ledger that failed.
func printReport(w io.Writer, format string, r *ledger.Report) error {
	done, err := output.Document(w, format, "report", r)
	if !done {
		_, err = io.WriteString(w, reportWords(r))
	}
	if err == nil && !r.OK() {
		err = &verdictError{code: exitLedger, text: fmt.Sprintf("the ledger of %s failed its verification", output.Visible(cmp.Or(r.Origin, "this node")))}
	}
	return err
}

func reportWords(r *ledger.Report) string {
	var text strings.Builder
	for _, p := range r.Problems {
		where := p.File
		if p.Line > 0 {
			// Lines count from 1: 0 is a problem of the whole file.
			where = fmt.Sprintf("%s, line %d", where, p.Line)
		}
		if where != "" {
			where += ": "
		}
		fmt.Fprintf(&text, "✗ %s%s [%s]\n", where, output.Visible(p.What), p.Kind)
	}
	if r.OK() {
		text.WriteString("✓ every line, the chain, the tree and the signatures are as they were written\n")
	}
	fmt.Fprintf(&text, "\nledger   %s\nkey      %s\nevents   %d proven, %d of them by their hashes only (retention, or left out of an archive), in %s\n",
		output.Visible(cmp.Or(r.Origin, "not known")), output.Visible(cmp.Or(r.Key, "gone")), r.Size, r.Dropped, output.Count(r.Segments, "segment"))
	text.WriteString(anchorWords(r))
	if r.Others > 0 {
		fmt.Fprintf(&text, "         %d of other ledgers were left out\n", r.Others)
	}
	if r.LeftOut > 0 {
		fmt.Fprintf(&text, "         left out (%d): the ledger's key did not sign what %s has, where others can write too. It says nothing of the ledger\n",
			r.LeftOut, output.Visible(strings.Join(r.LeftOutFrom, ", ")))
	}
	return text.String()
}

// anchorWords describes the proof by the anchors.
func anchorWords(r *ledger.Report) string {
	switch {
	case r.Anchors == 0:
		return "anchors  none: without --anchor, verify can't tell whether the ledger was cut off at its end, restored from a backup or rewritten\n"
	case r.OK():
		later := int(r.Size - r.Anchored)
		return fmt.Sprintf("anchors  %d match: events 0 to %d are unchanged since then; %s %s only the node's signature\n",
			r.Anchors, r.Anchored-1, output.Count(later, "later event"), output.Plural(later, "has", "have"))
	case r.Anchored == 0:
		return fmt.Sprintf("anchors  %d, and none matches\n", r.Anchors)
	}
	return fmt.Sprintf("anchors  %d, which match up to size %d\n", r.Anchors, r.Anchored)
}

// verifyProof checks a proof's file.
func verifyProof(w io.Writer, stdin io.Reader, name, key string) error {
	data, err := command.ReadArgument(stdin, name, 4*ledger.MaxLine)
	if err != nil {
		return err
	}
	p, err := ledger.DecodeProof(data)
	if err != nil {
		return command.Usagef("--proof %s: %w", name, err)
	}
	at, err := p.Check(key)
	if err != nil {
		return &verdictError{code: exitLedger, text: "the proof does not hold: " + output.Visible(err.Error())}
	}
	what := "the earlier checkpoint is of the same history"
	if p.Event != "" {
		what = fmt.Sprintf("event %d is in the ledger", p.Seq)
	}
	by := "the key that is known"
	if key == "" {
		by = "the key that the proof itself names; compare it with the node's, or give --key: " + output.Visible(p.Key)
	}
	_, err = fmt.Fprintf(w, "✓ %s of %s, as it was with %s, signed by %s\n", what, output.Visible(at.Origin), output.Count(int(at.Size), "event"), by)
	if err == nil && p.Event != "" {
		_, err = fmt.Fprintln(w, output.Visible(p.Event))
	}
	return err
}

func ledgerProveCommand(h *book) *cobra.Command {
	var from, file string
	cmd := &cobra.Command{
		Use:   "prove [EVENT]",
		Short: "Write a small file that proves an event, or that an anchor belongs to this history",
		Long: "prove EVENT writes a proof that the event with this number (SEQ of `who --events`) is in the ledger. prove --from FILE\n" +
			"writes a proof that the ledger's current checkpoint continues the history of the checkpoint in the file. The recipient\n" +
			"checks it without the ledger: `kata-vfio-audit ledger verify --proof`. A damaged ledger gives no proofs.\n" +
			"\n" +
			ledgerExitCodes,
		Example: "  kata-vfio-audit ledger prove 42 --file event-42.json\n  kata-vfio-audit ledger prove --from anchor.txt",
		Args:    cobra.ArbitraryArgs, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			prove, err := readProof(cmd.InOrStdin(), args, from)
			if err != nil {
				return err
			}
			l, err := h.open()
			if err != nil {
				return err
			}
			p, err := prove(l.files)
			// Call failed before the ledger is closed: it reads the ledger again to say whether the ledger was deleted.
			if err := errors.Join(l.failed(cmd.Context(), err), l.closer.Close()); err != nil {
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
	cmd.Flags().StringVar(&file, "file", "", "write to this file instead of standard output")
	return cmd
}

// readProof returns a function that makes the proof that the command line requests.
func readProof(stdin io.Reader, args []string, from string) (func(fs.FS) (*ledger.Proof, error), error) {
	if from != "" && len(args) == 0 {
		anchors, err := readAnchors(stdin, []string{from})
		if err != nil {
			return nil, err
		}
		// A claim's status has a checkpoint for each of its devices, and the proof can't guess which one is meant.
		if len(anchors) != 1 {
			return nil, command.Usagef("--from %s: it has %d checkpoints, want one", from, len(anchors))
		}
		return func(fsys fs.FS) (*ledger.Proof, error) { return ledger.ProveConsistency(fsys, anchors[0]) }, nil
	}
	if from != "" || len(args) != 1 {
		return nil, command.Usagef("want one event's number, or --from; see `kata-vfio-audit ledger prove --help`")
	}
	seq, err := strconv.ParseInt(args[0], 10, 64)
	if err != nil || seq < 0 {
		return nil, command.Usagef("event %q: want its number, SEQ of `kata-vfio-audit who --events`", args[0])
	}
	return func(fsys fs.FS) (*ledger.Proof, error) { return ledger.ProveEvent(fsys, seq) }, nil
}

// failedLedger gives the error of a damaged ledger its exit code.
func failedLedger(err error) error {
	_, damaged := errors.AsType[*ledger.DamagedError](err)
	if damaged || errors.Is(err, ledger.ErrNoKey) || errors.Is(err, ledger.ErrForeign) {
		return &verdictError{code: exitLedger, text: output.Visible(err.Error())}
	}
	return err
}
