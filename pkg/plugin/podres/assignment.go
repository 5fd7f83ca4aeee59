package podres

import (
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/claim"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
)

// Assignment holds the devices of one claim. It is shared: do not modify it.
type Assignment struct {
	Claim plan.Ref
	// State is the record's state. A VM may get the devices only while it is Prepared.
	State journal.State
	// Stale marks a record of an earlier boot, whose device nodes are no longer valid.
	Stale bool
	// Withdrawn says why the devices on this node are not allocated to the claim, such as "its allocation was withdrawn". It is empty if
	// they are, or if that is unknown.
	Withdrawn string
	// Sandbox is the sandbox that has the devices, or that had them if they have not been reset since. It is nil if no sandbox had them.
	Sandbox *journal.Sandbox
	// SpecFault says why the CDI spec can't be read; empty if it can. Devices have no nodes while the spec can't be read.
	SpecFault string
	// Devices are in the claim's order.
	Devices []Device
}

// Device is one prepared device.
type Device struct {
	Request, Pool, Name string
	// Published is the name of the allocated device: its own name, or its pair's.
	Published string
	Address   pci.Address
	// CDI is the qualified CDI name, "kata-vfio.dev/vfio=<claim UID>-<name>".
	CDI string
	// Endpoint marks a VF that Kata finds as a network interface in the pod's namespace. It has no nodes.
	Endpoint bool
	// Nodes are the device nodes of the CDI spec ("/dev/vfio/15"), with the same path on the host and in a
	// container. It is empty without a spec.
	Nodes []string
}

// Usable reports whether a VM may get the claim's devices: the claim is prepared in this boot, the devices
// are allocated to it, and each device that needs nodes has them.
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

// CleanFor reports whether the sandbox itself has the devices, or no sandbox has had them since they were prepared or last reset.
func (a *Assignment) CleanFor(sandboxID string) bool {
	return a.Sandbox == nil || a.Sandbox.ID == sandboxID
}

// View holds all assignments of a node at one moment. It is immutable.
type View struct {
	all    []*Assignment
	unread error
	byPod  map[string][]*Assignment
	byName map[podName][]string
	byNode map[string][]*Assignment
	byCDI  map[string]*Assignment
}

func newView(all []*Assignment, unread error) *View {
	v := &View{
		all: all, unread: unread, byPod: map[string][]*Assignment{}, byName: map[podName][]string{},
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

// Unread returns an error that names the unreadable records and the reasons; nil if there are none. Each of them may be the record of any
// claim that is not among All, and of any device on a VFIO driver that no assignment has. Meanwhile Prepare gives such a device to no
// claim.
func (v *View) Unread() error { return v.unread }

// All returns every assignment, by claim UID.
func (v *View) All() []*Assignment { return v.all }

// OfPod returns the assignments of the claims that the pod with the UID consumes, in any state, by claim
// UID.
func (v *View) OfPod(uid string) []*Assignment { return v.byPod[uid] }

// PodUIDs returns the UIDs of the pods with that name that consume claims. There are several while the claims of a pod's predecessor are
// not yet unprepared.
func (v *View) PodUIDs(namespace, name string) []string { return v.byName[podName{namespace, name}] }

// WithNode returns the assignments whose CDI specs name the device node.
func (v *View) WithNode(path string) []*Assignment { return v.byNode[path] }

// WithCDI returns the assignment of the device with the qualified CDI name.
func (v *View) WithCDI(name string) (*Assignment, bool) {
	a, ok := v.byCDI[name]
	return a, ok
}
