package fleet

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kata-vfio/kata-vfio/pkg/cluster"
)

// ClaimState is the state of a claim.
type ClaimState string

// Claim states, the worst first.
const (
	// Refused: the node did not prepare a device, or quarantined it.
	Refused ClaimState = "refused"
	// Pending: no device is allocated, because none is free or no pod asks yet.
	Pending ClaimState = "pending"
	// Allocated: a device is allocated, and its node has not reported it as ready.
	Allocated ClaimState = "allocated"
	// Deleting: the claim is being deleted, and a finalizer still keeps it.
	Deleting ClaimState = "deleting"
	// Weakened: all devices are ready, and the DeviceClass waives isolation or reset.
	Weakened ClaimState = "weakened"
	// Unjudged: all devices are ready, but the claim's status does not say whether they are isolated and reset.
	Unjudged ClaimState = "unjudged"
	Ready    ClaimState = "ready"
)

func (s ClaimState) rank() int {
	return slices.Index([]ClaimState{Refused, Pending, Allocated, Deleting, Weakened, Unjudged, Ready}, s)
}

// Claim is a claim for devices of ours. Its JSON form is stable: names are added,
// never changed.
type Claim struct {
	Namespace string     `json:"namespace"`
	Name      string     `json:"name"`
	UID       string     `json:"uid"`
	State     ClaimState `json:"standing"`
	// Reason is the code for which the node refused the claim: "NotIsolated".
	Reason string `json:"reason,omitempty"`
	Node   string `json:"node,omitempty"`
	// Pods are the pods for which the claim is reserved, or the pod for which it was created.
	Pods []string `json:"pods"`
	// VM is the RuntimeClass of the pod in whose VM the devices are, and PodPhase is the pod's phase. Both are empty if the pod was
	// not listed. The sandbox's own id is not in the API: `kata-vfio-audit who --claim` on the node shows it.
	VM       string        `json:"vm,omitempty"`
	PodPhase string        `json:"podPhase,omitempty"`
	Devices  []ClaimDevice `json:"devices"`
	Created  time.Time     `json:"created"`
}

// ClaimDevice is a device that is allocated to a claim, and its status from its node.
type ClaimDevice struct {
	Pool       string      `json:"pool"`
	Name       string      `json:"device"`
	Conditions []Condition `json:"conditions"`
	// MAC, Interface and IPs are the network settings in the guest.
	MAC       string   `json:"mac,omitempty"`
	Interface string   `json:"interface,omitempty"`
	IPs       []string `json:"ips,omitempty"`
	cluster.Data
}

// Condition is one of a device's conditions.
type Condition struct {
	Type    string                 `json:"type"`
	Status  metav1.ConditionStatus `json:"status"`
	Reason  string                 `json:"reason,omitempty"`
	Message string                 `json:"message,omitempty"`
	Since   time.Time              `json:"since"`
}

// ClaimRows returns the claims for devices of ours: first those that need attention, then by namespace and name.
func (s *State) ClaimRows() []Claim {
	rows := []Claim{}
	for _, c := range s.Cluster.Claims() {
		if s.Cluster.IsOurs(c) {
			rows = append(rows, s.rowClaim(c))
		}
	}
	slices.SortFunc(rows, func(a, b Claim) int {
		return cmp.Or(a.State.rank()-b.State.rank(), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return rows
}

func (s *State) rowClaim(c *cluster.Claim) Claim {
	o := c.Object
	row := Claim{
		Namespace: o.Namespace, Name: o.Name, UID: string(o.UID), Pods: c.Pods, Devices: []ClaimDevice{}, Created: o.CreationTimestamp.UTC(),
	}
	if len(row.Pods) == 0 {
		// A claim from a template belongs to its pod before the scheduler reserves it for the pod.
		row.Pods = c.Owners
	}
	for _, a := range c.Ours() {
		row.Node = a.ID.Node()
		row.Devices = append(row.Devices, claimDevice(c, a.ID))
	}
	if p := s.pod(o.Namespace, row.Pods); p != nil {
		row.VM, row.PodPhase = cmp.Or(deref(p.Spec.RuntimeClassName), "none"), string(p.Status.Phase)
		// Without an allocation, only the pod shows the node.
		row.Node = cmp.Or(row.Node, p.Spec.NodeName)
	}
	row.State, row.Reason = summary(o, row.Devices)
	return row
}

// pod returns the first of the named pods that was listed.
func (s *State) pod(namespace string, names []string) *corev1.Pod {
	for _, name := range names {
		if p := s.Cluster.Pod(namespace, name); p != nil {
			return p.Object
		}
	}
	return nil
}

func claimDevice(c *cluster.Claim, id cluster.ID) ClaimDevice {
	d := ClaimDevice{Pool: id.Pool, Name: id.Name, Conditions: []Condition{}}
	for _, status := range c.Statuses {
		if status.ID != id {
			continue
		}
		for _, have := range status.Object.Conditions {
			d.Conditions = append(d.Conditions, Condition{have.Type, have.Status, have.Reason, have.Message, have.LastTransitionTime.UTC()})
		}
		if n := status.Object.NetworkData; n != nil {
			d.MAC, d.Interface, d.IPs = n.HardwareAddress, n.InterfaceName, n.IPs
		}
		if status.Object.Data != nil {
			d.Data = status.Data
		}
	}
	return d
}

// summary returns the state of a claim by the conditions of its devices.
func summary(c *resourceapi.ResourceClaim, devices []ClaimDevice) (s ClaimState, reason string) {
	for i := range devices {
		// One refused device makes the whole claim refused, because the kubelet then starts no container of the pod.
		if ready := devices[i].condition(ready); ready != nil && ready.Status == metav1.ConditionFalse {
			return Refused, ready.Reason
		}
	}
	switch {
	// Its finalizer keeps a claim and its devices until its pods have ended.
	case c.DeletionTimestamp != nil:
		return Deleting, ""
	case len(devices) == 0:
		return Pending, ""
	}
	s = Ready
	for i := range devices {
		d := &devices[i]
		// There are no conditions until the node's kubelet has called the plugin.
		if !d.is(ready) {
			return Allocated, ""
		}
		switch {
		case d.waives(isolated) || d.waives(reset):
			s = Weakened
		case s == Ready && !d.isJudged():
			s = Unjudged
		}
	}
	return s, ""
}

// Conditions that the plugin sets: those of package dra, which this package can't import without the code that
// binds devices.
const (
	ready    = "Ready"
	isolated = "Isolated"
	reset    = "Reset"
)

func (d *ClaimDevice) condition(kind string) *Condition {
	for i := range d.Conditions {
		if d.Conditions[i].Type == kind {
			return &d.Conditions[i]
		}
	}
	return nil
}

// isJudged reports whether the device's status has the conditions for isolation and reset. A status without them does not mean that
// they are waived: the plugin may not have written them yet.
func (d *ClaimDevice) isJudged() bool {
	return d.condition(isolated) != nil && d.condition(reset) != nil
}

// waives reports whether the status has a condition of the kind that is not true.
func (d *ClaimDevice) waives(kind string) bool { return d.condition(kind) != nil && !d.is(kind) }

func (d *ClaimDevice) is(kind string) bool {
	c := d.condition(kind)
	return c != nil && c.Status == metav1.ConditionTrue
}

// Conditions lists the conditions of all devices in few words, each once:
// "Ready,Isolated,Reset", "!Ready(NotIsolated)", "?Isolated(NotJudged)".
func (c *Claim) Conditions() []string {
	words := []string{}
	for i := range c.Devices {
		for _, have := range c.Devices[i].Conditions {
			word := have.Type
			switch have.Status {
			case metav1.ConditionTrue:
			case metav1.ConditionFalse:
				word = "!" + word + "(" + have.Reason + ")"
			default:
				word = "?" + word + "(" + have.Reason + ")"
			}
			if !slices.Contains(words, word) {
				words = append(words, word)
			}
		}
	}
	return words
}

// Network lists the network of guests: MACs with their addresses.
func (c *Claim) Network() []string {
	var words []string
	for i := range c.Devices {
		d := &c.Devices[i]
		if d.MAC != "" {
			words = append(words, d.MAC)
		}
		words = append(words, d.IPs...)
	}
	return words
}
