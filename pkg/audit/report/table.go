package report

import (
	"fmt"
	"io"
	"strings"
)

func writeTable(w io.Writer, d *Document, _ Options) error {
	var b strings.Builder
	for i := range d.Findings {
		f := &d.Findings[i]
		fmt.Fprintf(&b, "%-13s %-9s %-9s %s: %s\n", f.State, f.Severity, f.ID, f.Title, f.Text)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
