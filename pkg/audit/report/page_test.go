package report_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/audit/report"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// all returns the matches of a pattern's first group.
func all(text, pattern string) []string {
	var found []string
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		found = append(found, m[1])
	}
	return found
}

func TestPageLinksHaveTargets(t *testing.T) {
	for name, p := range map[string]*report.Page{"sample": samplePage(), "large": large(), "cluster": cluster(), "empty": {Report: &finding.Report{}}} {
		t.Run(name, func(t *testing.T) {
			text := render(t, p)
			ids := map[string]bool{}
			for _, id := range all(text, ` id="([^"]*)"`) {
				if ids[id] {
					t.Errorf("two elements have the id %s", id)
				}
				ids[id] = true
			}
			for _, href := range all(text, ` href="([^"]*)"`) {
				if target, ok := strings.CutPrefix(href, "#"); !ok || !ids[target] {
					t.Errorf("a link leads to %q, which is not on the page", href)
				}
			}
		})
	}
}

// cluster is a report without functions.
func cluster() *report.Page {
	p := samplePage()
	p.Inventory, p.Tenancies = nil, nil
	p.Report.Subject.Kind = "cluster"
	return p
}

func TestEverythingIsOnThePage(t *testing.T) {
	p := samplePage()
	text := render(t, p)
	for i := range p.Inventory.Devices {
		if id := `id="d-` + p.Inventory.Devices[i].Address.Label() + `"`; !strings.Contains(text, id) {
			t.Errorf("%s has no part of its own", p.Inventory.Devices[i].Address)
		}
	}
	escape := strings.NewReplacer("'", "&#39;", "+", "&#43;", "<", "&lt;", ">", "&gt;")
	for _, f := range p.Report.Findings {
		for _, e := range f.Evidence {
			if !strings.Contains(text, escape.Replace(e.Path)) || !strings.Contains(text, escape.Replace(e.Value)) {
				t.Errorf("%s: evidence %s is missing", f.ID, e.Path)
			}
		}
		if !strings.Contains(text, escape.Replace(f.Text)) {
			t.Errorf("%s: %s is missing", f.ID, f.Text)
		}
	}
	for _, r := range p.Rules {
		if !strings.Contains(text, `id="r-`+r.ID+`"`) {
			t.Errorf("rule %s is missing", r.ID)
		}
	}
	for _, want := range []string{
		"Fails: 3 critical, 1 high and 1 low checks", "3 tenants with 4 claims", "ACSCap 0x005f, ACSCtl 0x0000",
		"until 2027-03-31 by sec@example.org", "1 read needs root", "flr, registers as before (104 ms)", "bus, not proven", "The memory of a device is not checked.",
		"not known", "fails RST-004",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing", want)
		}
	}
}

// TestNumbersLeadToAsManyFindings: the filter that a number presets is one of its choices, and finds as many rules as the number says.
func TestNumbersLeadToAsManyFindings(t *testing.T) {
	text := render(t, samplePage())
	for label, states := range map[string][]string{"without an answer": {"unknown", "error"}, "waived": {"waived"}, "passes": {"pass"}} {
		choice, found := strings.Join(states, " "), 0
		for _, state := range states {
			found += strings.Count(text, `data-state="`+state+`" data-severity="`) - strings.Count(text, `href="#findings" data-state="`+state+`"`)
		}
		if want := fmt.Sprintf(`data-state="%s" data-severity=""><b>%d</b> <span>%s</span>`, choice, found, label); found == 0 || !strings.Contains(text, want) {
			t.Errorf("%d rules are %q, and the page lacks %q", found, states, want)
		}
		if !strings.Contains(text, `<option value="`+choice+`">`) {
			t.Errorf("the filter lacks the choice %q", choice)
		}
	}
}

// TestMeaningFollowsWhoIsInReach: the sentence below the verdict is about tenants.
func TestMeaningFollowsWhoIsInReach(t *testing.T) {
	for want, f := range map[string]finding.Finding{
		"not isolated from each other now":    {State: finding.Fail, Severity: rule.Critical, Exposure: finding.CrossTenant},
		"before another tenant gets it":       {State: finding.Fail, Severity: rule.High, Exposure: finding.Allocated},
		"No tenant is affected yet":           {State: finding.Fail, Severity: rule.High, Exposure: finding.Published},
		"No serious failure affects tenants":  {State: finding.Fail, Severity: rule.Low, Exposure: finding.CrossTenant},
		"do not prove that they are isolated": {State: finding.Unknown, Severity: rule.High, Exposure: finding.CrossTenant},
		"isolated, as far as its kernel":      {State: finding.Pass, Severity: rule.High},

		"from each other now, and waivers accept that":       {State: finding.Waived, Severity: rule.Critical, Exposure: finding.CrossTenant},
		"as well isolated as it must be, and waivers accept": {State: finding.Waived, Severity: rule.High, Exposure: finding.Allocated},
		"are isolated except for what waivers accept":        {State: finding.Waived, Severity: rule.Medium, Exposure: finding.CrossTenant},
		"in reach of a failure that no waiver accepts":       {State: finding.Waived, Severity: rule.High, Exposure: finding.Published},
		"Passes, 1 failure accepted by waivers":              {State: finding.Waived, Severity: rule.Low, Exposure: finding.Unexposed},
		"Nothing fails, and 1 check is left to do by hand":   {State: finding.Manual, Severity: rule.High},
		"Nothing fails, and every check has an answer":       {State: finding.Pass, Severity: rule.Low},
		"No tenant is in reach of a finding that fails":      {State: finding.Pass, Severity: rule.Medium},
		"Nothing fails, but 1 check has no answer":           {State: finding.Error, Severity: rule.High},
	} {
		f.ID = "ACS-009"
		p := &report.Page{Report: &finding.Report{Findings: []finding.Finding{f}}}
		p.Report.Finish()
		if text := render(t, p); !strings.Contains(text, want) {
			t.Errorf("%s %s %s: the page lacks %q", f.State, f.Severity, f.Exposure, want)
		}
	}
}

func TestBrokenBoundariesAreDrawn(t *testing.T) {
	text, _, _ := strings.Cut(render(t, samplePage()), `<div class="drawing narrow">`)
	if n := strings.Count(text, `class="link broken"`); n != 8 {
		t.Errorf("%d links are marked, want the four of each of two switches", n)
	}
	if n := strings.Count(text, `class="outline broken"`); n != 1 {
		t.Errorf("%d groups are marked, want the one of two tenants", n)
	}
	p := samplePage()
	p.Report.Findings = slices.DeleteFunc(p.Report.Findings, func(f finding.Finding) bool { return f.State == finding.Fail })
	for i := range p.Tenancies {
		p.Tenancies[i].Tenant = "one"
	}
	if text := render(t, p); strings.Contains(text, "broken\"") {
		t.Error("a boundary is marked where all is one tenant's")
	}
}

func TestLargeNodeFitsAMail(t *testing.T) {
	p := large()
	size := len(render(t, p))
	t.Logf("%d functions, %d that can be given away: %d bytes", len(p.Inventory.Devices), 2048, size)
	if size >= 2_000_000 {
		t.Errorf("the page has %d bytes, want less than 2 MB", size)
	}
}

func TestManyFindingsAreCountedRatherThanWritten(t *testing.T) {
	p := samplePage()
	one := p.Report.Findings[0]
	p.Report.Findings = nil
	for i := range 8_000 {
		f := one
		f.Device, f.Object, f.ID = nil, fmt.Sprintf("object %d", i), fmt.Sprintf("ACS-%03d", i%20)
		f.Devices = slices.Repeat(f.Devices, 100)
		p.Report.Findings = append(p.Report.Findings, f)
	}
	p.Report.Finish()
	text := render(t, p)
	if len(text) > 4_000_000 {
		t.Errorf("the page has %d bytes", len(text))
	}
	if !strings.Contains(text, "and 100 more; the JSON form of this report has all") {
		t.Error("what is left out is not counted")
	}
}

func TestPageSpellsOutInvisibleCharacters(t *testing.T) {
	const nasty = "a\x1b[31mb\x07\u202ec\u200bd\u2066e\x9b\u0085f\x00g\xffh"
	p := hostile(nasty)
	text := render(t, p)
	for _, r := range text {
		if r != '\n' && r != '\t' && (unicode.Is(unicode.Cc, r) || unicode.Is(unicode.Cf, r)) {
			t.Fatalf("the page has the character %U", r)
		}
	}
	if want := `a\x1b[31mb\x07\u202ec\u200bd\u2066e\x9b`; !strings.Contains(text, want) {
		t.Errorf("%q is not spelled out", want)
	}
}

// hostile is a page with a text in each place that the node or a tenant fills.
func hostile(text string) *report.Page {
	p := samplePage()
	p.Report.Subject.Name, p.Report.Subject.Kernel, p.Report.Subject.Time = text, text, text
	for i := range p.Inventory.Devices {
		d := &p.Inventory.Devices[i]
		d.Model, d.Driver, d.Root = text, text, text
	}
	for i := range p.Tenancies {
		p.Tenancies[i].Tenant, p.Tenancies[i].Claim, p.Tenancies[i].State = text, text, text
		p.Tenancies[i].ResetBefore = &report.Reset{Method: text, Note: text}
	}
	for i := range p.Report.Findings {
		f := &p.Report.Findings[i]
		f.Text, f.Object, f.Remediation, f.Verify, f.Pending, f.Tenants = text, text, text, text, text, []string{text}
		f.Evidence = []rule.Evidence{{Path: text, Value: text, How: text}, {Path: text, Error: text, Needs: text}}
		f.Waiver = &finding.Waiver{Rule: text, Scope: text, Until: text, Reason: text, Author: text}
	}
	return p
}
