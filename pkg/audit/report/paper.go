package report

import (
	"fmt"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
)

// paper is a printed report's short form of the findings: a row for each rule that fails or has no answer. Its
// length is bounded for every node.
type paper struct {
	Fails, Unclear paperTable
}

// Few returns the first of the item's tenants.
func (it *item) Few() []tenant { return it.Tenants[:min(len(it.Tenants), maxFew)] }

// paperTable is the rows of some states.
type paperTable struct {
	Rows []paperRow
	// Left is the number of rules without a row.
	Left int
}

// paperRow is a rule in a state.
type paperRow struct {
	Item *item
	Text string
	// At names the objects of the findings, and Beyond counts the others.
	At     string
	Beyond int
}

// Limits that keep a report on paper at a few pages.
const (
	maxPaperFails   = 22  // rows
	maxPaperUnclear = 14  // rows
	maxPaperText    = 180 // characters of a text
	maxPaperNames   = 6   // names in a row
	maxPaperName    = 32  // characters of a name
	maxBrief        = 240 // characters of the first fix
	maxFew          = 4   // tenants
)

func newPaper(items []item) paper {
	var p paper
	for i := range items {
		switch it := &items[i]; it.State {
		case finding.Fail:
			p.Fails.add(it, maxPaperFails)
		case finding.Unknown, finding.Error:
			p.Unclear.add(it, maxPaperUnclear)
		case finding.Pass, finding.NotApplicable, finding.Manual, finding.Waived:
		}
	}
	return p
}

func (t *paperTable) add(it *item, most int) {
	if len(t.Rows) >= most {
		t.Left++
		return
	}
	row := paperRow{Item: it, Text: it.Rule.Title}
	if len(it.Findings) > 0 {
		row.Text = output.ShortenWords(it.Findings[0].Text, maxPaperText)
	}
	var names []string
	for i := range it.Findings {
		names = append(names, subject(&it.Findings[i]))
	}
	names = append(names, it.More...)
	shown := names[:min(len(names), maxPaperNames)]
	row.Beyond = len(names) - len(shown) + it.Left
	for i, name := range shown {
		shown[i] = output.ShortenWords(name, maxPaperName)
	}
	row.At = strings.Join(shown, ", ")
	t.Rows = append(t.Rows, row)
}

// brief shortens a text for the place beside the verdict. The finding has all of it.
func brief(text string) string { return output.ShortenWords(text, maxBrief) }

// maxRunning limits the subject at the foot of a sheet: half a line.
const maxRunning = 70

// paperFoot returns the styles that print the subject and the page's number at the foot of each sheet. They do not depend on the
// browser's own header, which can be turned off.
func paperFoot(subject string) string {
	const font = "font-size:8pt;color:#59636e"
	return fmt.Sprintf(`@page{@bottom-left{content:"%s";%s}@bottom-right{content:"page " counter(page) " of " counter(pages);%s}}`,
		styleText(output.ShortenWords(output.Visible(subject), maxRunning)), font, font)
}

// styleText returns a text as it is written between quotes in a style sheet. All but plain characters are escaped by number (CSS
// Syntax 4.3.7), so that a node's name can't end the text or the style sheet.
func styleText(text string) string {
	var b strings.Builder
	for _, r := range text {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', strings.ContainsRune(" .,-:", r):
			b.WriteRune(r)
		default:
			fmt.Fprintf(&b, `\%06x`, r) // six digits: a following digit is not of the number
		}
	}
	return b.String()
}
