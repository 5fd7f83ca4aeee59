package topology

import (
	"fmt"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit"
)

// tooltip tells everything about a function in a few lines.
func tooltip(d *audit.Device) string {
	lines := []string{
		fmt.Sprintf("%s %s", d.Address, d.Type),
		fmt.Sprintf("%s [%s:%s], class %s", d.Product(), d.Vendor, d.Device, d.Class),
		"driver: " + firstOf(d.Driver, "none"),
	}
	if d.Group != nil {
		lines = append(lines, groupTitle(d))
	}
	if d.NUMANode != nil {
		lines = append(lines, fmt.Sprintf("NUMA node %d", *d.NUMANode))
	}
	if d.Link != nil {
		lines = append(lines, fmt.Sprintf("link: %s x%d", d.Link.Speed, d.Link.Width))
	}
	if d.Near != nil {
		lines = append(lines, nearLine(d))
	}
	if d.PFAddress != nil {
		lines = append(lines, fmt.Sprintf("VF %d of %s", *d.VFIndex, d.PFAddress))
	}
	if d.ACS != "" {
		lines = append(lines, "ACS: "+string(d.ACS))
	}
	if !d.IsBridge() {
		lines = append(lines, judged(d)...)
	}
	return strings.Join(lines, "\n")
}

// judged tells the verdict with its reasons.
func judged(d *audit.Device) []string {
	reset := "none"
	if d.Reset != nil {
		reset = d.Reset.Method
	}
	lines := []string{"reset: " + reset}
	for _, u := range d.Uses {
		lines = append(lines, "in use: "+u.String())
	}
	if d.Isolated {
		lines = append(lines, "isolated")
	}
	for _, r := range d.Reasons {
		lines = append(lines, fmt.Sprintf("not isolated (%s): %s", r.Severity, r.Text))
	}
	if d.Isolated && d.Grade() == audit.Bad {
		for _, r := range d.Against() {
			lines = append(lines, "every claim is refused: "+r.Text)
		}
	}
	for _, r := range d.Grave() {
		lines = append(lines, fmt.Sprintf("note (%s): %s", r.Severity, r.Text))
	}
	return lines
}
