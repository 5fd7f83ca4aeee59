// Package assignment answers which of the node's devices belong to which pod:
// the journal's records and their CDI specs, arranged for look-ups. The
// pod-resources server and the NRI plugin decide by it.
package assignment

import (
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/claim"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
)

// Assignment is what one claim's consumers have. It is shared: don't change it.
type Assignment struct {
	Claim plan.Ref
	// State is the record's; only the devices of a Prepared one may be given to
	// a VM.
	State journal.State
	// Stale marks a record of an earlier boot, whose nodes mean nothing.
	Stale bool
	// Withdrawn says why the claim's allocation is not, or not any more, of these devices on
	// this node, as far as that is known: "its allocation was withdrawn". Empty where it is.
	Withdrawn string
	// Sandbox has the devices, or had them and they are not clean since. Nil
	// for devices that no sandbox has had.
	Sandbox *journal.Sandbox
	// Devices are in the claim's order.
	Devices []Device
}

// Device is one prepared device.
type Device struct {
	Request, Pool, Name string
	// Published is the name under which it was allocated: its own, or its pair's.
	Published string
	Address   pci.Address
	// CDI is the qualified CDI name, "kata-vfio.dev/vfio=<claim UID>-<name>".
	CDI string
	// Endpoint marks a VF that reaches the VM as a network interface of the pod's
	// namespace, and has no nodes.
	Endpoint bool
	// Nodes are the device nodes of the CDI spec ("/dev/vfio/15"), which have
	// the same path on the host and in a container. Empty without a spec.
	Nodes []string
}

// Usable reports whether the claim's devices may be given to a VM: it is
// prepared, in this boot, its allocation is of them, and each device that needs nodes has them.
func (a *Assignment) Usable() bool {
	for _, d := range a.Devices {
		if len(d.Nodes) == 0 && !d.Endpoint {
			return false
		}
	}
	return a.State == journal.Prepared && !a.Stale && a.Withdrawn == ""
}

// HasEndpoint reports whether a device is a physical endpoint.
func (a *Assignment) HasEndpoint() bool {
	return slices.ContainsFunc(a.Devices, func(d Device) bool { return d.Endpoint })
}

// Pod returns the claim's consumer with the UID.
func (a *Assignment) Pod(uid string) (claim.Pod, bool) {
	for _, p := range a.Claim.Pods {
		if p.UID == uid {
			return p, true
		}
	}
	return claim.Pod{}, false
}

// CleanFor reports whether the sandbox may have the devices: it has them
// already, or nobody has had them since they were prepared or reset last.
func (a *Assignment) CleanFor(sandboxID string) bool {
	return a.Sandbox == nil || a.Sandbox.ID == sandboxID
}

// View is all assignments of a node at one moment. It is immutable.
type View struct {
	all    []*Assignment
	byPod  map[string][]*Assignment
	byName map[podName][]string
	byNode map[string][]*Assignment
	byCDI  map[string]*Assignment
}

// podName is a pod's name; pods that follow each other may share it.
type podName struct{ namespace, name string }

func newView(all []*Assignment) *View {
	v := &View{
		all: all, byPod: map[string][]*Assignment{}, byName: map[podName][]string{},
		byNode: map[string][]*Assignment{}, byCDI: map[string]*Assignment{},
	}
	for _, a := range all {
		v.enter(a)
	}
	return v
}

func (v *View) enter(a *Assignment) {
	for _, p := range a.Claim.Pods {
		v.byPod[p.UID] = append(v.byPod[p.UID], a)
		name := podName{a.Claim.Namespace, p.Name}
		if !slices.Contains(v.byName[name], p.UID) {
			v.byName[name] = append(v.byName[name], p.UID)
		}
	}
	for _, d := range a.Devices {
		v.byCDI[d.CDI] = a
		for _, node := range d.Nodes {
			v.byNode[node] = append(v.byNode[node], a)
		}
	}
}

// All returns every assignment, by claim UID.
func (v *View) All() []*Assignment { return v.all }

// OfPod returns the assignments of the claims that the pod with the UID
// consumes, whatever their state, by claim UID.
func (v *View) OfPod(uid string) []*Assignment { return v.byPod[uid] }

// PodUIDs returns the UIDs of the consumers with that name: more than one while
// a pod follows another of its name whose claim is not unprepared yet.
func (v *View) PodUIDs(namespace, name string) []string { return v.byName[podName{namespace, name}] }

// WithNode returns the assignments whose CDI specs name the device node.
func (v *View) WithNode(path string) []*Assignment { return v.byNode[path] }

// WithCDI returns the assignment of the device with the qualified CDI name.
func (v *View) WithCDI(name string) (*Assignment, bool) {
	a, ok := v.byCDI[name]
	return a, ok
}
