package podres

import (
	"errors"
	"fmt"

	"github.com/kata-vfio/kata-vfio/pkg/journal"
)

// PeerSandbox is the sandbox that a shim is starting.
type PeerSandbox struct {
	// ID is the runtime's id of the sandbox, empty where its bundle can't be
	// read.
	ID string
	// PodNamespace, PodName and PodUID are the pod as the runtime knows it from
	// the kubelet; empty where the bundle does not tell.
	PodNamespace, PodName, PodUID string
	// NetNS is the pod's network namespace as a path of the node; empty for a pod
	// in the node's own.
	NetNS string
	// Shim is the process that starts it.
	Shim journal.Process
	// Unknown says why PodUID is empty; nil when it is not.
	Unknown error
}

// forJournal returns what the claims' records keep of the sandbox.
func (s *PeerSandbox) forJournal() journal.Sandbox {
	return journal.Sandbox{ID: s.ID, PodUID: s.PodUID, NetNS: s.NetNS, Shim: s.Shim}
}

// Keys of an OCI bundle's annotations. Those of containerd are its own words: it
// writes them over whatever a pod's annotations said. CRI-O writes a pod's
// annotations over its own, and the kubelet's labels over those, so that there
// only the labels can be relied on for the pod, and only the bundle's directory for the
// sandbox's id.
const (
	containerdID        = "io.kubernetes.cri.sandbox-id"
	containerdNamespace = "io.kubernetes.cri.sandbox-namespace"
	containerdName      = "io.kubernetes.cri.sandbox-name"
	containerdUID       = "io.kubernetes.cri.sandbox-uid"

	crioID         = "io.kubernetes.cri-o.SandboxID"
	labelNamespace = "io.kubernetes.pod.namespace"
	labelName      = "io.kubernetes.pod.name"
	labelUID       = "io.kubernetes.pod.uid"
)

// errNoUID says that the runtime does not tell a pod's UID.
var errNoUID = errors.New("the sandbox's bundle has no " + containerdUID)

// parseSandbox returns the sandbox that a bundle's directory and annotations name. Ones that
// name no pod, or speak for two runtimes, are an error: on CRI-O a pod's own
// annotations are among them, and Kata takes the pod's name from containerd's
// keys before it looks at CRI-O's.
func parseSandbox(config *ociConfig) (PeerSandbox, error) {
	annotations := config.Annotations
	_, containerd := annotations[containerdID]
	_, crio := annotations[crioID]
	var s PeerSandbox
	switch {
	case containerd && crio:
		return s, fmt.Errorf("annotations %s and %s contradict each other: one is the pod's own", containerdID, crioID)
	case containerd:
		s = PeerSandbox{
			ID: annotations[containerdID], PodUID: annotations[containerdUID],
			PodNamespace: annotations[containerdNamespace], PodName: annotations[containerdName],
		}
	case crio:
		s = PeerSandbox{
			ID: config.id(), PodUID: annotations[labelUID],
			PodNamespace: annotations[labelNamespace], PodName: annotations[labelName],
		}
	}
	if s.ID == "" || s.PodNamespace == "" || s.PodName == "" {
		return s, errors.New("the annotations name no pod sandbox")
	}
	if dir := config.id(); s.ID != dir {
		return s, fmt.Errorf("the annotations name sandbox %s, and the directory is that of %s", s.ID, dir)
	}
	if s.PodUID == "" {
		s.Unknown = errNoUID
	}
	return s, nil
}
