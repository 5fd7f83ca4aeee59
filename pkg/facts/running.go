package facts

// RunningContainerd describes a running containerd. Command kata-vfio-audit asks it. Its JSON form is part of a node's copy: names are
// added, never changed.
//
// A node's files show containerd's configuration after its next start. A running containerd shows the configuration in
// use, and its containers in all namespaces, whether or not they belong to pods.
type RunningContainerd struct {
	// Socket is the socket's path on the node.
	Socket string `json:"socket"`
	// Version is the release, such as "v2.4.2".
	Version string `json:"version"`
	// Plugins are the plugins that containerd loaded or failed to load.
	Plugins []ContainerdPlugin `json:"plugins"`
	// CRI is the configuration of its CRI plugin, or nil if there is none.
	CRI *CRI `json:"cri,omitempty"`
	// Containers are the containers with a process, in all namespaces, by namespace and ID.
	Containers []Container `json:"containers"`
}

// ContainerdPlugin is a plugin of containerd.
type ContainerdPlugin struct {
	// Type and ID identify it, such as "io.containerd.nri.v1" and "nri".
	Type string `json:"type"`
	ID   string `json:"id"`
	// Error says why it is not loaded, or is empty.
	Error string `json:"error,omitempty"`
}

// Plugins that this project needs.
const (
	criPlugin = "io.containerd.grpc.v1"
	nriPlugin = "io.containerd.nri.v1"
)

// Has reports whether a plugin is loaded.
func (r *RunningContainerd) Has(kind, id string) bool {
	for _, p := range r.Plugins {
		if p.Type == kind && p.ID == id {
			return p.Error == ""
		}
	}
	return false
}

// HasCRI reports whether the CRI plugin is loaded, so that the kubelet can use containerd.
func (r *RunningContainerd) HasCRI() bool { return r.Has(criPlugin, "cri") }

// HasNRI reports whether NRI is loaded. The plugin is also loaded if its own section disables NRI.
func (r *RunningContainerd) HasNRI() bool { return r.Has(nriPlugin, "nri") }

// CRI is the configuration of the CRI plugin.
type CRI struct {
	// Handlers are the runtimes by handler name, as in a RuntimeClass.
	Handlers map[string]CRIHandler `json:"handlers"`
	// CDIDirs are the directories of CDI specs.
	CDIDirs []string `json:"cdiDirs"`
}

// CRIHandler is one runtime of the CRI plugin.
type CRIHandler struct {
	// Type is the runtime_type, such as "io.containerd.kata.v2". Path is the shim's binary, if a setting names it.
	Type string `json:"type"`
	Path string `json:"path,omitempty"`
	// Config is the path of the runtime's own configuration.
	Config string `json:"config,omitempty"`
	// PodAnnotations and ContainerAnnotations are the patterns of annotations that are passed to the runtime.
	PodAnnotations       []string `json:"podAnnotations,omitempty"`
	ContainerAnnotations []string `json:"containerAnnotations,omitempty"`
	// PrivilegedWithoutHostDevices keeps the node's devices from privileged containers. AllDevicesAllowed allows them
	// in the device cgroup nevertheless.
	PrivilegedWithoutHostDevices bool `json:"privilegedWithoutHostDevices,omitempty"`
	AllDevicesAllowed            bool `json:"allDevicesAllowed,omitempty"`
	// Sandboxer is "podsandbox" or "shim". It is empty in versions without the setting.
	Sandboxer string `json:"sandboxer,omitempty"`
}
