package report_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/audit/report"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

func reportOf(node, at string, findings ...finding.Finding) *finding.Report {
	r := &finding.Report{Subject: finding.Subject{Kind: "node", Name: node, Time: at}, Findings: findings}
	r.Finish()
	return r
}

func fails(id string, s rule.Severity) finding.Finding {
	return finding.Finding{ID: id, Title: "title of " + id, State: finding.Fail, Severity: s}
}

func passes(id string) finding.Finding {
	return finding.Finding{ID: id, State: finding.Pass, Severity: rule.High}
}

const monday, tuesday = "2026-11-23T08:00:00Z", "2026-11-24T08:00:00Z"

func TestWorstComesFirstWithItsTrend(t *testing.T) {
	unknown := finding.Finding{ID: "RT-001", State: finding.Unknown, Severity: rule.High}
	f := report.NewFleet([]*finding.Report{
		reportOf("good", tuesday, passes("IOM-001")),
		reportOf("low", tuesday, fails("HOST-003", rule.Low), unknown),
		reportOf("bad", tuesday, fails("ACS-001", rule.Critical), fails("ACS-001", rule.Critical), fails("ACS-002", rule.High),
			passes("IOM-001"), passes("IOM-002")),
		reportOf("bad", monday, fails("ACS-001", rule.Critical), fails("IOM-001", rule.High), fails("IOM-002", rule.High)),
	}, report.Period{})
	if !slices.Equal(f.Groups, []string{"ACS", "HOST", "RT"}) {
		t.Errorf("groups %q", f.Groups)
	}
	var names []string
	for i := range f.Nodes {
		names = append(names, f.Nodes[i].Name)
	}
	if !slices.Equal(names, []string{"bad", "low", "good"}) {
		t.Fatalf("order %q", names)
	}
	bad := f.Nodes[0]
	if bad.Trend() != "3 → 2 ▼" || !slices.Equal(bad.New, []string{"ACS-002"}) || !slices.Equal(bad.Fixed, []string{"IOM-001", "IOM-002"}) {
		t.Errorf("trend %q, new %q, fixed %q", bad.Trend(), bad.New, bad.Fixed)
	}
	if bad.Open[0].Findings != 2 || bad.Cells[0].Text() != "1C+1" || f.Nodes[1].Cells[2].Text() != "?1" || f.Nodes[1].Trend() != "" {
		t.Errorf("nodes %+v", f.Nodes)
	}
}

// TestTrendFollowsTheWorstSeverity: a node that gets worse is not called better because less severe checks pass.
func TestTrendFollowsTheWorstSeverity(t *testing.T) {
	const most = 9
	of := func(critical, high, low int) (all []finding.Finding) {
		for s, n := range map[rule.Severity]int{rule.Critical: critical, rule.High: high, rule.Low: low} {
			for i := range most {
				f := fails(fmt.Sprintf("ACS-%s%d", s, i), s)
				if i >= n {
					f.State = finding.Pass
				}
				all = append(all, f)
			}
		}
		return all
	}
	for name, c := range map[string]struct {
		before, now []finding.Finding
		trend, cell string
	}{
		"fewer, and four are critical now":      {of(0, 1, 9), of(4, 1, 4), "10 → 9 ▲ (critical 0 → 4)", "4C+5"},
		"as many, and one is critical now":      {of(0, 2, 0), of(1, 1, 0), "2 → 2 ▲ (critical 0 → 1)", "1C+1"},
		"more, and the critical one is fixed":   {of(1, 0, 0), of(0, 1, 2), "1 → 3 ▼ (critical 1 → 0)", "1H+2"},
		"more of the worst":                     {of(1, 0, 3), of(2, 0, 3), "4 → 5 ▲", "2C+3"},
		"fewer of the worst":                    {of(1, 3, 0), of(1, 2, 0), "4 → 3 ▼", "1C+2"},
		"fewer of the worst and more of others": {of(0, 1, 1), of(0, 0, 2), "2 → 2 ▼ (high 1 → 0)", "2L"},
		"the same":                              {of(0, 1, 3), of(0, 1, 3), "4 → 4 =", "1H+3"},
	} {
		t.Run(name, func(t *testing.T) {
			n := &report.NewFleet([]*finding.Report{reportOf("a", monday, c.before...), reportOf("a", tuesday, c.now...)}, report.Period{}).Nodes[0]
			if n.Trend() != c.trend || n.Cells[0].Text() != c.cell {
				t.Errorf("trend %q, cell %q, want %q, %q", n.Trend(), n.Cells[0].Text(), c.trend, c.cell)
			}
		})
	}
}

// TestOnlyAPassFixes: a check that failed and has no answer now, is accepted, or was not made, is not fixed, and no arrow says so.
func TestOnlyAPassFixes(t *testing.T) {
	in := func(state finding.State) []finding.Finding {
		return []finding.Finding{{ID: "ACS-001", State: state, Severity: rule.High}}
	}
	for name, c := range map[string]struct {
		findings          []finding.Finding
		fixed, unanswered []string
		trend             string
	}{
		"it passes":                     {findings: in(finding.Pass), fixed: []string{"ACS-001"}, trend: "2 → 1 ▼"},
		"nothing here is its object":    {findings: in(finding.NotApplicable), fixed: []string{"ACS-001"}, trend: "2 → 1 ▼"},
		"it could not tell":             {findings: in(finding.Unknown), unanswered: []string{"ACS-001"}, trend: "2 → 1 ?"},
		"it could not tell of one":      {findings: append(in(finding.Unknown), passes("ACS-001")), unanswered: []string{"ACS-001"}, trend: "2 → 1 ?"},
		"it had an error":               {findings: in(finding.Error), unanswered: []string{"ACS-001"}, trend: "2 → 1 ?"},
		"it is left to do by hand":      {findings: in(finding.Manual), unanswered: []string{"ACS-001"}, trend: "2 → 1 ?"},
		"it was not made":               {unanswered: []string{"ACS-001"}, trend: "2 → 1 ?"},
		"a waiver accepts it":           {findings: in(finding.Waived), trend: "2 → 1 ▼"},
		"it still fails":                {findings: in(finding.Fail), trend: "2 → 2 ="},
		"it is replaced by another one": {findings: []finding.Finding{fails("ACS-002", rule.High)}, unanswered: []string{"ACS-001"}, trend: "2 → 2 ?"},
		"it is outnumbered by new ones": {
			findings: []finding.Finding{fails("ACS-002", rule.High), fails("ACS-003", rule.High)}, unanswered: []string{"ACS-001"}, trend: "2 → 3 ▲",
		},
	} {
		t.Run(name, func(t *testing.T) {
			low := fails("HOST-003", rule.Low)
			f := report.NewFleet([]*finding.Report{
				reportOf("a", monday, fails("ACS-001", rule.High), low), reportOf("a", tuesday, append(c.findings, low)...),
			}, report.Period{})
			n := &f.Nodes[0]
			if !slices.Equal(n.Fixed, c.fixed) || !slices.Equal(n.Unanswered, c.unanswered) || n.Trend() != c.trend {
				t.Errorf("fixed %q, unanswered %q, trend %q; want %q, %q, %q", n.Fixed, n.Unanswered, n.Trend(), c.fixed, c.unanswered, c.trend)
			}
			var page bytes.Buffer
			if err := f.Write(&page, "html", 0); err != nil {
				t.Fatal(err)
			}
			if got := strings.Contains(page.String(), "and no answer now:</b> ACS-001"); got != (len(c.unanswered) > 0) {
				t.Errorf("the page names a check without an answer: %t", got)
			}
		})
	}
}

// TestFleetCountsVerdicts: a node that passes at its --fail-on is not among those that fail.
func TestFleetCountsVerdicts(t *testing.T) {
	passes := reportOf("passes", monday, fails("HOST-003", rule.Low))
	passes.FailOn = rule.High
	passes.Finish()
	f := report.NewFleet([]*finding.Report{passes, reportOf("fails", monday, fails("ACS-001", rule.High))}, report.Period{})
	if got := f.Failing(); got != 1 {
		t.Errorf("%d nodes fail, want 1: %+v", got, f.Nodes)
	}
}

// TestFleetIsShownByCheck: a fault of all nodes is one row, in place of one on each node.
func TestFleetIsShownByCheck(t *testing.T) {
	var reports []*finding.Report
	for i := range 12 {
		list := []finding.Finding{fails("ACS-004", rule.Medium), fails("ACS-004", rule.Medium), {ID: "RT-001", State: finding.Unknown, Severity: rule.High}}
		if i == 11 {
			list = append(list, fails("IOM-001", rule.Critical))
		}
		reports = append(reports, reportOf(fmt.Sprintf("n%02d", i), monday, list...))
	}
	f := report.NewFleet(reports, report.Period{})
	var ids []string
	for i := range f.Checks {
		ids = append(ids, fmt.Sprintf("%s %s %d", f.Checks[i].ID, f.Checks[i].Severity, len(f.Checks[i].Nodes)))
	}
	if want := []string{"IOM-001 critical 1", "ACS-004 medium 12"}; !slices.Equal(ids, want) {
		t.Errorf("checks %q, want %q", ids, want)
	}
	for format, want := range map[string]string{
		"table": "ACS-004  medium    12 of 12  title of ACS-004",
		"html":  "ACS-004 title of ACS-004</th><td>12 of 12: n11, n00, n01, n02, n03, n04, n05, n06 and 4 more</td>",
	} {
		var b bytes.Buffer
		if err := f.Write(&b, format, 0); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(b.String(), want) {
			t.Errorf("%s lacks %q:\n%s", format, want, b.String())
		}
	}
}

func TestThousandReportsMakeAPageThatStandsAlone(t *testing.T) {
	const nasty = `"><script>alert(1)</script>`
	var reports []*finding.Report
	for i := range 1000 {
		var list []finding.Finding
		for r := range i % 30 {
			list = append(list, fails(fmt.Sprintf("%s-%03d", []string{"ACS", "IOM", "NIC", "RT"}[r%4], r), finding.Severities()[r%5]))
		}
		list = append(list, finding.Finding{ID: "OBS-001", Title: nasty, State: finding.Unknown, Severity: rule.High})
		reports = append(reports, reportOf(fmt.Sprintf("node-%03d%s", i/2, nasty), []string{monday, tuesday}[i%2], list...))
	}
	f := report.NewFleet(reports, report.Period{})
	for _, format := range report.FleetFormats() {
		var b bytes.Buffer
		if err := f.Write(&b, format, 0); err != nil {
			t.Fatal(err)
		}
		text := b.String()
		if !strings.Contains(text, "node-499") {
			t.Errorf("%s lacks a node", format)
		}
		if format != "html" {
			continue
		}
		if len(text) > 2<<20 {
			t.Errorf("the page has %d bytes, more than a browser or a mail should have", len(text))
		}
		for _, outside := range []string{"<script", "http://", "https://", "src=", "url(", "@import"} {
			if strings.Contains(text, outside) {
				t.Errorf("the page has %q", outside)
			}
		}
		for i := range f.Nodes {
			if !strings.Contains(text, fmt.Sprintf(`href="#n-%d"`, i)) || !strings.Contains(text, fmt.Sprintf(`id="n-%d"`, i)) {
				t.Fatalf("node %d has no link", i)
			}
		}
	}
}

// TestPeriodChoosesReports: the trend is between the first and the last report of the chosen days, and nodes without a
// report in them are named.
func TestPeriodChoosesReports(t *testing.T) {
	const wednesday = "2026-11-25T23:59:59Z"
	reports := []*finding.Report{
		reportOf("a", monday, fails("ACS-001", rule.High)),
		reportOf("a", tuesday, fails("ACS-001", rule.High), fails("ACS-002", rule.High)),
		reportOf("a", wednesday, passes("ACS-001"), passes("ACS-002")),
		reportOf("b", monday, fails("ACS-001", rule.High)),
	}
	for in, want := range map[report.Period]struct{ trend, unseen string }{
		{}:                                     {"1 → 0 ▼", ""},
		{To: "2026-11-24"}:                     {"1 → 2 ▲", ""},
		{From: "2026-11-24", To: "2026-11-25"}: {"2 → 0 ▼", "No report from 2026-11-24 to 2026-11-25"},
		{From: "2026-11-25"}:                   {"", "No report since 2026-11-25"},
	} {
		f := report.NewFleet(reports, in)
		trend := "no node a"
		for i := range f.Nodes {
			if n := &f.Nodes[i]; n.Name == "a" {
				trend = n.Trend()
			}
		}
		if trend != want.trend {
			t.Errorf("%+v: the trend is %q, want %q", in, trend, want.trend)
		}
		for _, format := range []string{"table", "html"} {
			var b bytes.Buffer
			if err := f.Write(&b, format, 0); err != nil {
				t.Fatal(err)
			}
			if want.unseen == "" && strings.Contains(b.String(), "No report") || !strings.Contains(b.String(), want.unseen) {
				t.Errorf("%+v: the %s lacks %q:\n%s", in, format, want.unseen, b.String())
			}
		}
		if (len(f.Unseen) > 0) != (want.unseen != "") {
			t.Errorf("%+v: unseen %q", in, f.Unseen)
		}
	}
}

func TestPeriodRefusesWrongDates(t *testing.T) {
	for in, want := range map[report.Period]string{
		{From: "yesterday"}:                    `--from "yesterday": want a date such as 2026-11-25`,
		{To: "2026-02-30"}:                     `--to "2026-02-30": want a date`,
		{From: "2026-11-25", To: "2026-11-01"}: "--from 2026-11-25 is after --to 2026-11-01",
	} {
		if err := in.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", in, err, want)
		}
	}
	if err := (report.Period{From: "2026-11-01", To: "2026-11-01"}).Check(); err != nil {
		t.Error(err)
	}
}
