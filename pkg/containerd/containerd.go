// Package containerd holds what a running containerd says of itself and of what it runs. Package ask asks it.
//
// The files of a node say how containerd is to run after its next start. A running containerd says how it does run, and
// which containers it has in all of its namespaces, pods or not.
package containerd

// Running is what a running containerd says. Its JSON form is what a copy of a node holds: names are added, never changed.
type Running struct {
	// Socket is where it was asked, as a path on the node.
	Socket string `json:"socket"`
	// Version is its release: "v2.4.2".
	Version string `json:"version"`
	// Plugins are those it has loaded or tried to load.
	Plugins []Plugin `json:"plugins"`
	// CRI is what its CRI plugin runs with; nil where it serves no CRI.
	CRI *CRI `json:"cri,omitempty"`
	// Containers are those with a process, of all namespaces, by namespace and ID.
	Containers []Container `json:"containers"`
}

// Plugin is a plugin of containerd's.
type Plugin struct {
	// Type and ID name it: "io.containerd.nri.v1" and "nri".
	Type string `json:"type"`
	ID   string `json:"id"`
	// Error says why it is not loaded; empty for one that is.
	Error string `json:"error,omitempty"`
}

// Plugins that this project needs.
const (
	criPlugin = "io.containerd.grpc.v1"
	nriPlugin = "io.containerd.nri.v1"
)

// Has reports whether a plugin is loaded.
func (r *Running) Has(kind, id string) bool {
	for _, p := range r.Plugins {
		if p.Type == kind && p.ID == id {
			return p.Error == ""
		}
	}
	return false
}

// HasCRI reports whether it serves the kubelet.
func (r *Running) HasCRI() bool { return r.Has(criPlugin, "cri") }

// HasNRI reports whether NRI plugins can be served. An NRI that is switched off by its own section is loaded all the same.
func (r *Running) HasNRI() bool { return r.Has(nriPlugin, "nri") }

// CRI is what the CRI plugin runs with.
type CRI struct {
	// Handlers are the runtimes by the names that a RuntimeClass's handler has.
	Handlers map[string]Handler `json:"handlers"`
	// CDIDirs are where it looks for CDI specs.
	CDIDirs []string `json:"cdiDirs"`
}

// Handler is one runtime of the CRI plugin.
type Handler struct {
	// Type is the runtime_type: "io.containerd.kata.v2". Path is the shim's binary, where a setting names it.
	Type string `json:"type"`
	Path string `json:"path,omitempty"`
	// Config is the path of the runtime's own configuration.
	Config string `json:"config,omitempty"`
	// PodAnnotations and ContainerAnnotations are patterns of annotations that reach the runtime.
	PodAnnotations       []string `json:"podAnnotations,omitempty"`
	ContainerAnnotations []string `json:"containerAnnotations,omitempty"`
	// PrivilegedWithoutHostDevices keeps the node's devices from privileged containers; AllDevicesAllowed opens their device
	// cgroup all the same.
	PrivilegedWithoutHostDevices bool `json:"privilegedWithoutHostDevices,omitempty"`
	AllDevicesAllowed            bool `json:"allDevicesAllowed,omitempty"`
	// Sandboxer is "podsandbox" or "shim"; empty in a version that has no such setting.
	Sandboxer string `json:"sandboxer,omitempty"`
}
