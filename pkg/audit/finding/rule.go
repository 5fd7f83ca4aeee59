package finding

import (
	"cmp"

	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

func compareText(a, b string) int { return cmp.Compare(a, b) }

// Profile is the purpose of a node, which determines the severities of its findings.
type Profile struct {
	Name string `json:"name"`
	// About is a sentence for people.
	About string `json:"about"`
	// Severities replaces the severities of rules. [Off] disables the rule: its finding is then notapplicable, and says so.
	Severities map[string]rule.Severity `json:"severities,omitempty"`
}

// Off in a profile's Severities disables a rule.
const Off rule.Severity = "off"

// Names of profiles.
const (
	MultiTenant  = "multi-tenant"
	SingleTenant = "single-tenant"
	Confidential = "confidential"
	Lab          = "lab"
)

// Profiles returns the profiles that come with the audit, the default first.
func Profiles() []Profile {
	return []Profile{
		{Name: MultiTenant, About: "untrusted tenants share the node"},
		{Name: SingleTenant, About: "the whole node is one tenant's: what only reaches itself weighs less", Severities: singleTenant()},
		{Name: Confidential, About: "the guests don't trust the node either", Severities: confidential()},
		{Name: Lab, About: "a machine for tests: missing hardware features are not failures", Severities: lab()},
	}
}

// ProfileNames returns the names of [Profiles], in their order.
func ProfileNames() []string {
	var names []string
	for _, p := range Profiles() {
		names = append(names, p.Name)
	}
	return names
}

// singleTenant returns the severities for nodes with one tenant: a path between two devices, or data left in a device, stays within
// the tenant. The severities for the protection of the host, and of pods without a device, are unchanged.
func singleTenant() map[string]rule.Severity {
	return severities(map[rule.Severity][]string{
		rule.Medium: {"RST-001", "RST-004", "RST-005", "RST-006", "NIC-001", "NIC-002", "NIC-003", "NIC-007", "NIC-015"},
		rule.Low: {
			"IOM-017", "ACS-001", "ACS-002", "ACS-003", "ACS-004", "ACS-005", "ACS-009", "ACS-010", "ACS-017",
			"RST-002", "RST-003", "RST-007", "RST-010", "GPU-001", "GPU-002", "GPU-004", "GPU-005", "GPU-006", "GPU-009",
			"NIC-004", "NIC-005", "NIC-010", "HOST-006", "HOST-009", "HOST-011",
		},
		rule.Info: {"ACS-008", "ACS-019", "NIC-009"},
	})
}

// confidential returns the severities for confidential guests, whose adversary is the node's operator: failures that let the host
// look into a guest, or start another guest instead, are more severe.
func confidential() map[string]rule.Severity {
	return severities(map[rule.Severity][]string{
		rule.Critical: {"CC-001", "GPU-007", "RT-006", "RT-015", "RT-023"},
		rule.High: {
			"IOM-022", "RT-001", "RT-008", "RT-014", "RT-017", "RT-020", "RT-022",
			"HOST-001", "HOST-002", "HOST-003", "HOST-012",
		},
		rule.Medium: {"CC-003", "HOST-015", "RT-021"},
	})
}

// lab returns the severities for test machines: their firmware, CPU and boards can't be changed, and they need neither attestation
// nor anchors of their ledger.
func lab() map[string]rule.Severity {
	return severities(map[rule.Severity][]string{
		Off: {"CC-001", "CC-003", "HOST-015", "HOST-016", "HOST-019"},
		rule.Info: {
			"IOM-009", "IOM-023", "ACS-008", "ACS-012", "ACS-013", "ACS-014", "RST-002", "RST-006", "RST-007", "RST-013",
			"GPU-005", "GPU-008", "NIC-010", "HOST-001", "HOST-002", "HOST-003", "HOST-004", "HOST-006", "HOST-010", "HOST-012",
			"OBS-002", "VFIO-012",
		},
		rule.Medium: {"IOM-005", "IOM-010", "ACS-010"},
	})
}

// severities turns lists into the map of [Profile].
func severities(lists map[rule.Severity][]string) map[string]rule.Severity {
	all := map[string]rule.Severity{}
	for severity, ids := range lists {
		for _, id := range ids {
			all[id] = severity
		}
	}
	return all
}
