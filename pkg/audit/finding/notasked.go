package finding

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
