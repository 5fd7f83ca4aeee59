package report

import (
	"bytes"
	"crypto/sha256"
	_ "embed" // the page's parts
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/audit"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// Page is the content of an audit page.
type Page struct {
	Report *finding.Report
	// Inventory has the functions; nil if there are none, as for a cluster.
	Inventory *audit.Inventory
	// Rules are the rules that were checked.
	Rules []rule.Rule
	// Tenancies are the known present and past tenancies of functions. Those without an end are present. Of
	// past ones the page shows the latest of each function.
	Tenancies []Tenancy
	// Ledger is the source of past tenancies; nil if no ledger was read.
	Ledger *Ledger
	// FailOn is the least severity whose failures make the run fail; empty for every
	// one.
	FailOn rule.Severity
}

// WritePage writes the page.
func WritePage(w io.Writer, p *Page) error {
	v := newView(p)
	f := &frame{
		Title: v.Verdict.Headline, About: "PCI passthrough isolation", Skip: &link{"findings", "findings"}, Parts: v.parts(),
		Made:   fmt.Sprintf("kata-vfio-audit %s · %s", p.Report.Subject.Version, p.Report.Subject.Time),
		Script: template.JS(script), Body: v, //nolint:gosec // our own file
	}
	f.Title = p.Report.Subject.Label() + ": " + f.Title
	f.Running = p.Report.Subject.Label() + ", " + day(p.Report.Subject.Time)
	return f.write(w, pageTemplate, functions(p.Inventory))
}

// view is the input of the template of the page's body.
type view struct {
	*finding.Report
	Verdict  verdict
	Node     *node
	Sections []pageSection
	Filters  filters
	// Holding are tenants that have functions now. Unnamed is the number of such tenants that are not listed.
	Holding   []tenant
	Unnamed   int
	Timeline  *timeline
	Tenancies tenancyTable
	Ledger    *ledgerView
	Groups    []pageGroup
	Needs     []requirement
	Paper     paper
}

func newView(p *Page) *view {
	past := latest(p.Tenancies, p.Report.Summary.Devices)
	v := &view{Report: p.Report, Ledger: newLedgerView(p.Ledger)}
	if v.Ledger.Unsound() {
		past.doubt = ", by a ledger that does not verify"
	}
	// Tenants get their letters first: all parts of the page use the same ones.
	who := newTenants(past.shown, p.Report.Findings)
	v.Holding, v.Unnamed = who.holding()
	items := newItems(p.Report.Findings, p.Rules, who)
	v.Verdict = newVerdict(p, items)
	v.Sections, v.Filters = newSections(items), newFilters(items, who)
	if p.Inventory != nil {
		v.Node = newNode(p, items, who, past)
	}
	v.Timeline = newTimeline(past.shown, parseTime(p.Report.Subject.Time), who)
	v.Tenancies = newTenancyTable(past, who)
	v.Groups = newRuleGroups(p.Rules, items)
	v.Needs = listNeeds(p.Report.Findings)
	v.Paper = newPaper(items)
	return v
}

// parts returns the links in the page's head.
func (v *view) parts() []link {
	list := []link{{"verdict", "Verdict"}}
	if v.Node != nil {
		list = append(list, link{"topology", "Topology"})
		if v.Node.Fabric != nil {
			list = append(list, link{"partitions", "Partitions"})
		}
	}
	list = append(list, link{"findings", "Findings"})
	if v.Node != nil {
		list = append(list, link{"devices", "Devices"})
	}
	return append(list, link{"tenancies", "Tenancies"}, link{"rules", "Rules"}, link{"reading", "Method and limits"})
}

// Answer is a ledger's answer to a question about past tenancies.
type Answer struct {
	// Question is the question, and Verdict the answer in one line.
	Question, Verdict string
	// Node is the node whose ledger answers.
	Node         string
	Tenancies    []*facts.PastTenancy
	Neighbors    []facts.Neighbor
	Refusals     []facts.Refusal
	Verification facts.Verification
}

// state returns the state that the answer's sign shows. It is Fail if the ledger is not sound, and NotApplicable without tenancies.
// It is Unknown if a function was released without a proof, is quarantined, or if the ledger leaves doubts.
func (a *Answer) state() finding.State {
	doubtful := func(t *facts.PastTenancy) bool { return t.Unproven || t.Quarantined != "" || len(t.Doubts) > 0 }
	switch {
	case !a.Verification.Sound:
		return finding.Fail
	case len(a.Tenancies) == 0:
		return finding.NotApplicable
	case slices.ContainsFunc(a.Tenancies, doubtful):
		return finding.Unknown
	}
	return finding.Pass
}

// WriteAnswer writes the answer as a page in the style of [WritePage]. The page has no script.
func WriteAnswer(w io.Writer, a *Answer) error {
	v := newAnswerView(a)
	f := &frame{Title: a.Question, About: "Who had which device", Parts: v.parts(), Made: "by the node’s ledger; times are UTC", Running: a.Question, Body: v}
	return f.write(w, answerTemplate, functions(nil))
}

// answerView is the input of the template of the page's body.
type answerView struct {
	Question, Verdict, Node string
	State                   finding.State
	Verification            verification
	Timeline                *timeline
	Tenancies               []namedTenancy
	Neighbors               []facts.Neighbor
	Refusals                refusalTable
}

func newAnswerView(a *Answer) *answerView {
	v := &answerView{
		Question: a.Question, Verdict: a.Verdict, Node: a.Node, State: a.state(),
		Verification: newVerification(a.Verification), Neighbors: a.Neighbors, Refusals: newRefusalTable(a.Refusals),
	}
	list := make([]Tenancy, len(a.Tenancies))
	for i, t := range a.Tenancies {
		list[i] = NewTenancy(t)
	}
	who := newTenants(list, nil)
	v.Timeline = newTimeline(sortedTenancies(list), time.Time{}, who)
	for i := range list {
		v.Tenancies = append(v.Tenancies, namedTenancy{&list[i], who.named(list[i].Tenant)})
	}
	return v
}

// parts returns the links in the page's head.
func (v *answerView) parts() []link {
	var list []link
	for _, part := range []struct {
		there bool
		link  link
	}{
		{v.Timeline != nil, link{"timeline", "Timeline"}},
		{len(v.Tenancies) > 0, link{"tenancies", "Tenancies"}},
		{len(v.Neighbors) > 0, link{"neighbours", "Neighbors"}},
		{len(v.Refusals.Rows) > 0, link{"refusals", "Refused"}},
		{true, link{"ledger", "The ledger"}},
	} {
		if part.there {
			list = append(list, part.link)
		}
	}
	return list
}

// frame is the input of the template around all pages' bodies. The body is a template that defines "body".
type frame struct {
	Title string
	// About is the page's subject, beside the program's name. Made, below it, is the page's program and time.
	About, Made string
	// Skip is the link that jumps over the page's head. Parts are the links in the head.
	Skip  *link
	Parts []link
	// Script is the page's own; empty if there is none.
	Script template.JS
	// Running is the page's subject at the foot of each sheet of paper.
	Running string
	Body    any
}

// link leads to a part of the page.
type link struct{ Anchor, Text string }

// Style is the one style sheet of all pages, with the foot of the sheets.
func (f *frame) Style() template.CSS {
	return template.CSS(styleSheet + audit.DrawingStyle() + paperFoot(f.Running)) //nolint:gosec // our own files, and an escaped name
}

// Policy forbids everything that the page does not need. It permits the page's own style sheet and script by
// their hashes, and nothing else.
func (f *frame) Policy() string {
	scripts := "'none'"
	if f.Script != "" {
		scripts = "'" + hash(string(f.Script)) + "'"
	}
	return fmt.Sprintf("default-src 'none'; style-src '%s'; script-src %s; base-uri 'none'; form-action 'none'", hash(string(f.Style())), scripts)
}

func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

// write writes the page with the body that the template's text defines. Text from the node is escaped: markup
// has no effect in a browser, and control characters are spelled out.
func (f *frame) write(w io.Writer, body string, words template.FuncMap) error {
	t := template.New("page").Funcs(words)
	if _, err := t.Parse(strings.Join([]string{compact(frameTemplate), compact(partsTemplate), compact(body)}, "\n")); err != nil {
		return fmt.Errorf("parse the page's template: %w", err)
	}
	var b bytes.Buffer
	if err := t.Execute(&b, f); err != nil {
		return fmt.Errorf("fill in the page: %w", err)
	}
	if _, err := w.Write(spellOut(b.Bytes())); err != nil {
		return fmt.Errorf("write page: %w", err)
	}
	return nil
}

// spare matches the parts of a template that only its readers need: indentation, and end tags that HTML
// permits to omit (HTML standard, 13.1.2.4 optional tags). On a large node they are a tenth of the page.
var spare = regexp.MustCompile(`\n\s+|</(?:li|dt|dd|th|td|tr)>`)

// compact leaves out the spare parts, but keeps line breaks.
func compact(text string) string {
	return spare.ReplaceAllStringFunc(text, func(found string) string {
		if found[0] == '\n' {
			return "\n"
		}
		return ""
	})
}

// The pages' parts: the frame of all pages, their shared templates, and the body of each. The page's content
// security policy names the script and the style sheet by their hashes, so that nothing else runs.
var (
	//go:embed frame.html
	frameTemplate string
	//go:embed parts.html
	partsTemplate string
	//go:embed page.html
	pageTemplate string
	//go:embed answer.html
	answerTemplate string
	//go:embed page.css
	styleSheet string
	//go:embed page.js
	script string
)
