package report_test

import (
	"bytes"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/audit/report"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// fleetIsFiltered: the page of nodes has no script, and yet shows the nodes that a reader chooses, on paper too.
func fleetIsFiltered(b browser) {
	f := report.NewFleet([]*finding.Report{
		reportOf("worst", monday, fails("ACS-001", rule.Critical)), reportOf("bad", monday, fails("IOM-001", rule.High)),
		reportOf("mild", monday, fails("NIC-001", rule.Low)), reportOf("silent", monday, finding.Finding{ID: "RT-001", State: finding.Unknown, Severity: rule.High}),
	}, report.Period{})
	var text bytes.Buffer
	if err := f.Write(&text, "html", 0); err != nil {
		b.t.Fatal(err)
	}
	p := b.openText(text.String(), desk())
	if said := p.Complaints(); len(said) > 0 {
		b.t.Errorf("complaints: %q", said)
	}
	if lost := eval[[]string](p, `[...document.querySelectorAll("nav a, .skip")].filter((a) => !document.querySelector(a.getAttribute("href"))).map((a) => a.outerHTML)`); len(lost) > 0 {
		b.t.Errorf("links lead nowhere: %q", lost)
	}
	if n := visible(p, "nav a"); n != 3 {
		b.t.Errorf("got %d links to the parts of the page, want 3", n)
	}
	for id, want := range map[string]int{"show-critical": 1, "show-high": 2, "show-unknown": 1} {
		p.Eval(`document.getElementById("`+id+`").click()`, nil)
		if n := visible(p, "tr.node"); n != want {
			b.t.Errorf("%s shows %d nodes, want %d", id, n, want)
		}
		if n := visible(p, "details.node"); n != want {
			b.t.Errorf("%s shows the failures of %d nodes, want %d", id, n, want)
		}
	}
	b.keep("fleet.png", func() []byte { return p.Screenshot(true) })
	p.Eval(`document.querySelector("input[name=show]").click()`, nil)
	b.keep("fleet.pdf", p.PDF)
	if foot := footOf(p); !strings.Contains(foot, "counter(pages)") || !strings.Contains(foot, "4 nodes, ") {
		b.t.Errorf("the foot of a sheet is %q, want the page's number and the nodes", foot)
	}
	p.Print()
	if n := visible(p, "tr.node, .in-full, .print-choice, .top, .skip"); n != 4 {
		b.t.Errorf("paper has %d parts, want a row for each of 4 nodes and no more", n)
	}
	p.Eval(`document.getElementById("print-full").click()`, nil)
	if n := visible(p, "details.node table"); n != 4 {
		b.t.Errorf("paper has the failures of %d nodes, want 4", n)
	}
}
