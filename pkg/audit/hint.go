package audit

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/cli/terminal"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// hint is one reason and the functions that it is held against.
type hint struct {
	isolation.Reason
	affected []pci.Address
}

// hints gathers what an operator should look at, worst last, where the eye is
// when the table has scrolled by: every reason against a function, and notes
// of high severity. The same trouble of many functions is one hint.
func (inv *Inventory) hints() []hint {
	var hints []hint
	for i := range inv.Devices {
		d := &inv.Devices[i]
		if !d.Assignable() {
			continue
		}
		for _, r := range slices.Concat(d.against(), d.Grave()) {
			hints = gather(hints, r, d.Address)
		}
	}
	slices.SortStableFunc(hints, func(a, b hint) int { return b.Severity.Compare(a.Severity) })
	return hints
}

// against returns what an operator is to look at. That a function is in use is as it is
// to be.
func (d *Device) against() []isolation.Reason {
	if d.InUse() {
		return d.Reasons
	}
	return d.Against()
}

// Grave returns the notes of high severity or worse.
func (d *Device) Grave() []isolation.Reason {
	return slices.DeleteFunc(slices.Clone(d.Notes), func(r isolation.Reason) bool {
		return r.Severity.Compare(isolation.High) > 0
	})
}

func gather(hints []hint, r isolation.Reason, addr pci.Address) []hint {
	for i := range hints {
		if hints[i].Code == r.Code && sameAddress(hints[i].Culprit, r.Culprit) {
			hints[i].affected = append(hints[i].affected, addr)
			return hints
		}
	}
	return append(hints, hint{Reason: r, affected: []pci.Address{addr}})
}

func sameAddress(a, b *pci.Address) bool {
	return a == b || a != nil && b != nil && *a == *b
}

// text returns the hint as indented lines.
func (h *hint) text(style Style) string {
	const indent = "          "
	label := fmt.Sprintf("%-9s ", h.Severity)
	body := terminal.Wrap(terminal.Visible(h.Text)+h.others(), terminal.PageWidth-len(indent))
	body = append(body, terminal.Wrap("fix: "+terminal.Visible(h.Fix), terminal.PageWidth-len(indent))...)
	color := terminal.Yellow
	if h.Severity.Compare(isolation.High) <= 0 {
		color = terminal.Red
	}
	return style.paint(color, label) + strings.Join(body, "\n"+indent) + "\n"
}

// others names the further functions that the hint concerns.
func (h *hint) others() string {
	const shown = 3
	rest := h.affected[1:]
	if len(rest) == 0 {
		return ""
	}
	var names []string
	for _, a := range rest[:min(shown, len(rest))] {
		names = append(names, a.String())
	}
	text := "; so with " + strings.Join(names, ", ")
	if more := len(rest) - shown; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
