package gate_test

import (
	"slices"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/audit/check"
	"github.com/kata-vfio/kata-vfio/pkg/audit/check/gate"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// TestWeigh: which findings keep which of two functions from claims.
func TestWeigh(t *testing.T) {
	all, err := check.Catalogue()
	if err != nil {
		t.Fatal(err)
	}
	one, other := pci.Address{Bus: 1}, pci.Address{Bus: 2}
	fails := func(id string, severity rule.Severity, devices ...pci.Address) finding.Finding {
		return finding.Finding{ID: id, State: finding.Fail, Severity: severity, Devices: devices}
	}
	waived := func(rule, scope, until string) []finding.Waiver {
		return []finding.Waiver{{Rule: rule, Scope: scope, Until: until}}
	}
	for name, tt := range map[string]struct {
		findings      []finding.Finding
		counts        rule.Severity
		waivers       []finding.Waiver
		first, second []string
	}{
		"of one function":   {[]finding.Finding{fails("ACS-001", rule.High, one)}, rule.High, nil, []string{"ACS-001"}, nil},
		"of the whole node": {[]finding.Finding{fails("IOM-003", rule.Critical)}, rule.High, nil, []string{"IOM-003"}, []string{"IOM-003"}},
		"the worst first": {
			[]finding.Finding{fails("ACS-001", rule.High, one), fails("IOM-003", rule.Critical)},
			rule.High, nil,
			[]string{"IOM-003", "ACS-001"},
			[]string{"IOM-003"},
		},
		"less severe":          {[]finding.Finding{fails("ACS-004", rule.Medium, one)}, rule.High, nil, nil, nil},
		"less severe, counted": {[]finding.Finding{fails("ACS-004", rule.Medium, one)}, rule.Medium, nil, []string{"ACS-004"}, nil},
		"none counts":          {[]finding.Finding{fails("IOM-003", rule.Critical)}, finding.Off, nil, nil, nil},
		"which no configuration repairs": {
			[]finding.Finding{fails("NIC-007", rule.High, one)}, rule.High, nil, nil, nil,
		},
		"what is unknown": {[]finding.Finding{{ID: "IOM-003", State: finding.Unknown, Severity: rule.Critical}}, rule.High, nil, nil, nil},
		"of the whole node, accepted for one function": {
			[]finding.Finding{fails("ACS-007", rule.High)}, rule.High, waived("ACS-007", one.String(), "2026-12-01"), nil, []string{"ACS-007"},
		},
		"of two functions, accepted for one": {
			[]finding.Finding{fails("ACS-007", rule.High, one, other)}, rule.High, waived("ACS-007", one.String(), "2026-12-01"), nil, []string{"ACS-007"},
		},
		"accepted until yesterday": {
			[]finding.Finding{fails("ACS-007", rule.High)}, rule.High, waived("ACS-007", one.String(), "2026-11-21"), []string{"ACS-007"}, []string{"ACS-007"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := gate.Gate{Counts: tt.counts, Waivers: tt.waivers, Today: "2026-11-22", Checks: gate.Checks(all)}
			failures := g.Weigh(tt.findings, func(pci.Address, finding.Failure) bool { return false })
			if first, second := failures.IDs(one), failures.IDs(other); !slices.Equal(first, tt.first) || !slices.Equal(second, tt.second) {
				t.Errorf("%v and %v, want %v and %v", first, second, tt.first, tt.second)
			}
		})
	}
}
