package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// verdict is the first part of the page.
type verdict struct {
	State finding.State
	// Headline is the verdict as a sentence, Meaning its consequence for tenants, and Reach names the pods and
	// tenants that a failure can affect.
	Headline, Meaning, Reach string
	Numbers                  []number
	// Worst are the failures to look at first.
	Worst []item
}

// number is one of the few counts beside the verdict.
type number struct {
	Value string
	Label string
	// Kind is the CSS class that colors the number: "bad", "warn", "good" or none.
	Kind string
	// State and Severity preset the filters for the counted findings. State is a choice of the filter: a state, or noAnswer.
	State    string
	Severity rule.Severity
}

// maxWorst is the number of failures that are listed beside the verdict.
const maxWorst = 5

func newVerdict(p *Page, items []item) verdict {
	s := &p.Report.Summary
	v := verdict{State: s.Verdict, Headline: headline(s, p.FailOn), Meaning: meaning(p.Report, items), Reach: reach(s, items), Numbers: numbers(p)}
	if n, _ := unclear(s); n == 0 && s.Fails() && !s.FailsAt(p.FailOn) {
		v.State = finding.Error // the amber sign: the run itself passes
	}
	for _, it := range items {
		if it.State == finding.Fail && len(v.Worst) < maxWorst {
			v.Worst = append(v.Worst, it)
		}
	}
	return v
}

func headline(s *finding.Summary, failOn rule.Severity) string {
	n, what := unclear(s)
	noAnswer := output.Count(n, what+" has", what+"s have") + " no answer"
	switch {
	case s.Fails():
		var parts []string
		for _, severity := range finding.Severities() {
			if n := s.FailedRules[severity]; n > 0 {
				parts = append(parts, fmt.Sprintf("%d %s", n, severity))
			}
		}
		failed := fmt.Sprintf("%s %s", enumerate(parts), output.Plural(s.RuleStates[finding.Fail], "check"))
		switch {
		case s.FailsAt(failOn):
			return "Fails: " + failed
		case n > 0:
			return fmt.Sprintf("Undetermined at severity %s: %s; less severe failures: %s", failOn, noAnswer, failed)
		}
		return fmt.Sprintf("Passes at severity %s; less severe failures: %s", failOn, failed)
	case n > 0:
		return "Nothing fails, but " + noAnswer
	}
	return passes(s)
}

// passes is the headline of a run in which nothing fails and each check could tell.
func passes(s *finding.Summary) string {
	byHand := ""
	if n := s.RuleStates[finding.Manual]; n > 0 {
		byHand = ", and " + output.Count(n, "check is", "checks are") + " left to do by hand"
	}
	switch n := s.States[finding.Waived]; {
	case n > 0:
		return fmt.Sprintf("Passes, %s accepted by waivers", output.Count(n, "failure")) + byHand
	case byHand != "":
		return "Nothing fails" + byHand
	}
	return "Nothing fails, and every check has an answer"
}

// meaning is one sentence about the verdict's consequence for tenants.
func meaning(r *finding.Report, items []item) string {
	place := "node"
	if r.Subject.Kind == "cluster" {
		place = "cluster"
	}
	serious := func(state finding.State, exposure finding.Exposure) bool {
		return slices.ContainsFunc(items, func(it item) bool {
			return it.State == state && it.Severity.Compare(rule.High) <= 0 && it.Exposure == exposure
		})
	}
	switch {
	case serious(finding.Fail, finding.CrossTenant):
		return fmt.Sprintf("Tenants on this %s are not isolated from each other now: separate them, or fix the failures first.", place)
	case serious(finding.Fail, finding.Allocated):
		return fmt.Sprintf("A tenant’s device on this %s is not as well isolated as it must be: fix the failures before another tenant gets it.", place)
	case serious(finding.Waived, finding.CrossTenant): // a waiver accepts a failure, and changes nothing for tenants
		return fmt.Sprintf("Tenants on this %s are not isolated from each other now, and waivers accept that.", place)
	case serious(finding.Waived, finding.Allocated):
		return fmt.Sprintf("A tenant’s device on this %s is not as well isolated as it must be, and waivers accept that.", place)
	case r.Summary.FailsAt(rule.High):
		return fmt.Sprintf("No tenant is affected yet, but tenants who get devices of this %s are at risk: fix the failures first.", place)
	case r.Summary.Fails() && r.Undetermined():
		return fmt.Sprintf("No failure that is known to be serious affects tenants, but the failures weaken this %s’s defenses, "+
			"and checks without an answer do not prove that tenants are isolated.", place)
	case r.Summary.Fails():
		return fmt.Sprintf("No serious failure affects tenants, but the failures weaken this %s’s defenses.", place)
	case r.Summary.Verdict == finding.Unknown && r.Summary.States[finding.Waived] > 0:
		return "Except for what waivers accept, nothing shows that tenants are at risk, but checks without an answer do not prove that they are isolated."
	case r.Summary.Verdict == finding.Unknown:
		return "Nothing shows that tenants are at risk, but checks without an answer do not prove that they are isolated."
	case r.Summary.States[finding.Waived] > 0:
		return fmt.Sprintf("Tenants on this %s are isolated except for what waivers accept, as far as its kernel, files and hardware tell.", place)
	}
	return fmt.Sprintf("Tenants on this %s are isolated, as far as its kernel, files and hardware tell.", place)
}

// reach names the tenants that the failures concern.
func reach(s *finding.Summary, items []item) string {
	cross, everyone := 0, false
	for i := range items {
		everyone = everyone || items[i].State == finding.Fail && (items[i].Exposure == finding.CrossTenant || items[i].Exposure == finding.Allocated)
		if items[i].State == finding.Fail && items[i].Exposure == finding.CrossTenant {
			cross++
		}
	}
	switch {
	case !s.Fails() && s.States[finding.Waived] > 0:
		return "No tenant is in reach of a failure that no waiver accepts."
	case !s.Fails():
		return "No tenant is in reach of a finding that fails."
	case s.Tenants == 0 && everyone:
		return "The failures name no tenant: they concern all tenants with a device here."
	case s.Tenants == 0:
		return "No failure concerns a function that a tenant has."
	case cross > 0:
		return fmt.Sprintf("The failures concern functions of %s with %s; %s between tenants now.",
			output.Count(s.Tenants, "tenant"), output.Count(s.Claims, "claim"), output.Count(cross, "failing rule is", "failing rules are"))
	}
	return fmt.Sprintf("The failures concern functions of %s with %s.", output.Count(s.Tenants, "tenant"), output.Count(s.Claims, "claim"))
}

func numbers(p *Page) []number {
	s := &p.Report.Summary
	var list []number
	for _, severity := range []rule.Severity{rule.Critical, rule.High, rule.Medium, rule.Low} {
		kind := ""
		if s.FailedRules[severity] > 0 {
			kind = "sev-" + string(severity)
		}
		list = append(list, number{fmt.Sprint(s.FailedRules[severity]), string(severity), kind, string(finding.Fail), severity})
	}
	unclear := s.RuleStates[finding.Unknown] + s.RuleStates[finding.Error]
	list = append(list,
		number{fmt.Sprint(unclear), "without an answer", kindIf(unclear > 0, "warn"), noAnswer, ""},
		number{fmt.Sprint(s.RuleStates[finding.Waived]), "waived", "", string(finding.Waived), ""},
		number{fmt.Sprint(s.RuleStates[finding.Pass]), output.Plural(s.RuleStates[finding.Pass], "pass", "passes"), "", string(finding.Pass), ""})
	if p.Inventory != nil {
		refused, all := countRefused(p.Inventory)
		list = append(list, number{Value: fmt.Sprint(refused), Label: fmt.Sprintf("of %s refused", output.Count(all, "function")), Kind: kindIf(refused > 0, "warn")})
	}
	return list
}

func kindIf(yes bool, kind string) string {
	if yes {
		return kind
	}
	return ""
}

// countRefused counts the functions of assignable types, and those of them for which claims are refused.
func countRefused(inv *audit.Inventory) (refused, all int) {
	for i := range inv.Devices {
		d := &inv.Devices[i]
		if !d.Assignable() {
			continue
		}
		all++
		if d.Grade() == audit.Bad {
			refused++
		}
	}
	return refused, all
}

// enumerate joins words: "a", "a and b", "a, b and c".
func enumerate(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " and " + words[last]
}
