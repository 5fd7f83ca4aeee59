package lint

import (
	_ "embed"
)

// chartPolicies are the policies of the chart with its own values, as helm renders them. TestLintHasThePoliciesOfTheChart of test/e2e
// writes the file (-update), and holds it against the chart.
//
//go:embed policies.yaml
var chartPolicies []byte

// OfChart returns the policies that a cluster has if the chart is installed with its own values.
func OfChart() (*Policies, error) { return ParsePolicies(chartPolicies) }
