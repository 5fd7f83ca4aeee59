package journal

// Sandbox is the pod's VM that has a claim's functions.
type Sandbox struct {
	// ID is the runtime's id of the pod sandbox.
	ID string `json:"id"`
	// PodUID is the sandbox's pod, where the one who hands over knows it. It is
	// not stored: the record has the claim's pods.
	PodUID string `json:"-"`
	// VMM is the process that the runtime names as the sandbox's: for a VM its
	// monitor. Zero while it is not known.
	VMM Process `json:"vmm,omitzero"`
	// Shim is the runtime's process that asked for the functions and starts the VM with
	// them. Zero where no process asked, and in records from before it was kept: the
	// sandbox's ID leads to its shim then.
	Shim Process `json:"shim,omitzero"`
	// NetNS is the pod's network namespace as a path of the node, where the
	// runtime has named it. Physical endpoints are put there.
	NetNS string `json:"netns,omitempty"`
	// Since is when the sandbox got the functions, RFC 3339 in UTC.
	Since string `json:"since"`
}

// Process is a process of the node, told from a later one with its number.
type Process struct {
	PID int `json:"pid"`
	// StartTime is in clock ticks after boot (field 22 of proc_pid_stat(5)).
	StartTime uint64 `json:"startTime"`
}
