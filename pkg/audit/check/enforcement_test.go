package check_test

import (
	"slices"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/audit/check"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// TestGateWithoutChecksFails: claims get no device that no check has judged.
func TestGateWithoutChecksFails(t *testing.T) {
	g := check.Enforcement{Counts: rule.High, Today: "2026-11-22"}
	failures := g.Weigh(g.Ask(nil), func(pci.Address, rule.Failure) bool { return false })
	if got, want := failures.IDs(pci.Address{Bus: 1}), []string{"OBS-004"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestNodeWideFailureIsWaived: a failure of the whole node is accepted for one function, for the node, or for all. A waiver that
// matches no failure is reported.
func TestNodeWideFailureIsWaived(t *testing.T) {
	all, err := check.Catalogue()
	if err != nil {
		t.Fatal(err)
	}
	one, other := pci.Address{Bus: 1}, pci.Address{Bus: 2}
	const id, object = "ACS-007", "/etc/modprobe.d/x.conf"
	fails := []string{id}
	for name, tt := range map[string]struct {
		finding       finding.Finding
		scope         string
		first, second []string
		unused        bool
	}{
		"for one function":                   {finding.Finding{}, one.String(), nil, fails, false},
		"for the node":                       {finding.Finding{}, finding.WholeNode, nil, nil, false},
		"for all":                            {finding.Finding{}, "*", nil, nil, false},
		"for an object that it doesn't name": {finding.Finding{}, object, fails, fails, true},
		"of an object, for one function":     {finding.Finding{Object: object}, one.String(), nil, fails, false},
		"of an object, for the object":       {finding.Finding{Object: object}, object, nil, nil, false},
		"of an object, for the node":         {finding.Finding{Object: object}, finding.WholeNode, fails, fails, true},
		"of two functions, for the other":    {finding.Finding{Devices: []pci.Address{one, other}}, other.String(), fails, nil, false},
		"of one function, for the other":     {finding.Finding{Device: &one, Devices: []pci.Address{one}}, other.String(), fails, nil, true},
		"of one function, for the node":      {finding.Finding{Device: &one, Devices: []pci.Address{one}}, finding.WholeNode, fails, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			f := tt.finding
			f.ID, f.State, f.Severity = id, finding.Fail, rule.High
			found := []finding.Finding{f}
			g := check.Enforcement{Counts: rule.High, Today: "2026-11-22", Checks: check.Checks(all), Waivers: []finding.Waiver{{Rule: id, Scope: tt.scope, Until: "2026-12-01"}}}
			finding.Apply(g.Waivers, g.Today, found)
			failures := g.Weigh(found, func(pci.Address, rule.Failure) bool { return false })
			if first, second := failures.IDs(one), failures.IDs(other); !slices.Equal(first, tt.first) || !slices.Equal(second, tt.second) {
				t.Errorf("got %v and %v, want %v and %v", first, second, tt.first, tt.second)
			}
			if got := len(finding.Unused(g.Waivers, found)) == 1; got != tt.unused {
				t.Errorf("reported as unused: got %t, want %t", got, tt.unused)
			}
		})
	}
}

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
	waived := func(ruleID, scope, until string) []finding.Waiver {
		return []finding.Waiver{{Rule: ruleID, Scope: scope, Until: until}}
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
			g := check.Enforcement{Counts: tt.counts, Waivers: tt.waivers, Today: "2026-11-22", Checks: check.Checks(all)}
			failures := g.Weigh(tt.findings, func(pci.Address, rule.Failure) bool { return false })
			if first, second := failures.IDs(one), failures.IDs(other); !slices.Equal(first, tt.first) || !slices.Equal(second, tt.second) {
				t.Errorf("%v and %v, want %v and %v", first, second, tt.first, tt.second)
			}
		})
	}
}
