package page

import (
	"fmt"
	"html/template"
	"io"

	"github.com/kata-vfio/kata-vfio/pkg/audit"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
)

// Page is what an audit page shows.
type Page struct {
	Report *finding.Report
	// Inventory has the functions; nil where there are none, as for a cluster.
	Inventory *audit.Inventory
	// Rules are the rules that were asked.
	Rules []finding.Rule
	// Tenancies say who has which function, and who had it as far as is known. The
	// open ones are those of now. Of past ones the page shows the latest of each
	// function.
	Tenancies []Tenancy
	// Ledger is what the past ones come from; nil where nobody looked for one.
	Ledger *Ledger
	// FailOn is the least severity whose failures make the run fail; empty for every
	// one.
	FailOn isolation.Severity
}

// Write writes the page.
func Write(w io.Writer, p *Page) error {
	v := newView(p)
	f := &frame{
		Title: v.Verdict.Headline, About: "PCI passthrough isolation", Skip: &link{"findings", "findings"}, Parts: v.parts(),
		Made:   fmt.Sprintf("kata-vfio-audit %s · %s", p.Report.Subject.Version, p.Report.Subject.Time),
		Script: template.JS(script), Body: v, //nolint:gosec // our own file
	}
	f.Title = p.Report.Subject.Label() + ": " + f.Title
	return f.write(w, pageTemplate, functions(p.Inventory))
}

// view is the page's body as its template has it.
type view struct {
	*finding.Report
	Verdict  verdict
	Node     *node
	Sections []section
	Filters  filters
	// Holding are tenants that have functions now, and Unnamed how many more do.
	Holding   []tenant
	Unnamed   int
	Timeline  *timeline
	Tenancies tenancyTable
	Ledger    *ledgerView
	Groups    []ruleGroup
	Needs     []need
}

func newView(p *Page) *view {
	past := latest(p.Tenancies, p.Report.Summary.Devices)
	v := &view{Report: p.Report, Ledger: ledgerViewOf(p.Ledger)}
	if v.Ledger.Unsound() {
		past.doubt = ", by a ledger that does not verify"
	}
	who := newTenants(past.shown, p.Report.Findings)
	v.Holding, v.Unnamed = who.holding()
	items := itemsOf(p.Report.Findings, p.Rules, who)
	v.Verdict = verdictOf(p, items)
	v.Sections, v.Filters = sectionsOf(items), filtersOf(items, who)
	if p.Inventory != nil {
		v.Node = nodeOf(p, items, who, past)
	}
	v.Timeline = timelineOf(past.shown, parseTime(p.Report.Subject.Time), who)
	v.Tenancies = tableOf(past, who)
	v.Groups = ruleGroupsOf(p.Rules, items)
	v.Needs = needsOf(p.Report.Findings)
	return v
}

// parts are what the page's head leads to.
func (v *view) parts() []link {
	list := []link{{"verdict", "Verdict"}}
	if v.Node != nil {
		list = append(list, link{"topology", "Topology"})
	}
	list = append(list, link{"findings", "Findings"})
	if v.Node != nil {
		list = append(list, link{"devices", "Devices"})
	}
	return append(list, link{"tenancies", "Tenancies"}, link{"rules", "Rules"}, link{"reading", "How it was read"})
}
