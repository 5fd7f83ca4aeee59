package evidence

import (
	"io"

	"github.com/kata-vfio/kata-vfio/pkg/audit/page"
)

// writeHTML writes one page that needs nothing but itself.
func (d *Document) writeHTML(w io.Writer) error {
	return page.WriteAnswer(w, &page.Answer{
		Question: d.Question, Verdict: d.verdict(), Node: d.Node, Tenancies: d.Tenancies, Neighbours: d.Neighbours,
		Refusals: d.Refusals, Verification: d.Ledger,
	})
}
