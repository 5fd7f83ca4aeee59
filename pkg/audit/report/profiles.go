package report

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/cli/encode"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
)

// WriteProfiles writes what each profile is for and which rules weigh otherwise in
// it; format is table or json.
func WriteProfiles(w io.Writer, profiles []finding.Profile, format string) error {
	if format == "json" {
		return encode.JSON(w, "profiles", map[string]any{"profiles": profiles})
	}
	var b strings.Builder
	for i, p := range profiles {
		if i > 0 {
			b.WriteString("\n")
		}
		about := p.About
		if i == 0 {
			about += " (the default)"
		}
		fmt.Fprintf(&b, "%s: %s\n", p.Name, about)
		for _, severity := range append(finding.Severities(), finding.Off) {
			if ids := weighing(&p, severity); len(ids) > 0 {
				writeColumns(&b, []int{2, 10}, "", string(severity), strings.Join(ids, " "))
			}
		}
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("write profiles: %w", err)
	}
	return nil
}

// weighing returns the rules that a profile gives the severity, in the order of the
// catalogue.
func weighing(p *finding.Profile, severity isolation.Severity) []string {
	var ids []string
	for _, g := range finding.Groups() {
		for _, id := range slices.Sorted(maps.Keys(p.Severities)) {
			if strings.HasPrefix(id, g.Letters+"-") && p.Severities[id] == severity {
				ids = append(ids, id)
			}
		}
	}
	return ids
}
