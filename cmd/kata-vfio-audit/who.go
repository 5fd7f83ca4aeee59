package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kata-vfio/kata-vfio/pkg/audit/report"
	"github.com/kata-vfio/kata-vfio/pkg/cli/command"
	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// inquiry is a question to the ledger. Its filters are pod, claim, device, near and at; without any it asks about now.
type inquiry struct {
	book                         book
	pod, claim, device, near, at string
	// history asks for all tenancies of the device, not the last one only.
	history bool
	// key and anchors verify the ledger.
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

func whoCommand(t *tree) *cobra.Command {
	q := inquiry{book: book{tree: t}}
	var o showOptions
	var events bool
	cmd := &cobra.Command{
		Use:   "who",
		Short: "Show which claims had which functions, in which VM, how isolated and how reset",
		Long: "who shows the tenancies on a node from its ledger: function, pod and claim, time, VM, isolation, and the resets\n" +
			"before and after. Without a filter it shows the functions that claims have now. Filters are combined. Use a UID if a\n" +
			"pod's or claim's name was used more than once.\n" +
			"\n" +
			"--events prints the ledger's events instead, the oldest first: as a table, and with -o ndjson each line as stored. It\n" +
			"does not verify them: use `ledger verify`. If the ledger has pseudonyms and the key is beside it, you can search by\n" +
			"name.\n" +
			"\n" +
			inquiryExitCodes,
		Example: "  kata-vfio-audit who --pod team-a/train -o html --file train.html --bundle train.bundle.json\n" +
			"  kata-vfio-audit who --device 0000:3b:00.0 --history\n" +
			"  kata-vfio-audit who --at 2026-11-22T08:30:00Z\n" +
			"  kata-vfio-audit who --events --claim team-a/gpu -o ndjson | jq -r 'select(.type==\"reset\").reset.ms'",
		Args: command.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
	}
	formats := append(command.Formats(report.EvidenceFormats()), "ndjson")
	q.flags(cmd, formats)
	f := cmd.Flags()
	f.StringVar(&q.pod, "pod", "", "tenancies of this pod: NAMESPACE/POD, or its UID")
	f.StringVar(&q.claim, "claim", "", "tenancies of this claim: NAMESPACE/CLAIM, or its UID")
	f.StringVar(&q.device, "device", "", "tenancies of this function, such as 0000:3b:00.0; alone: the last one")
	f.StringVar(&q.near, "near", "", "tenancies of this pod, and those of other tenants on the node at the same time, the nearest first")
	q.historyFlag(cmd)
	q.atFlag(cmd)
	f.BoolVar(&events, "events", false, "print the events of --pod, --claim and --device, not tenancies")
	o.flags(cmd, "with --events: ")
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		if err := errors.Join(formats.Check(q.format), misplaced(cmd, events), q.incomplete(cmd)); err != nil || !events {
			return err
		}
		o.claim, o.pod, o.device, o.format = q.claim, q.pod, q.device, q.format
		return o.resolve()
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if events {
			return o.run(cmd, &q.book)
		}
		return q.run(cmd)
	}
	return cmd
}

// misplaced returns the error of a flag, or of an output format, that is for tenancies or for events only.
func misplaced(cmd *cobra.Command, events bool) error {
	flags, format, other := []string{"since", "until", "type"}, "ndjson", "needs --events"
	if events {
		flags, format, other = []string{"near", "history", "at", "key", "anchor", "file", "bundle"}, "html", "can't be combined with --events"
	}
	for _, name := range flags {
		if cmd.Flags().Changed(name) {
			return command.Usagef("--%s %s", name, other)
		}
	}
	if cmd.Flag("output").Value.String() == format {
		return command.Usagef("--output %s %s", format, other)
	}
	return nil
}

// incomplete returns the error of a filter without a value, which would ask about all tenants, and of --history alone.
func (q *inquiry) incomplete(cmd *cobra.Command) error {
	for _, name := range []string{"pod", "claim", "device", "near", "at"} {
		if f := cmd.Flag(name); f.Changed && f.Value.String() == "" {
			return command.Usagef("--%s has no value", name)
		}
	}
	if q.history && q.device == "" {
		return command.Usagef("--history needs --device")
	}
	return nil
}

// flags adds the flags that all questions have.
func (q *inquiry) flags(cmd *cobra.Command, formats command.Formats) {
	formats.Flag(cmd, &q.format)
	f := cmd.Flags()
	f.StringVar(&q.book.dir, "dir", "", "the ledger's directory (default: "+ledger.DefaultDir+" below --root)")
	f.StringVar(&q.key, "key", "", "the node's public key, or a file that contains it, from a trusted source; default: the one beside the ledger")
	f.StringArrayVar(&q.anchors, "anchor", nil, "file with checkpoints from off the node (a claim's status, Events, a log); - for standard input; may be repeated")
	f.StringVar(&q.file, "file", "", "write to this file instead of standard output")
	f.StringVar(&q.bundle, "bundle", "", "also write a bundle to this `file` that `kata-vfio-audit verify bundle` checks offline")
}

func (q *inquiry) historyFlag(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&q.history, "history", false, "with --device: all its tenancies, the first to the last")
}

func (q *inquiry) atFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&q.at, "at", "", "tenancies at this moment, RFC 3339, not in the future (default: now, unless there is another filter)")
}

// former returns the hidden commands that each asked one question, before `who` had filters. Their output is the same.
func former(t *tree) []*cobra.Command {
	var commands []*cobra.Command
	for _, f := range []struct {
		name, argument string
		filter         func(*inquiry) *string
	}{
		{"pod", "NAMESPACE/POD", func(q *inquiry) *string { return &q.pod }},
		{"claim", "NAMESPACE/CLAIM", func(q *inquiry) *string { return &q.claim }},
		{"neighbours", "NAMESPACE/POD", func(q *inquiry) *string { return &q.near }},
		{"device", "ADDRESS", func(q *inquiry) *string { return &q.device }},
	} {
		q := inquiry{book: book{tree: t}}
		flag := "--" + strings.Replace(f.name, "neighbours", "near", 1)
		formats := command.Formats(report.EvidenceFormats())
		cmd := &cobra.Command{
			Use: f.name + " " + f.argument, Hidden: true, Args: oneArgument(f.argument),
			Short: "The same as `kata-vfio-audit who " + flag + " " + f.argument + "`", Long: inquiryExitCodes,
			PreRunE: func(*cobra.Command, []string) error { return formats.Check(q.format) },
			RunE: func(cmd *cobra.Command, args []string) error {
				if args[0] == "" {
					return command.Usagef("%s %q: want %s", f.name, args[0], f.argument)
				}
				*f.filter(&q) = args[0]
				return q.run(cmd)
			},
		}
		q.flags(cmd, formats)
		if f.name == "device" {
			q.historyFlag(cmd)
		}
		commands = append(commands, cmd)
	}
	return commands
}

// selected are the tenancies that an answer is about, and the question in words.
type selected struct {
	tenancies []*facts.PastTenancy
	question  string
}

// filter narrows a selection down.
type filter func(*facts.History, facts.Verification, *selected) error

// filters reads the filters, before the ledger is read. when is nil for a question about any time.
func (q *inquiry) filters(now time.Time) (all []filter, when *time.Time, err error) {
	for _, named := range []struct {
		kind, name, want string
		pick             func(*facts.History, string) []*facts.PastTenancy
	}{
		{"pod", q.pod, "NAMESPACE/POD", (*facts.History).OfPod},
		{"pod", q.near, "NAMESPACE/POD", (*facts.History).OfPod},
		{"claim", q.claim, "NAMESPACE/CLAIM", (*facts.History).OfClaim},
	} {
		if named.name == "" {
			continue
		}
		f, err := ofName(named.kind, named.name, named.want, named.pick)
		if err != nil {
			return nil, nil, err
		}
		all = append(all, f)
	}
	if q.device != "" {
		f, err := ofDevice(q.device, q.history || q.at != "" || len(all) > 0)
		if err != nil {
			return nil, nil, err
		}
		all = append(all, f)
	}
	if q.at == "" && len(all) > 0 {
		return all, nil, nil
	}
	moment, err := parseMoment(q.at, now)
	return all, &moment, err
}

// uid matches UIDs as the API server writes them, and the kubelet those of static pods.
var uid = regexp.MustCompile(`^([0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}|[0-9a-f]{32})$`)

// ofName returns the filter of a pod or a claim.
func ofName(kind, name, want string, pick func(*facts.History, string) []*facts.PastTenancy) (filter, error) {
	if namespace, rest, ok := strings.Cut(name, "/"); ok && (namespace == "" || rest == "" || strings.Contains(rest, "/")) {
		return nil, command.Usagef("%s %q: want %s, or a UID", kind, name, want)
	}
	return func(h *facts.History, v facts.Verification, s *selected) error {
		found := pick(h, name)
		// A claim may be named without its namespace, and a correct name may be in no ledger.
		if kind == "pod" && len(found) == 0 && v.Sound && !strings.Contains(name, "/") && !uid.MatchString(name) {
			return command.Usagef("%s %q: want %s; the ledger has no such UID", kind, name, want)
		}
		s.keep(kind+" "+name, found)
		return nil
	}, nil
}

// ofDevice returns the filter of a function: all its tenancies, or the last one.
func ofDevice(address string, all bool) (filter, error) {
	a, err := pci.ParseAddress(address)
	if err != nil {
		return nil, command.Usagef("%w", err)
	}
	return func(h *facts.History, _ facts.Verification, s *selected) error {
		found := h.OfDevice(a)
		if n := len(found); n > 0 && !all {
			found = found[n-1:]
		}
		s.keep("function "+address, found)
		return nil
	}, nil
}

// keep drops the tenancies that a filter did not find.
func (s *selected) keep(what string, found []*facts.PastTenancy) {
	if s.question == "" {
		s.question, s.tenancies = what, found
		return
	}
	s.question += ", " + what
	s.tenancies = slices.DeleteFunc(s.tenancies, func(t *facts.PastTenancy) bool { return !slices.Contains(found, t) })
}

// run reads the ledger, asks, and prints.
func (q *inquiry) run(cmd *cobra.Command) error {
	filters, when, err := q.filters(time.Now().UTC())
	if err != nil {
		return err
	}
	return q.answer(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout(), func(h *facts.History, v facts.Verification) (*report.Evidence, error) {
		var s selected
		for _, f := range filters {
			if err := f(h, v, &s); err != nil {
				return nil, err
			}
		}
		if when == nil {
			return report.About(s.question, h, s.tenancies, v), nil
		}
		if at := " at " + when.Format(time.RFC3339); s.question == "" {
			s.keep("who had a function"+at, h.At(*when))
		} else {
			s.question += at
			s.tenancies = slices.DeleteFunc(s.tenancies, func(t *facts.PastTenancy) bool { return !t.At(*when) })
		}
		return report.At(s.question, h, s.tenancies, *when, v), nil
	})
}

// answer verifies the ledger, and prints the result of reply.
func (q *inquiry) answer(ctx context.Context, stdin io.Reader, stdout io.Writer, reply func(*facts.History, facts.Verification) (*report.Evidence, error)) error {
	key, err := readKey(q.key)
	if err != nil {
		return err
	}
	anchors, err := readAnchors(stdin, q.anchors)
	if err != nil {
		return err
	}
	l, err := q.book.open()
	if err != nil {
		return err
	}
	defer func() { _ = l.closer.Close() }()
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
		if err := q.writeBundle(l.files, d); err != nil {
			return err
		}
	}
	if !standing.Sound {
		return &verdictError{code: exitLedger, text: "the ledger is not sound: " + output.Count(len(standing.Problems), "problem")}
	}
	return nil
}

func (q *inquiry) writeBundle(dir fs.FS, d *report.Evidence) error {
	b, err := report.NewBundle(dir, d)
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

// skew is the time by which a node's clock may be ahead of the local one.
const skew = 2 * time.Minute

// parseMoment reads a moment that the ledger can contain; now for none.
func parseMoment(text string, now time.Time) (time.Time, error) {
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

// oneArgument requires exactly one argument, and names it in the error.
func oneArgument(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			return command.Usagef("%s wants one %s; see `%s --help`", cmd.CommandPath(), what, cmd.CommandPath())
		}
		return nil
	}
}
