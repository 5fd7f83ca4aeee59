package check_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/audit/check/board"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
)

func vfioKernelFaults() []fault {
	return []fault{
		{rule: "VFIO-016", about: "any kernel", board: board.Server, state: finding.Manual, plant: func(*board.Tree) {}},
		{rule: "VFIO-016", about: "a kernel that does not say its number", board: board.Server, state: finding.Unknown, plant: func(t *board.Tree) {
			t.Delete("proc/sys/kernel/osrelease")
		}},
	}
}

// TestKernelsByTheirNumber: a number tells that a fix is there, never that all are.
func TestKernelsByTheirNumber(t *testing.T) {
	const latest, branched, older = "CVE-2024-26812", "CVE-2024-26810 (", "CVE-2020-12888"
	for release, open := range map[string][]string{
		"6.9.0":                nil,
		"6.12.107+deb13-amd64": nil, // Debian 13's
		"6.12.0-sysfstest":     nil,
		"7.0":                  nil,
		"6.6.95-flatcar":       {latest},
		"6.6.24":               {latest},
		"6.6.23":               {latest, branched},
		"6.8.0-40-generic":     {latest}, // Ubuntu's: its own number is behind the dash
		"6.5.13":               {latest, branched},
		"5.14.0-503.el9":       {latest},
		"4.18.0-553.el8_10":    {latest, older, "CVE-2019-3882"},
		"6.9.0-rc1":            {latest, older},
		"not a number":         {latest, older},
		"6":                    {latest, older},
		"6.x.1":                {latest, older},
		"6.1.0-18-amd64":       {latest}, // Debian's
		"5.15.154-1-default":   {latest},
	} {
		tree := board.Server(t)
		tree.Put("proc/sys/kernel/osrelease", release+"\n")
		for _, f := range audit(t, tree).Findings {
			if f.ID != "VFIO-016" {
				continue
			}
			if f.State != finding.Manual || len(f.Evidence) == 0 || len(f.Devices) == 0 {
				t.Errorf("%s: %s, %d devices, evidence %v", release, f.State, len(f.Devices), f.Evidence)
			}
			if asks := strings.Contains(f.Text, "does not say"); asks != (len(open) > 0) {
				t.Errorf("%s: %s", release, f.Text)
			}
			for _, cve := range open {
				if !strings.Contains(f.Text, cve) {
					t.Errorf("%s: it does not name %s: %s", release, cve, f.Text)
				}
			}
			if strings.HasPrefix(release, "6.6.") && strings.Contains(f.Text, branched) != slices.Contains(open, branched) {
				t.Errorf("%s: the fix of its branch counts otherwise: %s", release, f.Text)
			}
		}
	}
}
