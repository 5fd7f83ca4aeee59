// Package candidatetest compares an audit's prediction for a node before bootstrap with the audit after it.
package candidatetest

import (
	"fmt"
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/audit"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
)

// Violations returns the differences between the audit of a candidate and the audit after bootstrap, with its reboot: a check that
// was to pass and does not, a failure that was to remain and is gone, and a failure that was not predicted.
func Violations(c *audit.Candidate, after *finding.Report) []string {
	fails := map[string]bool{}
	for _, f := range after.Findings {
		fails[f.ID] = fails[f.ID] || f.State == finding.Fail || f.State == finding.Unknown || f.State == finding.Error
	}
	said, all := Said(c), []string{}
	for id, what := range said {
		switch {
		case what == "repaired" && fails[id]:
			all = append(all, fmt.Sprintf("%s was to pass, but does not", id))
		case what == "remaining" && !fails[id]:
			all = append(all, fmt.Sprintf("%s was to fail still, but does not", id))
		}
	}
	for id, fail := range fails {
		if fail && said[id] == "" {
			all = append(all, fmt.Sprintf("%s does not pass, and it was not said that it may", id))
		}
	}
	slices.Sort(all)
	return all
}

// Said returns the prediction for each check: repaired, remaining, open or unknown.
func Said(c *audit.Candidate) map[string]string {
	said := map[string]string{}
	for _, r := range c.Repaired {
		said[r.ID] = "repaired"
	}
	for _, f := range c.Remaining {
		said[f.ID] = "remaining"
	}
	for _, r := range c.Open {
		said[r.ID] = "open"
	}
	for _, f := range c.Unknown {
		said[f.ID] = "unknown"
	}
	return said
}
