package finding

import (
	"cmp"
	"fmt"
	"slices"
	"sync"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// Check judges facts of one kind by a rule. The rule has the texts.
type Check[F any, A ~[]Finding] struct {
	// ID is the ID of the rule.
	ID string
	// Needs are the kinds of facts without which the answer is unknown.
	Needs []string
	// Judge returns one finding for each object that fails or is unknown, and one [Pass] for all others, or [NotApplicable]. It may
	// leave out fields that the rule has. A Severity that is set replaces the rule's severity in that case. An empty list is a bug,
	// and is reported as an [Error].
	Judge func(F) A
	// Review replaces Judge in a check that judges the audit itself. It runs last, on the findings of all other checks.
	Review func(A) A
	// Rule is filled in by [Join].
	Rule rule.Rule
}

// Join gives each check its rule, and returns the checks in the order of the rules. A rule without a check and a check without a rule
// are errors.
func Join[F any, A ~[]Finding](rules []rule.Rule, checks []Check[F, A]) ([]Check[F, A], error) {
	byID := map[string]Check[F, A]{}
	for _, c := range checks {
		if _, twice := byID[c.ID]; twice {
			return nil, fmt.Errorf("check %s is there twice", c.ID)
		}
		byID[c.ID] = c
	}
	joined := make([]Check[F, A], 0, len(rules))
	for _, r := range rules {
		c, ok := byID[r.ID]
		if !ok {
			return nil, fmt.Errorf("rule %s has no check", r.ID)
		}
		delete(byID, r.ID)
		c.Rule = r
		joined = append(joined, c)
	}
	for id := range byID {
		return nil, fmt.Errorf("check %s has no rule", id)
	}
	return joined, nil
}

// Rules returns the rules of checks.
func Rules[F any, A ~[]Finding](checks []Check[F, A]) []rule.Rule {
	rules := make([]rule.Rule, len(checks))
	for i := range checks {
		rules[i] = checks[i].Rule
	}
	return rules
}

// Options say how [Run] judges.
type Options struct {
	Profile Profile
	Waivers []Waiver
	// Today is the day that waivers are compared with, "2026-11-22".
	Today string
	// Together runs the checks in parallel. Leave it false for facts that are not safe for concurrent use: the checks then run one
	// after the other.
	Together bool
}

// Surroundings is the context of [Run] besides the facts that the checks judge.
type Surroundings interface {
	// Lacks says which of the kinds of facts are unavailable, and why. It is empty if all are available.
	Lacks(kinds []string) string
	// Expose sets the tenants and the exposure of a finding that needs attention.
	Expose(*Finding)
}

// Run runs the checks, completes their findings, sets severities by the profile, and applies the waivers. The caller sets the
// report's subject, and calls [Report.Finish].
func Run[F any, A ~[]Finding](facts F, around Surroundings, checks []Check[F, A], o Options) *Report {
	said := askAll(facts, around, checks, &o)
	r := &Report{Profile: o.Profile.Name, Findings: slices.Clone(said)}
	for i := range checks {
		if c := checks[i]; c.Review != nil {
			// A review does not see other reviews, so their order does not matter. It gets a copy, so it can't change the findings.
			c.Judge = func(F) A { return c.Review(slices.Clone(said)) }
			r.Findings = append(r.Findings, ask(facts, around, &c, &o.Profile)...)
		}
	}
	Apply(o.Waivers, o.Today, r.Findings)
	r.UnusedWaivers = Unused(o.Waivers, r.Findings)
	return r
}

// askAll returns the findings of the checks, in their order, without reviews.
func askAll[F any, A ~[]Finding](facts F, around Surroundings, checks []Check[F, A], o *Options) A {
	found := make([]A, len(checks))
	var asking sync.WaitGroup
	for i := range checks {
		switch {
		case checks[i].Review != nil:
		case o.Together:
			asking.Go(func() { found[i] = ask(facts, around, &checks[i], &o.Profile) })
		default:
			found[i] = ask(facts, around, &checks[i], &o.Profile)
		}
	}
	asking.Wait()
	return slices.Concat(found...)
}

// ask returns the completed findings of a check. If the profile sets a severity for the rule, all its findings have that severity.
func ask[F any, A ~[]Finding](facts F, around Surroundings, c *Check[F, A], profile *Profile) A {
	severity, named := profile.Severities[c.ID]
	found := A{{State: NotApplicable, Text: "profile " + profile.Name + " disables this check"}}
	switch missing := around.Lacks(c.Needs); {
	case severity == Off:
		// Off is not a severity. The finding, which is not applicable, keeps the rule's severity.
		named = false
	case missing != "":
		found = A{{State: Unknown, Text: missing}}
	default:
		found = c.Judge(facts)
	}
	if len(found) == 0 {
		found = A{{State: Error, Text: "the check returned no finding"}}
	}
	for i := range found {
		f := &found[i]
		if named {
			f.Severity = severity
		}
		judged := f.Exposure != ""
		c.complete(f)
		// A check that summarizes other reports has set the exposure from them. It can't be computed from the facts here.
		if f.State.needsAttention() && !judged {
			around.Expose(f)
		}
	}
	return found
}

// complete fills in the fields from the rule.
func (c *Check[F, A]) complete(f *Finding) {
	f.ID, f.Title, f.Severity, f.Exposure = c.ID, c.Rule.Title, cmp.Or(f.Severity, c.Rule.Severity), cmp.Or(f.Exposure, Unexposed)
	f.Verify = cmp.Or(f.Verify, c.Rule.Verify)
	if f.State.needsAttention() {
		f.Remediation = cmp.Or(f.Remediation, c.Rule.Fix)
	}
	if f.Device != nil && !slices.Contains(f.Devices, *f.Device) {
		f.Devices = append([]pci.Address{*f.Device}, f.Devices...)
	}
}

// needsAttention reports whether somebody should look at a finding.
func (s State) needsAttention() bool { return s != Pass && s != NotApplicable }
