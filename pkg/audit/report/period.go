package report

import (
	"fmt"
	"slices"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
)

// Period is the range of days whose reports are used, from the first to the last day, as YYYY-MM-DD in UTC. An empty day is no
// limit. The trend of each node compares the oldest report of the period with the latest one.
type Period struct {
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
}

// Check refuses an invalid period. The flags of its days are --from and --to.
func (p Period) Check() error {
	for _, day := range []struct{ flag, value string }{{"--from", p.From}, {"--to", p.To}} {
		if _, err := time.Parse(time.DateOnly, day.value); day.value != "" && err != nil {
			return fmt.Errorf("%s %.64q: want a date such as 2026-11-25", day.flag, day.value)
		}
	}
	if p.From != "" && p.To != "" && p.From > p.To {
		return fmt.Errorf("--from %s is after --to %s", p.From, p.To)
	}
	return nil
}

// String returns the period for people, such as "from 2026-11-01 to 2026-11-25".
func (p Period) String() string {
	switch {
	case p.From == "":
		return "until " + p.To
	case p.To == "":
		return "since " + p.From
	}
	return "from " + p.From + " to " + p.To
}

// reports returns the reports of the period.
func (p Period) reports(all []*finding.Report) []*finding.Report {
	return slices.DeleteFunc(slices.Clone(all), func(r *finding.Report) bool {
		day := reportTime(r).UTC().Format(time.DateOnly)
		return p.From != "" && day < p.From || p.To != "" && day > p.To
	})
}
