package finding

import "github.com/kata-vfio/kata-vfio/pkg/pci"

// Kata is what a node's Kata makes of pods, and what it has made of those that run: for whoever compares it with what the cluster
// promises, as `kata-vfio-audit cluster` does, or explains a pod.
type Kata struct {
	Handlers  []KataHandler `json:"handlers"`
	Sandboxes []KataSandbox `json:"sandboxes"`
	// Unread are the states of Kata's that could not be read, one sentence each.
	Unread []string `json:"unread,omitempty"`
}

// KataHandler is a runtime handler that runs Kata, with the settings that its shim works by: the base with all drop-ins over it, and
// Kata's defaults where no file says anything.
type KataHandler struct {
	Name string `json:"name"`
	// Engine is "containerd" or "CRI-O", and Runtime "go" or "rust".
	Engine  string `json:"engine"`
	Runtime string `json:"runtime"`
	// Config is the base; Files are the base and the drop-ins, in the order in which they are read.
	Config string   `json:"config"`
	Files  []string `json:"files"`
	// Damaged says why the settings below are not known; empty where they are.
	Damaged string `json:"damaged,omitempty"`
	// VMM is the hypervisor: "qemu".
	VMM string `json:"vmm,omitempty"`
	// MemoryMiB is the guest's RAM where the pod has no limits, and LimitedMiB what is added to the limits where it has some. With the
	// Go runtime they are the same.
	MemoryMiB  int64 `json:"memoryMiB"`
	LimitedMiB int64 `json:"limitedMiB"`
	// FixedSize says that a VM has its whole size from its boot on (static_sandbox_resource_mgmt), and InPodsCgroup that the VMM is
	// charged to the pod (sandbox_cgroup_only).
	FixedSize    bool `json:"fixedSize"`
	InPodsCgroup bool `json:"inPodsCgroup"`
	// ColdPlug and HotPlug are the ports by which VMs get devices at their boot, and later: "no-port" for none.
	ColdPlug string `json:"coldPlug"`
	HotPlug  string `json:"hotPlug"`
	// RootPorts is how many root ports a VM has at least.
	RootPorts int64 `json:"rootPorts"`
	// VFIOMode is "guest-kernel" where the guest's driver has the device.
	VFIOMode string `json:"vfioMode,omitempty"`
	// Socket is whom the shim asks for a pod's devices (pod_resource_api_sock); empty for nobody.
	Socket string `json:"socket,omitempty"`
	// Annotations are those by which pods may change the hypervisor's settings.
	Annotations []string `json:"annotations"`
}

// KataSandbox is one of Kata's sandboxes.
type KataSandbox struct {
	ID        string `json:"id"`
	Namespace string `json:"namespace,omitempty"`
	Pod       string `json:"pod,omitempty"`
	// Runtime is "go" or "rust"; empty where the VMM alone tells of the sandbox.
	Runtime    string `json:"runtime,omitempty"`
	Hypervisor string `json:"hypervisor,omitempty"`
	// PID is the VMM's.
	PID int `json:"pid,omitempty"`
	// Running says that this process is seen.
	Running bool                `json:"running"`
	Devices []KataSandboxDevice `json:"devices"`
}

// KataSandboxDevice is a function of the node in a sandbox.
type KataSandboxDevice struct {
	Address pci.Address `json:"address"`
	// GuestPath is where it is in the guest, "05/00"; empty where that can't be told.
	GuestPath   string `json:"guestPath,omitempty"`
	Bus         string `json:"bus,omitempty"`
	ColdPlugged bool   `json:"coldPlugged"`
	Endpoint    bool   `json:"endpoint,omitempty"`
	// Claims are the claims that have it by the plugin's journal.
	Claims []string `json:"claims"`
}
