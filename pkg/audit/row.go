package audit

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// row is one function in a table, with its place in its group.
type row struct {
	device Device
	// bracket joins adjacent rows of one group.
	bracket string
	// hidden counts members of the group that the table leaves out.
	hidden int
}

// rows returns the functions to show: the members of a group one after the other, and groups by their lowest address.
func (inv *Inventory) rows(bridges bool) []row {
	var rows []row
	shown := map[int]int{}
	for i := range inv.Devices {
		d := &inv.Devices[i]
		if !bridges && d.IsBridge() {
			continue
		}
		rows = append(rows, row{device: *d})
		if d.Group != nil {
			shown[*d.Group]++
		}
	}
	slices.SortStableFunc(rows, func(a, b row) int { return a.lead().Compare(b.lead()) })
	for i := range rows {
		r := &rows[i]
		r.bracket = r.place(i > 0 && r.sameGroup(&rows[i-1]), i < len(rows)-1 && r.sameGroup(&rows[i+1]))
		if r.device.Group != nil {
			r.hidden = len(r.device.GroupMembers) - shown[*r.device.Group]
		}
	}
	return rows
}

// lead is the lowest address of the function's group.
func (r *row) lead() pci.Address {
	if len(r.device.GroupMembers) == 0 {
		return r.device.Address
	}
	return slices.MinFunc(r.device.GroupMembers, pci.Address.Compare)
}

// place returns the bracket of a row with group mates above and below it.
func (r *row) place(above, below bool) string {
	switch {
	case above && below:
		return "│"
	case above:
		return "╰"
	case below:
		return "╭"
	}
	return " "
}

func (r *row) sameGroup(other *row) bool {
	return r.device.Group != nil && other.device.Group != nil && *r.device.Group == *other.device.Group
}

// name returns the function's name, or "-" if only its ids are known, because the ids have their own column.
func (r *row) name() string {
	if r.device.Model == "" && r.device.VendorName == "" {
		return "-"
	}
	return r.device.Product()
}

func (r *row) numa() string { return number(r.device.NUMANode) }

// group shows the number, and "+1" for a bridge of the group that is not shown.
func (r *row) group() string {
	if r.device.Group == nil {
		return "  -"
	}
	text := r.bracket + " " + number(r.device.Group)
	if r.hidden > 0 {
		text += fmt.Sprintf("+%d", r.hidden)
	}
	return text
}

func (r *row) verdict() string {
	switch r.device.Grade() {
	case None:
		if r.device.IsBridge() {
			return "-"
		}
		if text := cmp.Or(r.device.Waits(), r.device.LeftOut()); text != "" {
			return "isolated, " + text
		}
		if r.device.has(rule.PFStaysOnHost) {
			return "isolated, stays on host"
		}
		return "isolated, in use"
	case Good:
		if r.device.serves != nil && r.device.isLeftOut() {
			return "goes with " + r.device.serves.String()
		}
		if r.device.Type == device.GPUVF {
			return "isolated, boundary " + string(r.device.Boundary)
		}
		return "isolated"
	case Concern:
		return "isolated, " + firstCode(r.device.Grave())
	case Bad:
		return r.device.failedCheck(firstCode(r.device.Against()))
	}
	return ""
}

// failedCheck returns the verdict with "fails ACS-006" instead of the code, if the reason is a failing check.
func (d *Device) failedCheck(verdict string) string {
	for i := range d.Refusals {
		if r := &d.Refusals[i]; r.Check != "" {
			return strings.Replace(verdict, string(r.Code), "fails "+r.Check, 1)
		}
	}
	return verdict
}

// firstCode names the worst of the reasons and counts the others.
func firstCode(reasons []rule.Verdict) string {
	text := string(reasons[0].Code)
	if more := len(reasons) - 1; more > 0 {
		text += fmt.Sprintf(" +%d", more)
	}
	return text
}

func (r *row) pcieSwitch() string {
	if r.device.Switch == nil {
		return "-"
	}
	return r.device.Switch.String()
}

// near returns the first neighbor, and the number of the others.
func (r *row) near() string {
	if r.device.Near == nil {
		return "-"
	}
	text := r.device.Near.Nearness + " " + r.device.Near.Addresses[0].String()
	if more := len(r.device.Near.Addresses) - 1; more > 0 {
		text += fmt.Sprintf(" +%d", more)
	}
	return text
}

func (r *row) link() string {
	if r.device.Link == nil {
		return "-"
	}
	return fmt.Sprintf("%s x%d", r.device.Link.Speed, r.device.Link.Width)
}

func (r *row) reset() string {
	if r.device.Reset == nil {
		return "-"
	}
	return resetWord(&r.device)
}

// resetWord returns the reset method, marked as weak if the vendor does not say that it clears memory. The method "pm" gets no
// mark, because the verdict says this.
func resetWord(d *Device) string {
	if d.Reset.Method != isolation.PM && isolation.IsWeak(d.Vendor, d.PFAddress != nil, d.Reset.Method) {
		return d.Reset.Method + " (" + isolation.Weak + ")"
	}
	return d.Reset.Method
}

func (r *row) sriov() string {
	switch {
	case r.device.PF != nil:
		return fmt.Sprintf("%d of %s", r.device.PF.NumVFs, output.Count(r.device.PF.TotalVFs, "VF"))
	case r.device.PFAddress != nil:
		return fmt.Sprintf("VF %d of %s", *r.device.VFIndex, r.device.PFAddress)
	}
	return "-"
}

// used returns the first use of the function by its node, and the number of the others.
func (r *row) used() string {
	switch len(r.device.Uses) {
	case 0:
		return "-"
	case 1:
		return r.device.Uses[0].String()
	}
	return fmt.Sprintf("%s, and %d more", r.device.Uses[0], len(r.device.Uses)-1)
}

// hint is one reason and the functions that have it.
type hint struct {
	verdict  rule.Verdict
	affected []pci.Address
}

// hints returns the problems for an operator: every reason against a function, and notes of high severity. The worst comes last,
// where a reader sees it after the table has scrolled by. The same problem of many functions is one hint.
func (inv *Inventory) hints() []hint {
	var hints []hint
	for i := range inv.Devices {
		d := &inv.Devices[i]
		// A rule for a vendor's devices seems to select switch parts, but does not. So the hint says which rule would.
		if r := d.leaving(); r != nil && d.IsSwitchPart() {
			said := *r
			said.Severity = rule.Info
			hints = gather(hints, said, d.Address)
		}
		if !d.Assignable() {
			continue
		}
		for _, r := range slices.Concat(d.against(), d.Grave()) {
			hints = gather(hints, r, d.Address)
		}
	}
	slices.SortStableFunc(hints, func(a, b hint) int { return b.verdict.Severity.Compare(a.verdict.Severity) })
	return hints
}

// against returns the problems of a function that an operator should see. Refusals are left out for a function in use, which is
// intended, and for a function that waits: a sanitizing stage ends by itself, and the tenant of an exclusive domain can get the
// free functions in it.
func (d *Device) against() []rule.Verdict {
	if d.InUse() || d.Waits() != "" {
		return d.Reasons
	}
	return d.Against()
}

// Grave returns the notes of high severity or worse.
func (d *Device) Grave() []rule.Verdict {
	return slices.DeleteFunc(slices.Clone(d.Notes), func(r rule.Verdict) bool {
		return r.Severity.Compare(rule.High) > 0
	})
}

func gather(hints []hint, r rule.Verdict, addr pci.Address) []hint {
	for i := range hints {
		if hints[i].verdict.Code == r.Code && sameAddress(hints[i].verdict.Culprit, r.Culprit) {
			hints[i].affected = append(hints[i].affected, addr)
			return hints
		}
	}
	return append(hints, hint{verdict: r, affected: []pci.Address{addr}})
}

func sameAddress(a, b *pci.Address) bool {
	return a == b || a != nil && b != nil && *a == *b
}

// text returns the hint as indented lines.
func (h *hint) text(style Style) string {
	const indent = "          "
	label := fmt.Sprintf("%-9s ", h.verdict.Severity)
	width := style.width() - len(indent)
	body := output.Wrap(output.Visible(h.verdict.Text)+h.others(), width)
	body = append(body, output.Wrap("fix: "+output.Visible(h.verdict.Fix), width)...)
	color := output.Yellow
	if h.verdict.Severity.Compare(rule.High) <= 0 {
		color = output.Red
	}
	return style.paint(color, label) + strings.Join(body, "\n"+indent) + "\n"
}

// others names the other functions that have the problem.
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
