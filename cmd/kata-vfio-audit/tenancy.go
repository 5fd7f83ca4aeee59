package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kata-vfio/kata-vfio/pkg/audit/evidence"
	"github.com/kata-vfio/kata-vfio/pkg/cli/command"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/ledger/history"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// inquiry is a question to the ledger.
type inquiry struct {
	tree *tree
	dir  string
	// key and anchors are what the ledger is verified by.
	key     string
	anchors []string
	format  string
	file    string
	bundle  string
}

const inquiryExitCodes = "Exit codes:\n" +
	"  0  answered from a sound ledger\n" +
	"  1  there is no ledger and no trace of one, it could not be read, or the output could not be written\n" +
	"  2  the command line is wrong\n" +
	"  5  answered from a ledger that is not sound: the answer says where"

// reply answers a question from what the ledger says.
type reply func(*history.History, history.Verification) (*evidence.Document, error)

// ask adds what the questions have in common to a command. asked reads the arguments, before the ledger is, and
// returns what answers.
func (q *inquiry) ask(cmd *cobra.Command, asked func(args []string) (reply, error)) *cobra.Command {
	formats := command.Formats(evidence.Formats())
	cmd.PreRunE = func(*cobra.Command, []string) error { return formats.Check(q.format) }
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		r, err := asked(args)
		if err != nil {
			return err
		}
		return q.answer(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout(), r)
	}
	formats.Flag(cmd, &q.format)
	f := cmd.Flags()
	f.StringVar(&q.dir, "dir", "", "the ledger's directory (default: "+ledger.DefaultDir+" below --root)")
	f.StringVar(&q.key, "key", "", "the node's public key, or a file that contains it, from a trusted source; default: the one beside the ledger")
	f.StringArrayVar(&q.anchors, "anchor", nil, "file with checkpoints from off the node (a claim's status, Events, a log); - for standard input; may be repeated")
	f.StringVar(&q.file, "file", "", "write to this file instead of standard output")
	f.StringVar(&q.bundle, "bundle", "", "also write a bundle to this `file` that `kata-vfio-audit verify bundle` checks offline")
	return cmd
}

// answer reads the ledger, asks, and prints.
func (q *inquiry) answer(ctx context.Context, stdin io.Reader, stdout io.Writer, reply reply) error {
	key, err := keyOf(q.key)
	if err != nil {
		return err
	}
	anchors, err := readAnchors(stdin, q.anchors)
	if err != nil {
		return err
	}
	l, err := (&book{tree: q.tree, dir: q.dir}).open()
	if err != nil {
		return err
	}
	defer func() { _ = l.Close() }()
	h, standing, err := l.history(ctx, ledger.Options{Key: key, Anchors: anchors})
	if err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	d, err := reply(h, standing)
	if err != nil {
		return err
	}
	var page bytes.Buffer
	if err := d.Write(&page, q.format); err != nil {
		return err
	}
	if err := deliver(page.Bytes(), q.file, stdout); err != nil {
		return err
	}
	if q.bundle != "" {
		if err := q.writeBundle(l.FS, d); err != nil {
			return err
		}
	}
	if !standing.Sound {
		return &verdictError{code: exitLedger, text: fmt.Sprintf("the ledger is not sound: %d problems", len(standing.Problems))}
	}
	return nil
}

func (q *inquiry) writeBundle(dir fs.FS, d *evidence.Document) error {
	b, err := evidence.NewBundle(dir, d)
	if err != nil {
		return err
	}
	data, err := b.Encode()
	if err != nil {
		return err
	}
	if err := writePrivate(q.bundle, data); err != nil {
		return fmt.Errorf("write bundle to %s: %w", q.bundle, err)
	}
	return nil
}

// uid is how the API server writes UIDs, and the kubelet those of static pods.
var uid = regexp.MustCompile(`^([0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}|[0-9a-f]{32})$`)

// named adds what a question about one name of a kind has on top.
func (q *inquiry) named(cmd *cobra.Command, kind, name string, pick func(*history.History, string) []*history.Tenancy) *cobra.Command {
	cmd.Use += " " + name
	cmd.Long += "\n\n" + inquiryExitCodes
	cmd.Args = oneArgument(name)
	return q.ask(cmd, func(args []string) (reply, error) {
		which := args[0]
		if namespace, rest, ok := strings.Cut(which, "/"); which == "" || ok && (namespace == "" || rest == "" || strings.Contains(rest, "/")) {
			return nil, command.Usagef("%s %q: want %s, or a UID", kind, which, name)
		}
		return func(h *history.History, s history.Verification) (*evidence.Document, error) {
			found := pick(h, which)
			// A claim may be asked for by its name alone, and a name can be right that no ledger knows.
			if kind == "pod" && len(found) == 0 && s.Sound && !strings.Contains(which, "/") && !uid.MatchString(which) {
				return nil, command.Usagef("%s %q: want %s; the ledger has no such UID", kind, which, name)
			}
			return evidence.About(kind+" "+which, h, found, s), nil
		}, nil
	})
}

func podCommand(t *tree) *cobra.Command {
	return (&inquiry{tree: t}).named(&cobra.Command{
		Use:   "pod",
		Short: "Show which functions a pod had, and how they were isolated and reset",
		Long: "pod shows from the ledger which functions a pod had, when, in which VM, how isolated, the resets before and\n" +
			"after, and which other tenants were near. Use a pod's UID if its name was used more than once.",
		Example: "  kata-vfio-audit pod team-a/train\n  kata-vfio-audit pod team-a/train -o html --file train.html --bundle train.bundle.json",
	}, "pod", "NAMESPACE/POD", (*history.History).OfPod)
}

func claimCommand(t *tree) *cobra.Command {
	return (&inquiry{tree: t}).named(&cobra.Command{
		Use:   "claim",
		Short: "Show which functions a claim had, and how they were isolated and reset",
		Long:  "claim shows the same as pod, for a ResourceClaim by its name or UID.",
	}, "claim", "NAMESPACE/CLAIM", (*history.History).OfClaim)
}

func neighboursCommand(t *tree) *cobra.Command {
	return (&inquiry{tree: t}).named(&cobra.Command{
		Use:   "neighbours",
		Short: "Show which other tenants were near a pod's functions while it had them",
		Long: "neighbours lists the tenancies of other tenants on the same node at the same time, the nearest first: in one IOMMU\n" +
			"group, on one PF, behind one switch or root port, elsewhere on the node.",
	}, "pod", "NAMESPACE/POD", (*history.History).OfPod)
}

func deviceCommand(t *tree) *cobra.Command {
	q := inquiry{tree: t}
	var all bool
	cmd := q.ask(&cobra.Command{
		Use:   "device ADDRESS",
		Short: "Show which claim has a function, or had it last; with --history all earlier claims",
		Long: "device shows the last tenancy of a function from the ledger, or all of them: the VMs, the isolation, the resets.\n" +
			"\n" +
			inquiryExitCodes,
		Example: "  kata-vfio-audit device 0000:3b:00.0 --history",
		Args:    oneArgument("ADDRESS"),
	}, func(args []string) (reply, error) {
		a, err := pci.ParseAddress(args[0])
		if err != nil {
			return nil, command.Usagef("%w", err)
		}
		return func(h *history.History, s history.Verification) (*evidence.Document, error) {
			found := h.OfDevice(a)
			if n := len(found); n > 0 && !all {
				found = found[n-1:]
			}
			return evidence.About("function "+args[0], h, found, s), nil
		}, nil
	})
	cmd.Flags().BoolVar(&all, "history", false, "all tenancies, the first to the last")
	return cmd
}

func whoCommand(t *tree) *cobra.Command {
	q := inquiry{tree: t}
	var at string
	cmd := q.ask(&cobra.Command{
		Use:   "who [--at TIME]",
		Short: "Show which claim had which function at a moment",
		Long: "who lists from the ledger every function that a claim had at a moment.\n" +
			"\n" +
			inquiryExitCodes,
		Example: "  kata-vfio-audit who --at 2026-11-22T08:30:00Z",
		Args:    command.NoArgs,
	}, func([]string) (reply, error) {
		when, err := momentOf(at, time.Now().UTC())
		if err != nil {
			return nil, err
		}
		return func(h *history.History, s history.Verification) (*evidence.Document, error) {
			return evidence.At("who had a function at "+when.Format(time.RFC3339), h, when, s), nil
		}, nil
	})
	cmd.Flags().StringVar(&at, "at", "", "the moment, RFC 3339, not in the future (default: now)")
	return cmd
}

// skew is how far a node's clock may be ahead of the one here.
const skew = 2 * time.Minute

// momentOf reads a moment that the ledger can know of; now for none.
func momentOf(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return now, nil
	}
	when, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, command.Usagef("--at %q: want a time such as 2026-11-22T08:30:00Z", text)
	}
	if when.After(now.Add(skew)) {
		return time.Time{}, command.Usagef("--at %s is in the future: it is now %s", text, now.Format(time.RFC3339))
	}
	return when, nil
}

// oneArgument wants exactly one, and says which.
func oneArgument(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			return command.Usagef("%s wants one %s; see `%s --help`", cmd.CommandPath(), what, cmd.CommandPath())
		}
		return nil
	}
}

func verifyCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "verify", Short: "Verify evidence offline", Args: command.NoSubcommand, RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	var key string
	bundle := &cobra.Command{
		Use:   "bundle FILE",
		Short: "Verify a bundle of evidence, without the node and its ledger",
		Long: "verify bundle checks that each event of a bundle is in a ledger whose head the node's key has signed, and that the\n" +
			"events support the tenancies and neighbours that the bundle states. It proves what the bundle contains, not that\n" +
			"nothing was left out. It says nothing about the time before its first event.\n" +
			"\n" +
			"Exit codes:\n" +
			"  0  all of it is proven\n" +
			"  1  the file could not be read\n" +
			"  2  the command line is wrong\n" +
			"  5  something in it is not proven",
		Args: oneArgument("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return verifyBundle(cmd.InOrStdin(), cmd.OutOrStdout(), args[0], key)
		},
	}
	bundle.Flags().StringVar(&key, "key", "", "the node's public key, from a trusted source; without it the bundle's own key proves only that the bundle is consistent")
	cmd.AddCommand(bundle)
	return cmd
}

func verifyBundle(stdin io.Reader, w io.Writer, file, key string) error {
	data, err := command.ReadArgument(stdin, file, maxAnchors)
	if err != nil {
		return err
	}
	if key, err = keyOf(key); err != nil {
		return err
	}
	v, err := evidence.VerifyBundle(data, key)
	if err != nil {
		return &verdictError{code: exitLedger, text: err.Error()}
	}
	return v.Document().Write(w, "text")
}
