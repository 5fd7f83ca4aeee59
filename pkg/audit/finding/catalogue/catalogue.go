// Package catalogue has the texts of the rules that kata-vfio-audit checks on a node, for programs that explain findings
// and judge nothing: kubectl-kata_vfio also runs where the checks can't be compiled.
package catalogue

import (
	_ "embed"
	"encoding/json"
	"fmt"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
)

// rules.json is written by the test of pkg/audit/check that compares it with the checks.
//
//go:embed rules.json
var rules []byte

// Rules returns the rules in order of their groups and numbers.
func Rules() ([]finding.Rule, error) {
	var all []finding.Rule
	if err := json.Unmarshal(rules, &all); err != nil {
		return nil, fmt.Errorf("decode the embedded rules: %w", err)
	}
	return all, nil
}
