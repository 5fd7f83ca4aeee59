// Package ruletest checks in tests that each code with which a gate refuses has a text that names this gate, because users read
// there where a code refuses.
package ruletest

import (
	"slices"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// RefusedAt checks that the text of each code says that the point refuses because of it. An empty code stands for no refusal.
func RefusedAt(t testing.TB, point rule.EnforcementPoint, codes ...rule.Code) {
	t.Helper()
	texts, err := rule.Texts()
	if err != nil {
		t.Fatal(err)
	}
	for _, code := range codes {
		if code == "" {
			continue
		}
		if text, ok := rule.Find(texts, string(code)); !ok || !slices.Contains(text.Enforced, point) {
			t.Errorf("refused at %s with %s, whose text in pkg/rule/texts.yaml does not say so; want enforced: %s", point, code, point)
		}
	}
}

// VerdictsAt is RefusedAt for the codes of verdicts.
func VerdictsAt(t testing.TB, point rule.EnforcementPoint, verdicts []rule.Verdict) {
	t.Helper()
	for i := range verdicts {
		RefusedAt(t, point, verdicts[i].Code)
	}
}

// ErrorAt checks that an error has a code, as conditions and Events show it, and that the text of the code says that the point refuses
// because of it.
func ErrorAt(t testing.TB, point rule.EnforcementPoint, err error, want rule.Code) {
	t.Helper()
	if got := rule.Classify(err); got != want {
		t.Errorf("%v has code %s, want %s", err, got, want)
	}
	RefusedAt(t, point, want)
}
