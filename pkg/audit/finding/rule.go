package finding

import (
	"cmp"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

func compareText(a, b string) int { return cmp.Compare(a, b) }

// Rule is what a check looks for and why. IDs and their meaning are stable: a
// rule that changes its meaning gets a new one.
type Rule struct {
	// ID is the group and a number, "IOM-003".
	ID string `json:"id"`
	// Title is what the check ensures, "Ensure that VFIO's no-IOMMU mode is off".
	Title string `json:"title"`
	// Severity is that for untrusted tenants; see [Profile].
	Severity rule.Severity `json:"severity"`
	// Why says what a failure means, in sentences.
	Why string `json:"why"`
	// Fix and Verify are the finding's Remediation and Verify where the check
	// knows nothing more precise.
	Fix    string `json:"fix"`
	Verify string `json:"verify,omitempty"`
	// Sources are where the fact comes from: a kernel file, a specification, a CVE.
	Sources []string `json:"sources,omitempty"`
	// Cheap marks a check that reads nothing but the snapshot and a few attributes,
	// so that the plugin runs it whenever the node changes.
	Cheap bool `json:"cheap,omitempty"`
	// Static marks a rule whose failure no configuration repairs: advice, as where
	// to place tenants.
	Static bool `json:"static,omitempty"`
}

// Expected returns what the rule ensures, as a clause: "VFIO's no-IOMMU mode is off".
func (r *Rule) Expected() string { return strings.TrimPrefix(r.Title, "Ensure that ") }

// Group returns the letters of the rule's ID: "IOM".
func (r *Rule) Group() string {
	for i, c := range r.ID {
		if c == '-' {
			return r.ID[:i]
		}
	}
	return r.ID
}

// Group is a part of the catalogue.
type Group struct {
	// Letters begin the IDs of its rules: "IOM".
	Letters string `json:"letters"`
	Title   string `json:"title"`
}

// Groups returns all groups, in the order of the catalogue.
func Groups() []Group {
	return []Group{
		{"IOM", "IOMMU and interrupts"},
		{"ACS", "PCIe topology and ACS"},
		{"VFIO", "VFIO"},
		{"RST", "Reset and residue between tenants"},
		{"GPU", "GPUs"},
		{"NIC", "NICs and SR-IOV"},
		{"HOST", "Host, CPU and boot"},
		{"RT", "Kata, containerd and NRI"},
		{"CDI", "CDI"},
		{"K8S", "Cluster"},
		{"CC", "Confidential computing"},
		{"OBS", "Quality of the evidence"},
	}
}

// Profile says what a node is for, and so what its findings weigh.
type Profile struct {
	Name string `json:"name"`
	// About is a sentence for people.
	About string `json:"about"`
	// Severities replaces those of rules; [Off] drops the rule (it becomes
	// notapplicable, and says so).
	Severities map[string]rule.Severity `json:"severities,omitempty"`
}

// Off in a profile's Severities drops a rule.
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
		{Name: Lab, About: "a machine for tests: what only hardware can give is no failure", Severities: lab()},
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

// singleTenant: a path between two devices, or residue in one, stays within the
// tenant. What protects the host, and the pods that have no device, is not less.
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

// confidential: whoever runs the node is an adversary of the guest, so what lets
// the host look into a guest, or start another one, weighs more.
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

// lab: firmware, CPU and boards of a test machine can't be changed, and it needs neither attestation nor anchors of its ledger.
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

// severities turns lists into what [Profile] has.
func severities(lists map[rule.Severity][]string) map[string]rule.Severity {
	all := map[string]rule.Severity{}
	for severity, ids := range lists {
		for _, id := range ids {
			all[id] = severity
		}
	}
	return all
}

// NotAsked is something that a reviewer of passthrough may look for and that no
// check asks. Its number is kept free: a check that comes takes it.
type NotAsked struct {
	ID string `json:"id"`
	// Title is what the check ensures, "Ensure that VFIO's no-IOMMU mode is off".
	Title string `json:"title"`
	// Why says why no check asks it.
	Why string `json:"why"`
	// ByHand is where a person finds it: a command, or words.
	ByHand string `json:"byHand"`
}

// NotAskedRules returns all of them, in the order of the catalogue.
func NotAskedRules() []NotAsked {
	return append(notAskedOfNodes(), notAskedOfClusters()...)
}

func notAskedOfNodes() []NotAsked {
	return []NotAsked{
		{
			"IOM-025", "Interrupts are isolated on machines that don't name remapped ones",
			"IOM-005 covers them: VFIO refuses functions without isolated interrupts", "see IOM-005, IOM-006, IOM-007",
		},
		{
			"RST-009", "Firmware is unchanged after a tenancy",
			"only vendor tools or attestation measure firmware; the ledger's fingerprints cover configuration space",
			"nvattest; mstflint -d <address> query; devlink dev info",
		},
		{
			"RST-011", "Persistent device modes are set again between tenants",
			"only vendor tools can read MIG, ECC and the confidential mode",
			"nvidia_gpu_tools.py --devices gpus --query-cc-mode; nvidia-smi -q",
		},
		{
			"GPU-011", "GPU firmware and drivers have the fixes of their vendor's bulletins",
			"the versions are inside the device and the guest image, and the bulletins are not on the node",
			"nvidia-smi -q, in the guest, against the vendor's security bulletins",
		},
		{
			"GPU-014", "A GPU can't read protected memory",
			"this takes an active test of an idle GPU; the audit only reads",
			"nvidia_gpu_tools.py --read-sysmem-pa and --test-pcie-p2p, in maintenance",
		},
		{
			"NIC-011", "Firmware of tenants' NICs has ATS off",
			"only vendor tools can read the setting; IOM-019 checks the function's current state",
			"mlxconfig -d <PF> query ATS_ENABLED",
		},
		{
			"NIC-014", "A DPU takes no orders from its host",
			"only vendor tools can read the restriction",
			"mlxprivhost -d <PF> query",
		},
		{
			"NIC-017", "NIC firmware has the intended version",
			"no file of the node shows the expected version",
			"devlink dev info pci/<PF>",
		},
		{
			"HOST-014", "VMM, guest firmware and kernel have the fixes of their advisories",
			"versions don't show backported fixes, and the advisories are not on the node",
			"the distribution's package scanner, for the node's and Kata's packages",
		},
		{
			"CC-002", "Keys are released to a guest only with evidence of its GPU",
			"the policy is in the key broker, not on the node",
			"kbs-client config get-resource-policy, and the broker's log",
		},
	}
}

func notAskedOfClusters() []NotAsked {
	return []NotAsked{
		{
			"K8S-014", "A claim's parameters set nothing that only a DeviceClass may set",
			"the driver refuses such parameters when it prepares a claim",
			"kubectl explain resourceclaim.spec.devices.config",
		},
		{
			"K8S-017", "The API server's audit log covers devices",
			"its policy is a file of the control plane, which the API does not show",
			"the file of kube-apiserver's --audit-policy-file: resource.k8s.io, pods, pods/exec and pods/binding",
		},
		{
			"K8S-020", "Tenants are placed as the site wants",
			"no object shows what the site wants; ACS-019 shows who shares a switch, and GPU-002 a fabric",
			"kata-vfio-audit who --near <namespace>/<pod>",
		},
	}
}
