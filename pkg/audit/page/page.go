package page

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"regexp"

	"github.com/kata-vfio/kata-vfio/pkg/audit"
	"github.com/kata-vfio/kata-vfio/pkg/audit/topology"
	"github.com/kata-vfio/kata-vfio/pkg/finding"
)

// spare is what the template has for those who read it: indentation, and end tags
// that HTML does without (HTML standard, 13.1.2.4 optional tags). On a large node
// they are a tenth of the page.
var spare = regexp.MustCompile(`\n\s+|</(?:li|dt|dd|th|td|tr)>`)

// compact leaves out what is spare; lines stay lines.
func compact(text string) string {
	return spare.ReplaceAllStringFunc(text, func(found string) string {
		if found[0] == '\n' {
			return "\n"
		}
		return ""
	})
}

// Page is what an audit page shows.
type Page struct {
	Report *finding.Report
	// Inventory has the functions; nil where there are none, as for a cluster.
	Inventory *audit.Inventory
	// Rules are the rules that were asked.
	Rules []finding.Rule
	// Tenancies say who has which function, and who had it as far as is known. The
	// open ones are those of now.
	Tenancies []Tenancy
}

// Write writes the page. What comes from the node is escaped: markup does nothing
// in a browser, and control characters are spelled out.
func Write(w io.Writer, p *Page) error {
	t, err := template.New("page").Funcs(functions(p)).Parse(compact(pageTemplate))
	if err != nil {
		return fmt.Errorf("parse the page's template: %w", err)
	}
	var b bytes.Buffer
	if err := t.Execute(&b, newView(p)); err != nil {
		return fmt.Errorf("fill in the page: %w", err)
	}
	if _, err := w.Write(spellOut(b.Bytes())); err != nil {
		return fmt.Errorf("write page: %w", err)
	}
	return nil
}

// view is the page as its template has it.
type view struct {
	*finding.Report
	Policy   string
	Style    template.CSS
	Script   template.JS
	Verdict  verdict
	Node     *node
	Sections []section
	Filters  filters
	// Holding are tenants that have functions now, and Unnamed how many more do.
	Holding  []tenant
	Unnamed  int
	Timeline *timeline
	Groups   []ruleGroup
	Needs    []need
}

func newView(p *Page) *view {
	style := styleSheet + topology.Style()
	v := &view{
		Report: p.Report, Policy: policy(style, script),
		Style:  template.CSS(style), //nolint:gosec // our own file
		Script: template.JS(script), //nolint:gosec // our own file
	}
	who := newTenants(p)
	v.Holding, v.Unnamed = who.holding()
	items := itemsOf(p.Report.Findings, p.Rules, who)
	v.Verdict = verdictOf(p, items)
	v.Sections, v.Filters = sectionsOf(items), filtersOf(items, who)
	if p.Inventory != nil {
		v.Node = nodeOf(p, items, who)
	}
	v.Timeline = timelineOf(p, who)
	v.Groups = ruleGroupsOf(p.Rules, items)
	v.Needs = needsOf(p.Report.Findings)
	return v
}

// policy forbids all that the page does not need: it may use its own style sheet
// and script, which are known by their hashes, and nothing else.
func policy(style, script string) string {
	return fmt.Sprintf("default-src 'none'; style-src '%s'; script-src '%s'; base-uri 'none'; form-action 'none'", hash(style), hash(script))
}

func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}
