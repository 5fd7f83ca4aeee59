package report

import (
	"encoding/csv"
	"fmt"
	"io"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
)

// columns are those of the CSV form; their names are stable.
func columns() []string {
	return []string{
		"id", "title", "state", "severity", "exposure", "device", "object", "devices", "tenants", "text", "pending",
		"remediation", "verify", "evidence", "waiver_until", "waiver_author", "waiver_reason",
		"node", "boot_id", "time", "profile",
	}
}

func writeCSV(w io.Writer, d *Document) error {
	out := csv.NewWriter(w)
	rows := [][]string{columns()}
	for i := range d.Findings {
		f := &d.Findings[i]
		var seen []string
		for _, e := range f.Evidence {
			seen = append(seen, evidenceWords(&e))
		}
		waiver := finding.Waiver{}
		if f.Waiver != nil {
			waiver = *f.Waiver
		}
		rows = append(rows, harmless([]string{
			f.ID, f.Title, string(f.State), string(f.Severity), string(f.Exposure), address(f), f.Object,
			strings.Join(addresses(f), " "), strings.Join(f.Tenants, " "), f.Text, f.Pending,
			f.Remediation, f.Verify, strings.Join(seen, "; "), waiver.Until, waiver.Author, waiver.Reason,
			d.Subject.Name, d.Subject.BootID, d.Subject.Time, d.Profile,
		}))
	}
	if err := out.WriteAll(rows); err != nil {
		return fmt.Errorf("write report as CSV: %w", err)
	}
	return nil
}

// harmless keeps a spreadsheet from taking cells for formulas: an apostrophe in
// front makes them text (OWASP, CSV injection).
func harmless(cells []string) []string {
	for i, cell := range cells {
		if strings.IndexAny(strings.TrimLeft(cell, " "), "=+-@＝＋－＠") == 0 {
			cells[i] = "'" + cell
		}
	}
	return cells
}
