package page

import (
	"cmp"
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
)

// ruleGroup is the rules of one group, each with what came of it.
type ruleGroup struct {
	Group string
	Rules []asked
}

// asked is a rule and what came of it.
type asked struct {
	finding.Rule
	Items []item
}

func ruleGroupsOf(rules []finding.Rule, items []item) []ruleGroup {
	sorted := slices.Clone(rules)
	slices.SortStableFunc(sorted, func(a, b finding.Rule) int { return cmp.Compare(a.ID, b.ID) })
	var groups []ruleGroup
	for _, r := range sorted {
		last := len(groups) - 1
		if last < 0 || groups[last].Group != r.Group() {
			groups = append(groups, ruleGroup{Group: r.Group()})
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

// need is a privilege that reads were without.
type need struct {
	What  string
	Reads int
}

// needsOf counts what could not be read, by what would help.
func needsOf(findings []finding.Finding) []need {
	count := map[string]int{}
	for i := range findings {
		for _, e := range findings[i].Evidence {
			if e.Needs != "" && e.Error != "" {
				count[e.Needs]++
			}
		}
	}
	var needs []need
	for what, n := range count {
		needs = append(needs, need{what, n})
	}
	slices.SortFunc(needs, func(a, b need) int { return cmp.Compare(a.What, b.What) })
	return needs
}
