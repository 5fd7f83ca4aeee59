package evidence

import (
	_ "embed" // the template
	"fmt"
	"html/template"
	"io"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/history"
	"github.com/kata-vfio/kata-vfio/pkg/terminal"
)

//go:embed evidence.html
var pageText string

// bar is one stay or tenancy in the timeline, in percent of its width.
type bar struct {
	From, Width float64
	Open        bool
}

// writeHTML writes one page that needs nothing but itself.
func (d *Document) writeHTML(w io.Writer) error {
	from, to := d.span()
	place := func(a time.Time, b *time.Time) bar {
		end := to
		if b != nil {
			end = *b
		}
		whole := max(to.Sub(from).Seconds(), 1)
		return bar{From: 100 * a.Sub(from).Seconds() / whole, Width: max(100*end.Sub(a).Seconds()/whole, 0.5), Open: b == nil}
	}
	t, err := template.New("evidence").Funcs(template.FuncMap{
		"stamp": stamp, "isolation": isolationWords, "before": before, "cleaning": cleaningWords, "place": place, "vmm": vmmWords,
		"until": endWords,
		"safe":  terminal.Visible, "pods": podNames, "claim": claimName, "numbers": numbers,
	}).Parse(pageText)
	if err != nil {
		return fmt.Errorf("read template: %w", err)
	}
	if err := t.Execute(w, map[string]any{"D": d, "Verdict": d.verdict(), "From": stamp(from), "To": stamp(to)}); err != nil {
		return fmt.Errorf("write evidence: %w", err)
	}
	return nil
}

// span is the time that the page is about: from the first tenancy's begin to the
// last thing that is known of any.
func (d *Document) span() (from, to time.Time) {
	see := func(t time.Time) {
		if from.IsZero() || t.Before(from) {
			from = t
		}
		if t.After(to) {
			to = t
		}
	}
	for _, t := range d.Tenancies {
		see(t.From)
		seeStays(t, see)
		if t.To != nil {
			see(*t.To)
		}
	}
	return from, to
}

func seeStays(t *history.Tenancy, see func(time.Time)) {
	for _, s := range t.Stays {
		see(s.From)
		if s.To != nil {
			see(*s.To)
		}
	}
	if t.After != nil {
		see(t.After.Time)
	}
}

func endWords(t *time.Time) string {
	if t == nil {
		return "now"
	}
	return stamp(*t)
}
