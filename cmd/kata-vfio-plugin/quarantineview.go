package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/bind"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/ledger/writer"
	"github.com/kata-vfio/kata-vfio/pkg/maintain"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// quarantine is one quarantine with its evidence. Its JSON names are stable.
type quarantine struct {
	UID       string `json:"uid"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	// Since is the time when the quarantine began; the first one, if resets were tried again.
	Since   string       `json:"since,omitempty"`
	Reason  string       `json:"reason"`
	Devices []deviceView `json:"devices"`
	// Functions are all functions that stay on VFIO because of it.
	Functions []pci.Address `json:"functions"`
	// MovedTo are the present addresses of functions that have moved since, by those in Functions.
	MovedTo map[pci.Address]pci.Address `json:"movedTo,omitempty"`
	// Tried are the resets since the claim was prepared; NoHistory says why they are unknown.
	Tried     []attempt `json:"tried"`
	NoHistory string    `json:"noHistory,omitempty"`
	// Differs and Now are the differences from the state before the tenant, after the last reset and now. DiffersUnknown and
	// NowUnknown say why they are unknown.
	Differs        []difference `json:"differs,omitempty"`
	DiffersUnknown string       `json:"differsUnknown,omitempty"`
	Now            []difference `json:"now,omitempty"`
	NowUnknown     string       `json:"nowUnknown,omitempty"`

	record    *journal.Record
	locations locations
}

// attempt is a reset that was tried.
type attempt struct {
	Time         time.Time     `json:"time"`
	Method       string        `json:"method"`
	Set          []pci.Address `json:"set"`
	Milliseconds int64         `json:"milliseconds"`
	OK           bool          `json:"ok"`
	Reason       string        `json:"reason,omitempty"`
}

// difference is a difference of one function.
type difference struct {
	Address pci.Address `json:"address"`
	isolation.Difference
}

// quarantined returns the records of the node's quarantines, and the errors of records that can't be read.
func (o *options) quarantined() (all []*journal.Record, problems, err error) {
	store, err := o.records()
	if err != nil {
		return nil, nil, err
	}
	records, errs := store.List()
	for _, rec := range records {
		if rec.State == journal.Quarantined {
			all = append(all, rec)
		}
	}
	for i := range errs {
		errs[i] = readable(errs[i])
	}
	return all, errors.Join(errs...), nil
}

// history returns the ledger for reading. It reads the tenancies of the claims in one pass, because a ledger may have a gibibyte.
func (o *options) history(ctx context.Context, uids ...string) *writer.Writer {
	w := writer.New(writer.Config{Dir: o.node.LedgerDir()})
	_, _ = w.Recall(ctx, uids) // without it, Tenancy reads the ledger itself, and returns the error
	return w
}

func (o *options) quarantineNamed(ctx context.Context, name string) (*quarantine, error) {
	snap := o.snapshot(ctx)
	rec, err := o.recordQuarantined(name, snap)
	if err != nil {
		return nil, err
	}
	return newQuarantine(ctx, o.history(ctx, rec.ID()), rec, snap), nil
}

// newQuarantine joins a record with the ledger's events of its claim, and with the places of its functions in a snapshot.
func newQuarantine(ctx context.Context, history *writer.Writer, rec *journal.Record, snap *device.Snapshot) *quarantine {
	v, at := newView(rec), locate(rec, snap)
	q := &quarantine{
		UID: v.UID, Namespace: v.Namespace, Name: v.Name, Since: v.Since, Reason: v.Reason, Devices: v.Devices,
		Functions: rec.Plan.Addresses(), MovedTo: at.moved, Tried: []attempt{}, record: rec, locations: at,
	}
	events, err := history.Tenancy(ctx, rec.ID())
	if err != nil {
		q.NoHistory = err.Error()
	} else if len(events) == 0 {
		q.NoHistory = "the ledger has no events of this claim"
	}
	q.NowUnknown = noBaseline(rec, events)
	q.DiffersUnknown = cmp.Or(q.NoHistory, q.NowUnknown, "no reset has been tried")
	first := true
	for i := range events {
		e := &events[i]
		switch {
		// An operator ended the quarantine, and a later one began again: the last beginning counts.
		case e.Type == ledger.Release:
			first = true
		case e.Type == ledger.Quarantine && first:
			q.Since, first = e.Time.UTC().Format(time.RFC3339), false
		case e.Type == ledger.Reset && e.Reset != nil:
			q.enter(e)
		}
	}
	return q
}

// noBaseline returns why a quarantine's functions can't be compared with an earlier state.
func noBaseline(rec *journal.Record, events []ledger.Event) string {
	switch {
	case len(rec.Baseline) == 0:
		return "its record has no measurement from before its tenant"
	case len(events) > 0 && events[0].BootID != rec.BootID:
		return "the node was restarted, and the record has only what was measured after that"
	}
	return ""
}

// enter adds a reset, with the differences that it left.
func (q *quarantine) enter(e *ledger.Event) {
	r := e.Reset
	q.Tried = append(q.Tried, attempt{Time: e.Time.UTC(), Method: r.Method, Set: r.Set, Milliseconds: r.Milliseconds, OK: r.OK, Reason: e.Reason})
	q.Differs, q.DiffersUnknown = nil, q.NowUnknown
	switch {
	case q.NowUnknown != "": // there is no earlier state
	case len(r.After) == 0:
		q.DiffersUnknown = "the last reset left nothing that could be measured"
	default:
		q.Differs = differences(q.record.Baseline, r.After)
	}
}

func differences(baseline, after []isolation.Fingerprint) []difference {
	var all []difference
	for _, fp := range after {
		for _, base := range baseline {
			if base.Address != fp.Address {
				continue
			}
			for _, d := range isolation.Differences(base, fp) {
				all = append(all, difference{fp.Address, d})
			}
		}
	}
	return all
}

// lookNow compares the functions' current state, wherever they are now, with the state before their tenant. A state that
// can't be read counts as a difference.
func (o *options) lookNow(q *quarantine) {
	if q.NowUnknown != "" {
		return
	}
	fs, err := sysfs.Open(o.node.Root)
	if err != nil {
		q.NowUnknown = err.Error()
		return
	}
	defer func() { _ = fs.Close() }()
	for _, base := range q.record.Baseline {
		now, err := q.fingerprint(fs, base.Address)
		if err != nil {
			q.Now = append(q.Now, difference{base.Address, isolation.Difference{What: "configuration space", Before: "readable", After: err.Error()}})
			continue
		}
		q.Now = append(q.Now, differences(q.record.Baseline, []isolation.Fingerprint{now})...)
	}
}

// fingerprint reads the present fingerprint of the function with a recorded address.
func (q *quarantine) fingerprint(fs *sysfs.FS, a pci.Address) (isolation.Fingerprint, error) {
	if slices.Contains(q.locations.gone, a) {
		return isolation.Fingerprint{}, sysfs.ErrNoFunction
	}
	now, err := bind.Fingerprint(fs, q.locations.now(a))
	now.Address = a
	return now, err
}

// printQuarantines prints one row for each quarantine, and for each device whose sanitizing stage failed. Without any, nothing is
// quarantined only if the whole journal could be read.
func printQuarantines(w io.Writer, format string, all []*quarantine, stages []sanitizingView, whole bool) error {
	if done, err := document(w, format, map[string]any{"quarantined": list(all), "stages": list(stages)}); done {
		return err
	}
	if len(all)+len(stages) == 0 {
		text := "Nothing is quarantined."
		if !whole {
			text = "It is unknown what is quarantined: parts of the journal could not be read."
		}
		_, err := fmt.Fprintln(w, text)
		return err
	}
	rows := [][]string{{"DEVICE", "FUNCTIONS", "SINCE", "CLAIM", "TRIED", "WHY"}}
	for _, q := range all {
		rows = append(rows, []string{q.names(), q.locations.joined(q.Functions), orDash(q.Since), q.record.Plan.Claim.String(), q.tried(), joinLines(q.Reason)})
	}
	for i := range stages {
		v := &stages[i]
		rows = append(rows, []string{"-", v.Address.String(), orDash(v.Failed.Stage.Since), v.after(), "stage " + orDash(v.Failed.Stage.Profile), v.failedWords()})
	}
	return table(w, rows)
}

func (q *quarantine) names() string {
	words := make([]string, len(q.Devices))
	for i := range q.Devices {
		words[i] = q.Devices[i].published()
	}
	return strings.Join(slices.Compact(words), ", ")
}

// tried summarizes the resets: "flr x3".
func (q *quarantine) tried() string {
	if q.NoHistory != "" {
		return "not known"
	}
	count, order := map[string]int{}, []string{}
	for i := range q.Tried {
		if m := q.Tried[i].Method; count[m] == 0 {
			order = append(order, m)
		}
		count[q.Tried[i].Method]++
	}
	words := make([]string, len(order))
	for i, m := range order {
		words[i] = fmt.Sprintf("%s x%d", m, count[m])
	}
	return orDash(strings.Join(words, ", "))
}

// joinLines returns a text for a table's cell.
func joinLines(text string) string { return strings.NewReplacer("\n", "; ", "\t", " ").Replace(text) }

// printQuarantine prints one quarantine with its evidence.
func printQuarantine(w io.Writer, format string, q *quarantine) error {
	if done, err := document(w, format, q); done {
		return err
	}
	fmt.Fprintf(w, "%s: quarantined since %s, after claim %s\n", q.names(), orDash(q.Since), q.record.Plan.Claim)
	fmt.Fprintf(w, "  why        %s\n  functions  %s\n", joinLines(q.Reason), q.locations.joined(q.Functions))
	fmt.Fprintln(w, "\nTried:")
	if q.NoHistory != "" {
		fmt.Fprintln(w, "  not known:", q.NoHistory)
	}
	for i := range q.Tried {
		t := &q.Tried[i]
		outcome := isolation.Proven
		if !t.OK {
			outcome = joinLines(t.Reason)
		}
		fmt.Fprintf(w, "  %s  %s of %s in %d ms: %s\n", t.Time.Format(time.RFC3339), t.Method, joined(t.Set), t.Milliseconds, outcome)
	}
	printDifferences(w, "after the last reset", q.Differs, q.DiffersUnknown)
	printDifferences(w, "as it is now", q.Now, q.NowUnknown)
	_, err := fmt.Fprint(w, "\nWhat to do:\n", waysOut(q))
	return err
}

func printDifferences(w io.Writer, when string, all []difference, unknown string) {
	fmt.Fprintf(w, "\nOther than before its tenant, %s:\n", when)
	switch {
	case unknown != "":
		fmt.Fprintln(w, "  not known:", joinLines(unknown))
	case len(all) == 0:
		fmt.Fprintln(w, "  nothing that was recorded")
	}
	for _, d := range all {
		fmt.Fprintf(w, "  %s  %s: %.40s, was %.40s\n", d.Address, d.What, d.After, d.Before)
	}
}

// waysOut returns the possible actions of an operator, the mildest first.
func waysOut(q *quarantine) string {
	name := q.UID
	if devices := q.record.Plan.Devices; len(devices) > 0 {
		name = q.locations.now(devices[0].Address).String()
	}
	var b strings.Builder
	for i, way := range []string{
		"try the reset again: `kata-vfio-plugin quarantine clear " + name + " --reason TEXT`; the quarantine ends if the registers are as before",
		"if resets keep failing, power-cycle the node (a warm restart does not reset some devices), then try the reset again",
		"keep the device from new claims while you work on it: `kata-vfio-plugin drain " + name + " --reason TEXT`",
		"if you replaced the device or proved it sound by other means, use `clear` with --without-proof; a host driver gets it after a reset, and it is reset before the next claim whose class asks for resets",
	} {
		fmt.Fprintf(&b, "  %d. %s\n", i+1, way)
	}
	return b.String()
}

// printCleared prints the result of clear.
func printCleared(w io.Writer, format string, rec *journal.Record, at *locations, how maintain.Clearance, proofs []isolation.Proof) error {
	v := clearedView{UID: rec.ID(), Proven: len(proofs) > 0, Resets: list(proofs), Reason: how.Reason, By: how.By.String()}
	if done, err := document(w, format, v); done {
		return err
	}
	_, err := fmt.Fprintf(w, "%s: quarantine %s.\n", at.joined(rec.Plan.Addresses()), clearedWords(how, proofs))
	return err
}
