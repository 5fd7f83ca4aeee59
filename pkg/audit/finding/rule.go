package finding

import (
	"cmp"

	"github.com/kata-vfio/kata-vfio/pkg/isolation"
)

func compareText(a, b string) int { return cmp.Compare(a, b) }

// Rule is what a check looks for and why. IDs and their meaning are stable: a
// rule that changes its meaning gets a new one.
type Rule struct {
	// ID is the group and a number, "IOM-003".
	ID    string `json:"id"`
	Title string `json:"title"`
	// Severity is that for untrusted tenants; see [Profile].
	Severity isolation.Severity `json:"severity"`
	// Why says what an attacker gains where it fails.
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
	Severities map[string]isolation.Severity `json:"severities,omitempty"`
}

// Off in a profile's Severities drops a rule.
const Off isolation.Severity = "off"

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
func singleTenant() map[string]isolation.Severity {
	return severities(map[isolation.Severity][]string{
		isolation.Medium: {"RST-001", "RST-004", "RST-005", "RST-006", "NIC-001", "NIC-002", "NIC-003", "NIC-007", "NIC-015"},
		isolation.Low: {
			"IOM-017", "ACS-001", "ACS-002", "ACS-003", "ACS-004", "ACS-005", "ACS-009", "ACS-010", "ACS-017",
			"RST-002", "RST-003", "RST-007", "RST-010", "GPU-001", "GPU-002", "GPU-004", "GPU-005", "GPU-006", "GPU-009",
			"NIC-004", "NIC-005", "NIC-010", "HOST-006", "HOST-009", "HOST-011",
		},
		isolation.Info: {"ACS-008", "ACS-019", "NIC-009"},
	})
}

// confidential: whoever runs the node is an adversary of the guest, so what lets
// the host look into a guest, or start another one, weighs more.
func confidential() map[string]isolation.Severity {
	return severities(map[isolation.Severity][]string{
		isolation.Critical: {"CC-001", "GPU-007", "RT-006", "RT-015", "RT-023"},
		isolation.High: {
			"IOM-022", "RT-001", "RT-008", "RT-014", "RT-017", "RT-020", "RT-022",
			"HOST-001", "HOST-002", "HOST-003", "HOST-012", "RST-008",
		},
		isolation.Medium: {"CC-003", "HOST-015", "RT-021"},
	})
}

// lab: firmware, CPU and boards for tests are what they are; nobody attests such a
// node or anchors its ledger.
func lab() map[string]isolation.Severity {
	return severities(map[isolation.Severity][]string{
		Off: {"CC-001", "CC-003", "HOST-015", "HOST-016", "HOST-019"},
		isolation.Info: {
			"IOM-009", "IOM-023", "ACS-008", "ACS-012", "ACS-013", "ACS-014", "RST-002", "RST-006", "RST-007", "RST-013",
			"GPU-005", "GPU-008", "NIC-010", "HOST-001", "HOST-002", "HOST-003", "HOST-004", "HOST-006", "HOST-010", "HOST-012",
			"OBS-002", "VFIO-012",
		},
		isolation.Medium: {"IOM-005", "IOM-010", "ACS-010"},
	})
}

// severities turns lists into what [Profile] has.
func severities(lists map[isolation.Severity][]string) map[string]isolation.Severity {
	all := map[string]isolation.Severity{}
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
	ID    string `json:"id"`
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
			"IOM-025", "Machines without a name for remapped interrupts isolate them",
			"IOM-005 answers it there as well: by VFIO, which refuses functions without isolated interrupts", "see IOM-005, IOM-006, IOM-007",
		},
		{
			"RST-009", "Firmware is the same after a tenancy as before it",
			"a device's firmware is measured by its vendor's tools or by attestation, not by a file; the ledger's fingerprints cover configuration space",
			"nvattest; mstflint -d <address> query; devlink dev info",
		},
		{
			"RST-011", "Modes that a device keeps are set anew between tenants",
			"MIG, ECC and the confidential mode are kept in the device's own memory, read by registers that only its vendor's tools know",
			"nvidia_gpu_tools.py --devices gpus --query-cc-mode; nvidia-smi -q",
		},
		{
			"GPU-011", "Firmware and driver of GPUs have the fixes of their vendor's bulletins",
			"the versions are inside of the device and of the guest's image, and the bulletins are not on the node",
			"nvidia-smi -q, in the guest, against the vendor's security bulletins",
		},
		{
			"GPU-014", "A GPU is refused memory that it may not reach",
			"it takes a GPU that is idle and is told to try: the audit reads, and touches no device",
			"nvidia_gpu_tools.py --read-sysmem-pa and --test-pcie-p2p, in maintenance",
		},
		{
			"NIC-011", "Firmware of tenants' NICs has ATS off",
			"the setting is the firmware's, read by registers that only its vendor's tools know; IOM-019 asks what the function does now",
			"mlxconfig -d <PF> query ATS_ENABLED",
		},
		{
			"NIC-014", "A DPU takes no orders from its host",
			"the restriction is kept in the DPU, and read by its vendor's tools alone",
			"mlxprivhost -d <PF> query",
		},
		{
			"NIC-017", "Firmware of NICs is the version that the site wants",
			"no file of the node says which version that is",
			"devlink dev info pci/<PF>",
		},
		{
			"HOST-014", "VMM, guest firmware and kernel have the fixes of their advisories",
			"versions alone do not say it, since distributions fix old ones, and the advisories are not on the node",
			"the distribution's scanner for packages, over the node's and Kata's",
		},
		{
			"CC-002", "Keys are released to a guest only with evidence of its GPU",
			"the policy is that of the key broker, which is not on the node and trusts no one there",
			"kbs-client config get-resource-policy, and the broker's log",
		},
	}
}

func notAskedOfClusters() []NotAsked {
	return []NotAsked{
		{
			"K8S-014", "A claim's own parameters decide nothing that is the administrator's",
			"the driver refuses such parameters when it prepares a claim, whatever the cluster holds: there is nothing to find",
			"kubectl explain resourceclaim.spec.devices.config",
		},
		{
			"K8S-017", "The API server's audit log has what concerns devices",
			"its policy is a file of the control plane, which the API does not show",
			"the file behind kube-apiserver's --audit-policy-file: resource.k8s.io, pods, pods/exec and pods/binding",
		},
		{
			"K8S-020", "Tenants are placed as the site wants",
			"no object says what the site wants; ACS-019 says who shares a switch now, and GPU-002 a fabric",
			"kata-vfio-audit neighbours <namespace>/<pod>",
		},
	}
}
