package finding

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
