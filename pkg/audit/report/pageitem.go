package report

import (
	"cmp"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// item has the findings of one rule in one state, one for each object.
type item struct {
	// Anchor is the id of its element.
	Anchor   string
	Rule     rule.Rule
	State    finding.State
	Severity rule.Severity
	// Exposure is the worst exposure of its findings.
	Exposure finding.Exposure
	Tenants  []tenant
	Findings []finding.Finding
	// More are objects of findings that are not shown in full, and Left is the number
	// of further ones.
	More []string
	Left int
	// names are the names of the tenants of its findings.
	names []string
}

// Limits that keep a page readable, and small enough for a mail. Items beyond them
// are counted.
const (
	maxFindings = 100  // in full, of one item
	maxAll      = 1000 // in full, of all items
	maxMore     = 200  // by name only, of one item
	maxDevices  = 24   // of one finding
	maxEvidence = 12   // of one finding
)

// newItems gathers the findings, which are in the report's order.
func newItems(findings []finding.Finding, rules []rule.Rule, who *tenants) []item {
	var items []item
	index := map[string]int{}
	full := 0
	for i := range findings {
		f := &findings[i]
		anchor := makeAnchor(f)
		at, ok := index[anchor]
		if !ok {
			at = len(items)
			index[anchor] = at
			items = append(items, item{Anchor: anchor, Rule: findRule(rules, f), State: f.State, Severity: f.Severity, Exposure: f.Exposure})
		}
		if items[at].add(f, full < maxAll) {
			full++
		}
	}
	for i := range items {
		slices.Sort(items[i].names)
		items[i].Tenants = who.all(slices.Compact(items[i].names))
	}
	return items
}

// failsAt reports whether the item makes a run fail at a severity: see [finding.Finding.FailsAt].
func (it *item) failsAt(at rule.Severity) bool {
	f := finding.Finding{ID: it.Rule.ID, State: it.State, Severity: it.Severity}
	return f.FailsAt(at)
}

// makeAnchor names the item that a finding is in.
func makeAnchor(f *finding.Finding) string {
	return "f-" + f.ID + "-" + string(f.State)
}

// add adds a finding of the item, in full if there is room, and reports whether
// it did.
func (it *item) add(f *finding.Finding, room bool) bool {
	if f.Exposure.Compare(it.Exposure) < 0 {
		it.Exposure = f.Exposure
	}
	it.names = append(it.names, f.Tenants...)
	switch {
	// Findings are in the report's order, so that the ones in full are the worst.
	case room && len(it.Findings) < maxFindings:
		it.Findings = append(it.Findings, *f)
		return true
	case len(it.More) < maxMore:
		it.More = append(it.More, subject(f))
	default:
		it.Left++
	}
	return false
}

// Count returns the number of findings of the item.
func (it *item) Count() int { return len(it.Findings) + len(it.More) + it.Left }

// Text is shown beside the title: the finding's text if it has one.
func (it *item) Text() string {
	if it.Count() == 1 && len(it.Findings) == 1 {
		return it.Findings[0].Text
	}
	return ""
}

// Heading is the first finding's text, because the rule's title describes the good
// state.
func (it *item) Heading() string {
	if len(it.Findings) == 0 { // the page had no room for any in full
		return "fails"
	}
	return it.Findings[0].Text
}

// Words is the text for searches, in lower case.
func (it *item) Words() string {
	var b strings.Builder
	b.WriteString(it.Rule.ID + " " + it.Rule.Title)
	for i := range it.Findings {
		b.WriteString(" " + it.Findings[i].Text + " " + subject(&it.Findings[i]))
	}
	return strings.ToLower(b.String())
}

// TenantNames are the names for the tenant filter, with bars around them.
func (it *item) TenantNames() string { return barred(it.Tenants) }

func barred(list []tenant) string {
	names := make([]string, len(list))
	for i, t := range list {
		names[i] = t.Name
	}
	return "|" + strings.Join(names, "|") + "|"
}

// subject names the subject of a finding.
func subject(f *finding.Finding) string {
	switch {
	case f.Device != nil:
		return strings.TrimSpace(f.Device.String() + " " + f.Object)
	case f.Object != "":
		return f.Object
	}
	return "the node"
}

// findRule returns the finding's rule. If it is not among the rules, it is made from
// the finding.
func findRule(rules []rule.Rule, f *finding.Finding) rule.Rule {
	i := slices.IndexFunc(rules, func(r rule.Rule) bool { return r.ID == f.ID })
	if i < 0 {
		return rule.Rule{ID: f.ID, Title: f.Title, Severity: f.Severity}
	}
	return rules[i]
}

// aboutDevice returns the function that a finding is about: its device, or the
// port that is its object.
func aboutDevice(f *finding.Finding) (pci.Address, bool) {
	if f.Device != nil {
		return *f.Device, true
	}
	port, ok := strings.CutPrefix(f.Object, "port ")
	if !ok {
		return pci.Address{}, false
	}
	a, err := pci.ParseAddress(port)
	return a, err == nil
}

// pageSection is the items of one state.
type pageSection struct {
	State finding.State
	Items []item
	// Findings is the number of their findings.
	Findings int
	// Closed is set for a section that needs no attention.
	Closed bool
}

func newSections(items []item) []pageSection {
	var list []pageSection
	for i := range items {
		last := len(list) - 1
		if last < 0 || list[last].State != items[i].State {
			closed := items[i].State == finding.Pass || items[i].State == finding.NotApplicable
			list = append(list, pageSection{State: items[i].State, Closed: closed})
			last++
		}
		list[last].Items = append(list[last].Items, items[i])
		list[last].Findings += items[i].Count()
	}
	return list
}

// noAnswer is the filter's choice of both states without an answer. The script splits it.
const noAnswer = string(finding.Unknown + " " + finding.Error)

// filters are the choices that the page's filters offer.
type filters struct {
	States []finding.State
	// NoAnswer is the choice of all states without an answer; empty if no item is in one.
	NoAnswer   string
	Severities []rule.Severity
	Groups     []string
	Tenants    []tenant
}

func newFilters(items []item, who *tenants) filters {
	f := filters{Tenants: who.list}
	for i := range items {
		if items[i].State == finding.Unknown || items[i].State == finding.Error {
			f.NoAnswer = noAnswer
		}
		f.States = append(f.States, items[i].State)
		f.Severities = append(f.Severities, items[i].Severity)
		f.Groups = append(f.Groups, items[i].Rule.Group())
	}
	slices.SortFunc(f.States, finding.State.Compare)
	slices.SortFunc(f.Severities, rule.Severity.Compare)
	slices.Sort(f.Groups)
	f.States, f.Severities, f.Groups = slices.Compact(f.States), slices.Compact(f.Severities), slices.Compact(f.Groups)
	return f
}

// pageGroup has the rules of one group, each with its findings.
type pageGroup struct {
	Group string
	Rules []asked
}

// asked is a rule and its findings.
type asked struct {
	Rule  rule.Rule
	Items []item
}

func newRuleGroups(rules []rule.Rule, items []item) []pageGroup {
	sorted := slices.Clone(rules)
	slices.SortStableFunc(sorted, func(a, b rule.Rule) int { return cmp.Compare(a.ID, b.ID) })
	var groups []pageGroup
	for _, r := range sorted {
		last := len(groups) - 1
		if last < 0 || groups[last].Group != r.Group() {
			groups = append(groups, pageGroup{Group: r.Group()})
			last++
		}
		a := asked{Rule: r}
		for _, it := range items {
			if it.Rule.ID == r.ID {
				a.Items = append(a.Items, it)
			}
		}
		groups[last].Rules = append(groups[last].Rules, a)
	}
	return groups
}

// requirement is a privilege that reads lacked.
type requirement struct {
	What  string
	Reads int
}

// listNeeds counts failed reads, by the privilege that would help.
func listNeeds(findings []finding.Finding) []requirement {
	count := map[string]int{}
	for i := range findings {
		for _, e := range findings[i].Evidence {
			if e.Needs != "" && e.Error != "" {
				count[e.Needs]++
			}
		}
	}
	var needs []requirement
	for what, n := range count {
		needs = append(needs, requirement{what, n})
	}
	slices.SortFunc(needs, func(a, b requirement) int { return cmp.Compare(a.What, b.What) })
	return needs
}
