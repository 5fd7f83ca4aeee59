// Package report prints the results of an audit, for people and for machines: a [Document] in many formats, a [Page] in
// HTML, and [Evidence] of the claims that had functions. The HTML files are self-contained: they load nothing from a
// network, which their content security policies also forbid. All of an audit can be read without its script, which only
// filters.
package report

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// Document is an audit to print.
type Document struct {
	*finding.Report
	// Node has the functions and the facts that decide about them, for formats that draw them; nil if there are none. Unread
	// names the facts that could not be read.
	Node   *plan.Node `json:"-"`
	Unread []string   `json:"-"`
	// NotAsked names the organization's rules that the collector of an archive checked, but this audit did not, one sentence each.
	NotAsked []string `json:"-"`
	// Rules are the rules that were checked, by ID.
	Rules []rule.Rule `json:"-"`
	// Tenancies are the present and past tenancies of functions, for formats that show them.
	Tenancies []Tenancy `json:"-"`
	// Ledger is the source of past tenancies; nil if it was not read. Only formats for which [HasHistory] returns true need it.
	Ledger *Ledger `json:"-"`
}

// Options say how to print.
type Options struct {
	// Show is the least severity that is shown, in every format and state; empty shows all. The summary counts the whole
	// report.
	Show rule.Severity
	// FailOn is the least severity whose failures make the run fail, with its exit code; empty for every one. See [finding.Finding.FailsAt].
	FailOn rule.Severity
	// Strict is set if the run also fails for checks that could not tell.
	Strict bool
	Color  bool
	// Width is the width of text for people, in characters; 0 is [output.PageWidth].
	Width int
}

func (o *Options) width() int { return cmp.Or(o.Width, output.PageWidth) }

// Formats returns the names that [Write] knows, the default first.
func Formats() []string {
	return []string{"table", "wide", "html", "json", "yaml", "ndjson", "sarif", "junit", "ocsf", "csv", "md"}
}

// ForPeople reports whether people read the format. They only want to see important findings.
func ForPeople(format string) bool {
	return format == "table" || format == "wide" || format == "md"
}

// HasHistory reports whether a format shows earlier tenants of functions.
func HasHistory(format string) bool { return format == "html" }

// Write writes the document in the format. Text from the node has no effect on a reader's terminal or browser: JSON escapes
// it, all other formats spell it out (package output).
func Write(w io.Writer, d *Document, format string, o Options) error {
	if o.FailOn != "" {
		d = d.judgedAt(o.FailOn)
	}
	d = d.atLeast(o.Show)
	switch format {
	case "table", "wide":
		return writeTable(w, d.visible(), tableStyle{color: o.Color, width: o.width(), wide: format == "wide", hidden: d.hidden(), failOn: o.FailOn})
	case "json":
		return output.JSON(w, "report", d.Report)
	case "yaml":
		return output.YAML(w, "report", d.visible().Report)
	case "ndjson":
		return writeNDJSON(w, d)
	case "sarif":
		return writeSARIF(w, d.visible())
	case "junit":
		return writeJUnit(w, d.visible(), &o)
	case "ocsf":
		return writeOCSF(w, d)
	case "csv":
		return writeCSV(w, d.visible())
	case "md":
		return writeMarkdown(w, d.visible(), o.FailOn)
	case "html":
		return WritePage(w, &Page{Report: d.Report, Inventory: d.inventory(), Rules: d.Rules, Tenancies: d.Tenancies, Ledger: d.Ledger, FailOn: o.FailOn})
	}
	return fmt.Errorf("no such format: %s", format)
}

// inventory judges the functions. This takes long on a large node, and only few formats need it.
func (d *Document) inventory() *audit.Inventory {
	if d.Node == nil {
		return nil
	}
	inv := audit.NewInventory(*d.Node, d.Rules)
	inv.Basis, inv.Unread = d.Basis, d.Unread
	return inv
}

// judgedAt returns the document with the verdict at the severity, so that all formats and the exit code say the same.
func (d *Document) judgedAt(failOn rule.Severity) *Document {
	judged := *d
	judged.Report = d.JudgedAt(failOn)
	return &judged
}

// atLeast returns the document without the findings that are less severe.
func (d *Document) atLeast(show rule.Severity) *Document {
	r := *d.Report
	r.Findings = []finding.Finding{}
	for _, f := range d.Findings {
		if show == "" || f.Severity.Compare(show) <= 0 {
			r.Findings = append(r.Findings, f)
		}
	}
	shown := *d
	shown.Report = &r
	return &shown
}

// hidden returns the number of failures of the report that are not among the findings.
func (d *Document) hidden() int {
	return d.Summary.States[finding.Fail] - len(d.in(finding.Fail))
}

// in returns the findings in a state.
func (d *Document) in(state finding.State) []finding.Finding {
	var found []finding.Finding
	for _, f := range d.Findings {
		if f.State == state {
			found = append(found, f)
		}
	}
	return found
}

// line is a line of NDJSON: a finding with the node that it belongs to.
type line struct {
	Subject finding.Subject `json:"subject"`
	Profile string          `json:"profile"`
	finding.Finding
}

func writeNDJSON(w io.Writer, d *Document) error {
	for _, f := range d.Findings {
		if err := output.JSONLine(w, "finding", line{d.Subject, d.Profile, f}); err != nil {
			return err
		}
	}
	return nil
}

// identities returns a name for each finding that stays the same from one audit to the next, so that readers can recognize
// new findings: a hash of the subject, the rule and the object. Findings that have these in common are numbered.
func (d *Document) identities() []string {
	seen := map[string]int{}
	ids := make([]string, len(d.Findings))
	for i := range d.Findings {
		f := &d.Findings[i]
		key := strings.Join([]string{d.Subject.Kind, d.Subject.Name, f.ID, address(f), f.Object}, "\x00")
		seen[key]++
		sum := sha256.Sum256(fmt.Appendf([]byte(key), "\x00%d", seen[key]))
		ids[i] = hex.EncodeToString(sum[:16])
	}
	return ids
}

// address is the finding's device, empty if it has none.
func address(f *finding.Finding) string {
	if f.Device == nil {
		return ""
	}
	return f.Device.String()
}

// about names the object of a finding.
func about(f *finding.Finding) string {
	switch {
	case f.Device != nil && f.Object != "":
		return f.Device.String() + " " + f.Object
	case f.Device != nil:
		return f.Device.String()
	case f.Object != "":
		return f.Object
	}
	return "node"
}

// addresses returns the blast radius as words.
func addresses(f *finding.Finding) []string {
	words := make([]string, len(f.Devices))
	for i, a := range f.Devices {
		words[i] = a.String()
	}
	return words
}
