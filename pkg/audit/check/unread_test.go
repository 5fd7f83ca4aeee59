package check_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
	"github.com/kata-vfio/kata-vfio/test/board"
)

// TestWhyRegistersAreUnread: registers of a device that does not answer are unread because of the device, and not because the audit lacks a privilege.
func TestWhyRegistersAreUnread(t *testing.T) {
	cut := func(t *board.Tree, name string) { t.CutConfig(t.Devices[name]) }
	dead := func(t *board.Tree, name string) { t.FallOff(t.Devices[name]) }
	for name, tt := range map[string]struct {
		plant func(*board.Tree)
		texts []string
		needs bool
	}{
		"one does not answer": {
			func(t *board.Tree) { dead(t, "left") },
			[]string{"can't tell the extended capabilities of 1 function: 0000:23:00.0 does not answer"},
			false,
		},
		"two do not answer": {
			func(t *board.Tree) { dead(t, "left"); dead(t, "right") },
			[]string{"can't tell the extended capabilities of 2 functions: 0000:23:00.0 does not answer"},
			false,
		},
		"the reader has no privilege": {
			func(t *board.Tree) { cut(t, "left") },
			[]string{"can't tell the extended capabilities of 1 function: /sys/bus/pci/devices/0000:23:00.0/config: configuration space is readable in part only"},
			true,
		},
		"both": {
			func(t *board.Tree) { dead(t, "left"); cut(t, "right") },
			[]string{
				"can't tell the extended capabilities of 1 function: /sys/bus/pci/devices/0000:24:00.0/config: configuration space is readable in part only",
				"can't tell the extended capabilities of 1 function: 0000:23:00.0 does not answer",
			},
			true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			tree := board.Switch(t)
			tt.plant(tree)
			var texts []string
			needs := false
			for _, f := range audit(t, tree).Findings {
				if f.State != finding.Unknown {
					continue
				}
				if f.ID == "ACS-003" {
					texts = append(texts, f.Text)
				}
				needs = needs || slices.ContainsFunc(f.Evidence, func(e rule.Evidence) bool { return e.Error != "" && e.Needs == facts.OfConfigSpace })
			}
			slices.Sort(texts)
			slices.Sort(tt.texts)
			if diff := cmp.Diff(tt.texts, texts); diff != "" {
				t.Errorf("ACS-003 says (-want +got):\n%s", diff)
			}
			if needs != tt.needs {
				t.Errorf("the audit lacks %s: %t, want %t", facts.OfConfigSpace, needs, tt.needs)
			}
			for _, f := range audit(t, tree).Findings {
				if f.ID == "OBS-004" && strings.Contains(f.Text, facts.OfConfigSpace) != tt.needs {
					t.Errorf("OBS-004 says %q", f.Text)
				}
			}
		})
	}
}
