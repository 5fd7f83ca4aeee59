package finding

import (
	"cmp"
	"fmt"
	"slices"
	"sync"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// Check is how facts of one kind are judged by a rule. The rule has the words.
type Check[F any, A ~[]Finding] struct {
	// ID is the rule's.
	ID string
	// Needs are the kinds of facts without which nothing can be said.
	Needs []string
	// Judge returns one finding for each object that fails or is unknown, and one [Pass] for all others, or [NotApplicable]. It may
	// leave out what the rule says already. A Severity that is set replaces the rule's for that case. An empty list is a bug, and
	// reported as one.
	Judge func(F) A
	// Review takes the place of Judge in a check of the audit itself: it is asked last, of what all others have said.
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
	// Today is the day that waivers are held against, "2026-11-22".
	Today string
	// Together asks the checks side by side. Without it they are asked in their order, for facts that are no good for concurrent use.
	Together bool
}

// Surroundings is what [Run] must know besides the facts that the checks judge.
type Surroundings interface {
	// Lacks says which of the kinds of facts can't be had, and why. It is empty if all can.
	Lacks(kinds []string) string
	// Expose says who is in reach of a finding that needs attention.
	Expose(*Finding)
}

// Run asks the checks, completes what they found, weighs it by the profile, and applies the waivers. Whoever calls it sets the
// report's subject, and finishes it ([Report.Finish]).
func Run[F any, A ~[]Finding](facts F, around Surroundings, checks []Check[F, A], o Options) *Report {
	said := askAll(facts, around, checks, &o)
	r := &Report{Profile: o.Profile.Name, Findings: slices.Clone(said)}
	for i := range checks {
		if c := checks[i]; c.Review != nil {
			c.Judge = func(F) A { return c.Review(slices.Clone(said)) }
			r.Findings = append(r.Findings, ask(facts, around, &c, &o.Profile)...)
		}
	}
	Apply(o.Waivers, o.Today, r.Findings)
	r.UnusedWaivers = Unused(o.Waivers, r.Findings)
	return r
}

// askAll returns what the checks found, in their order, without reviews.
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

// ask returns a check's findings, complete. A severity of the profile's counts for all findings of a rule.
func ask[F any, A ~[]Finding](facts F, around Surroundings, c *Check[F, A], profile *Profile) A {
	severity, named := profile.Severities[c.ID]
	found := A{{State: NotApplicable, Text: "profile " + profile.Name + " disables this check"}}
	switch missing := around.Lacks(c.Needs); {
	case severity == Off:
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
		c.complete(f)
		if f.State.needsAttention() {
			around.Expose(f)
		}
	}
	return found
}

// complete fills in what the rule says.
func (c *Check[F, A]) complete(f *Finding) {
	f.ID, f.Title, f.Severity, f.Exposure = c.ID, c.Rule.Title, cmp.Or(f.Severity, c.Rule.Severity), Unexposed
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
