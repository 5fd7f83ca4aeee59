package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kata-vfio/kata-vfio/pkg/cli/command"
	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// showOptions select the events to show.
type showOptions struct {
	claim, pod, device, since, until, format string
	types                                    []string
	filter                                   ledger.Filter
}

// ledgerShowCommand is hidden: `who --events` is the same.
func ledgerShowCommand(h *book) *cobra.Command {
	var o showOptions
	formats := command.Formats{"table", "json", "yaml", "ndjson"}
	cmd := &cobra.Command{
		Use: "show", Hidden: true, Args: command.NoArgs,
		Short: "The same as `kata-vfio-audit who --events`", Long: ledgerExitCodes,
		PreRunE: func(*cobra.Command, []string) error { return errors.Join(formats.Check(o.format), o.resolve()) },
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.run(cmd, h) },
	}
	f := cmd.Flags()
	f.StringVar(&o.claim, "claim", "", "only events of this claim: its UID, its name, or namespace/name")
	f.StringVar(&o.pod, "pod", "", "only events of this pod: its UID, its name, or namespace/name")
	f.StringVar(&o.device, "device", "", "only events of this function, such as 0000:3b:00.0")
	o.flags(cmd, "")
	formats.Flag(cmd, &o.format)
	return cmd
}

// flags adds the flags that select events by more than their object.
func (o *showOptions) flags(cmd *cobra.Command, about string) {
	f := cmd.Flags()
	f.StringVar(&o.since, "since", "", about+"only events since this time: 2026-11-01, 2026-11-01T12:00:00Z, or 24h for 24 hours ago")
	f.StringVar(&o.until, "until", "", about+"only events up to this time")
	f.StringSliceVar(&o.types, "type", nil, about+"only events of these types: "+strings.Join(typeWords(), ", "))
	// The only possible error is an unknown flag.
	_ = cmd.RegisterFlagCompletionFunc("type", cobra.FixedCompletions(typeWords(), cobra.ShellCompDirectiveNoFileComp))
}

// run prints the events of a ledger.
func (o *showOptions) run(cmd *cobra.Command, h *book) error {
	l, err := h.open()
	if err != nil {
		return err
	}
	err = o.show(cmd.OutOrStdout(), cmd.ErrOrStderr(), l.files)
	return errors.Join(l.failed(cmd.Context(), err), warn(cmd.ErrOrStderr(), l.leftOut), l.closer.Close())
}

func typeWords() []string {
	var words []string
	for _, t := range ledger.Types() {
		words = append(words, string(t))
	}
	return words
}

// resolve reads the flags.
func (o *showOptions) resolve() (err error) {
	o.filter.Claim, o.filter.Pod = o.claim, o.pod
	if o.device != "" {
		a, err := pci.ParseAddress(o.device)
		if err != nil {
			return command.Usagef("--device: %w", err)
		}
		o.filter.Device = &a
	}
	for _, t := range o.types {
		if !slices.Contains(typeWords(), t) {
			return command.Usagef("--type %q: want one of %s", t, strings.Join(typeWords(), ", "))
		}
		o.filter.Types = append(o.filter.Types, ledger.Type(t))
	}
	if o.filter.Since, err = moment("since", o.since, time.Now()); err != nil {
		return err
	}
	o.filter.Until, err = moment("until", o.until, time.Now())
	return err
}

// moment reads a point in time: a day (in UTC), a time, or how long ago.
func moment(flag, text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05", time.DateOnly} {
		if t, err := time.Parse(layout, text); err == nil {
			return t, nil
		}
	}
	if ago, err := time.ParseDuration(text); err == nil {
		return now.Add(-ago), nil
	}
	return time.Time{}, command.Usagef("--%s %q: want a time such as 2026-11-01 or 2026-11-01T12:00:00Z, or a duration such as 24h for 24 hours ago", flag, text)
}

// show prints the events that the filter selects. It reports lines that are not events, and prints the rest.
func (o *showOptions) show(w, warnings io.Writer, fsys fs.FS) error {
	// Without the names, a filter by the name of a claim or pod selects nothing of a ledger with pseudonyms. UIDs still work.
	if names, err := ledger.ReadPseudonyms(fsys); err == nil {
		o.filter.Names = names
	}
	p := newPrinter(w, o.format)
	for e, err := range ledger.Events(fsys) {
		// One damaged line must not hide the others. Only verify judges.
		if _, damaged := errors.AsType[*ledger.DamagedError](err); damaged {
			fmt.Fprintf(warnings, "warning: %s; see `kata-vfio-audit ledger verify`\n", output.Visible(err.Error()))
			continue
		}
		if err != nil {
			return err
		}
		if !o.filter.Match(e.Event) {
			continue
		}
		if err := p.event(&e); err != nil {
			return fmt.Errorf("write events: %w", err)
		}
	}
	return p.end()
}

// A printer writes events.
type printer interface {
	event(*ledger.Entry) error
	end() error
}

func newPrinter(w io.Writer, format string) printer {
	switch format {
	case "json", "yaml":
		return &documentPrinter{w: w, format: format, events: []json.RawMessage{}}
	case "ndjson":
		return linePrinter{w}
	}
	return &tablePrinter{w, [][]string{{"SEQ", "TIME", "EVENT", "DEVICE", "CLAIM", "VM", "WHAT"}}}
}

// linePrinter writes each line as it is in the ledger.
type linePrinter struct{ w io.Writer }

func (p linePrinter) event(e *ledger.Entry) error {
	_, err := p.w.Write(append(bytes.Clone(e.Raw), '\n'))
	return err
}

func (linePrinter) end() error { return nil }

// documentPrinter writes one document.
type documentPrinter struct {
	w      io.Writer
	format string
	events []json.RawMessage
}

func (p *documentPrinter) event(e *ledger.Entry) error {
	p.events = append(p.events, bytes.Clone(e.Raw))
	return nil
}

func (p *documentPrinter) end() error {
	_, err := output.Document(p.w, p.format, "events", map[string]any{"events": p.events})
	return err
}

// tablePrinter writes a row for each event.
type tablePrinter struct {
	w    io.Writer
	rows [][]string
}

func (p *tablePrinter) event(entry *ledger.Entry) error {
	e := entry.Event
	kind := string(e.Type)
	if e.Late {
		kind += " (late)"
	}
	cells := []string{
		strconv.FormatInt(e.Seq, 10), e.Time.UTC().Format("2006-01-02 15:04:05"), kind, listAddresses(e), claimWords(e.Claim), vmWords(e.VM), whatWords(e),
	}
	for i := range cells {
		cells[i] = cmp.Or(cells[i], "-")
	}
	p.rows = append(p.rows, cells)
	return nil
}

func (p *tablePrinter) end() error {
	_, err := io.WriteString(p.w, strings.Join(output.Columns(p.rows, output.TableWidth(p.w), "VM", "CLAIM"), "\n")+"\n")
	return err
}

func listAddresses(e *ledger.Event) string {
	var words []string
	for _, d := range e.Devices {
		words = append(words, d.Address.String())
	}
	return strings.Join(words, ",")
}

func claimWords(c *ledger.Claim) string {
	switch {
	case c == nil:
		return ""
	case c.Name == "":
		return c.UID
	}
	return c.Namespace + "/" + c.Name
}

func vmWords(vm *ledger.VM) string {
	if vm == nil {
		return ""
	}
	id := vm.Sandbox[:min(len(vm.Sandbox), 12)]
	if vm.PID != 0 {
		id += fmt.Sprintf(" (pid %d)", vm.PID)
	}
	return id
}

// whatWords describes the other fields in words.
func whatWords(e *ledger.Event) string {
	var words []string
	if e.Result != ledger.OK {
		words = append(words, string(e.Result))
	}
	for _, d := range e.Devices {
		if e.Type == ledger.Bind && d.DriverBefore != nil && d.DriverAfter != nil {
			words = append(words, fmt.Sprintf("%s -> %s", orNone(*d.DriverBefore), orNone(*d.DriverAfter)))
		}
		for _, set := range facts.ProvidedWords(d.Provided) {
			if !slices.Contains(words, set) { // the GPUs of a partition have the same one
				words = append(words, set)
			}
		}
		if d.Isolation != nil && !d.Isolation.Isolated {
			words = append(words, "not isolated")
		}
	}
	if r := e.Reset; r != nil {
		words = append(words, fmt.Sprintf("%s, %d ms", r.Method, r.Milliseconds))
		if r.Match {
			words = append(words, isolation.Proven)
		}
	}
	if s := e.Sanitize; s != nil {
		words = append(words, fmt.Sprintf("%s by %s (%s)", s.Verdict, s.Profile, s.Image))
		words = append(words, s.Changes...)
	}
	words = append(words, strings.Join(e.Codes, " "), e.Reason)
	return strings.Join(slices.DeleteFunc(words, func(s string) bool { return s == "" }), "; ")
}

func orNone(driver string) string {
	if driver == "" {
		return "no driver"
	}
	return driver
}
