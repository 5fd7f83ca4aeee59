package rule

import (
	"cmp"
	"slices"
)

// Failure is a rule that fails for a function or for its node, with its severity.
type Failure struct {
	ID       string   `json:"id"`
	Severity Severity `json:"severity"`
}

// Compare orders failures, the worst first, then by id.
func (f Failure) Compare(g Failure) int {
	return cmp.Or(f.Severity.Compare(g.Severity), cmp.Compare(f.ID, g.ID))
}

// WorstFirst returns failures in the order of [Failure.Compare], each rule once, with its worst severity.
func WorstFirst(failures []Failure) []Failure {
	ordered := slices.SortedFunc(slices.Values(failures), Failure.Compare)
	var once []Failure
	for _, f := range ordered {
		if !slices.ContainsFunc(once, func(o Failure) bool { return o.ID == f.ID }) {
			once = append(once, f)
		}
	}
	return once
}
