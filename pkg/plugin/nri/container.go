package nri

import (
	"fmt"
	"slices"

	"github.com/containerd/nri/pkg/api"

	"github.com/kata-vfio/kata-vfio/pkg/plugin/assignment"
)

// Host says what the node's kernel knows; [Kernel] is the real one. Its methods
// are look-ups that don't block.
type Host interface {
	// Majors returns the major numbers of VFIO's character devices: none while
	// the modules are not loaded.
	Majors() ([]int64, error)
	// Number returns the device number of a VFIO node, "/dev/vfio/15".
	Number(node string) (major, minor int64, err error)
	// StartTime returns when a process started, in clock ticks after boot.
	StartTime(pid int) (uint64, error)
}

// Container decides on a container as its spec and the pending adjustments of
// all plugins make it; adjust may be nil. Assignments are looked up for a
// container with a VFIO device only, so that all others pass whatever the state
// of the journal.
func (r *Rules) Container(who Assignments, host Host, pod *api.PodSandbox, c *api.Container, adjust *api.ContainerAdjustment) *Refusal {
	k := &check{rules: r, who: who, host: host, pod: pod, given: devicesFor(c, adjust)}
	return k.run()
}

// check is the decision on one container.
type check struct {
	rules *Rules
	who   Assignments
	host  Host
	pod   *api.PodSandbox
	given *containerDevices
	view  *assignment.View         // nil until it is needed
	used  []*assignment.Assignment // what of the pod's the container gets
}

func (k *check) run() *Refusal {
	for _, annotations := range append(k.given.annotations, k.pod.GetAnnotations()) {
		if refused := k.rules.annotations(k.pod, k.given.name, annotations); refused != nil {
			return refused
		}
	}
	for _, part := range []func() *Refusal{k.cdi, k.nodes, k.mounts, k.claims} {
		if refused := part(); refused != nil {
			return refused
		}
	}
	return nil
}

// cdi decides on the CDI names of our kind.
func (k *check) cdi() *Refusal {
	for _, name := range k.given.ourCDI() {
		if refused := k.lookUp(name); refused != nil {
			return refused
		}
		a, known := k.view.WithCDI(name)
		switch {
		case !known:
			return k.refuse(NodeWithoutClaim, name, "no claim on this node has the device %s", name)
		case !k.isOurs(a):
			refused := k.refuse(NodeOfOthersClaim, name, "the device %s belongs to a claim that the pod does not have", name)
			refused.Claim = a.Claim
			return refused
		}
		k.use(a)
	}
	return nil
}

// nodes decides on the VFIO nodes.
func (k *check) nodes() *Refusal {
	if k.rules.exempt(k.pod) {
		return nil
	}
	majors, err := k.host.Majors()
	if err != nil && k.given.hasNodes() {
		return k.unverifiable("", err)
	}
	for _, n := range k.given.vfioNodes(majors) {
		if refused := k.lookUp(n.String()); refused != nil {
			return refused
		}
		if refused := k.node(n); refused != nil {
			return refused
		}
	}
	return nil
}

func (k *check) node(n node) *Refusal {
	if n.path == "" {
		return k.access(n)
	}
	owners := k.view.WithNode(n.path)
	mine := slices.IndexFunc(owners, k.isOurs)
	switch {
	case len(owners) == 0:
		return k.refuse(NodeWithoutClaim, n.path, "no claim on this node explains the VFIO node %s (device %d:%d)", n.path, n.major, n.minor)
	case mine < 0:
		refused := k.refuse(NodeOfOthersClaim, n.path, "the VFIO node %s belongs to a claim that the pod does not have", n.path)
		refused.Claim = owners[0].Claim
		return refused
	}
	if refused := k.number(n); refused != nil {
		return refused
	}
	k.use(owners[mine])
	return nil
}

// number compares a node's number with the host's of its name: Kata finds the
// device by the number.
func (k *check) number(n node) *Refusal {
	major, minor, err := k.host.Number(n.path)
	if err != nil {
		return k.unverifiable(n.path, err)
	}
	if !n.char || n.major != major || n.minor != minor {
		return k.refuse(NodeMismatch, n.path, "the VFIO node %s has the device number %d:%d of something else", n.path, n.major, n.minor)
	}
	return nil
}

// access decides on a device cgroup rule for VFIO's numbers: it must be that of
// a node of the pod's claims.
func (k *check) access(n node) *Refusal {
	for _, a := range assignmentsOf(k.view, k.pod) {
		for _, d := range a.Devices {
			for _, path := range d.Nodes {
				major, minor, err := k.host.Number(path)
				if err == nil && major == n.major && minor == n.minor {
					return nil
				}
			}
		}
	}
	number := fmt.Sprintf("%d:%d", n.major, n.minor)
	if n.minor == anyMinor {
		number = fmt.Sprintf("%d:*", n.major)
	}
	return k.refuse(NodeWithoutClaim, number, "its device cgroup lets it open VFIO devices (%s) that are not of its claims", number)
}

// mounts decides on what is mounted from the host.
func (k *check) mounts() *Refusal {
	if k.rules.exempt(k.pod) {
		return nil
	}
	for _, m := range k.given.mounts {
		if shown := exposed(m); shown != nil {
			return k.refuse(MountNotAllowed, shown.Subject, "%s", shown.Text)
		}
	}
	return nil
}

// claims decides whether the sandbox may have what the container gets.
func (k *check) claims() *Refusal {
	for _, a := range k.used {
		if refused := k.rules.inSandbox(a, k.pod, k.given.name); refused != nil {
			return refused
		}
	}
	return nil
}

// lookUp gets the view, which the subject needs.
func (k *check) lookUp(subject string) *Refusal {
	if k.view != nil {
		return nil
	}
	view, err := k.who.View()
	if err != nil {
		return k.unverifiable(subject, err)
	}
	k.view = view
	return nil
}

func (k *check) isOurs(a *assignment.Assignment) bool {
	return slices.Contains(assignmentsOf(k.view, k.pod), a)
}

func (k *check) use(a *assignment.Assignment) {
	if !slices.Contains(k.used, a) {
		k.used = append(k.used, a)
	}
}

func (k *check) refuse(code Code, subject, format string, args ...any) *Refusal {
	return &Refusal{
		Code: code, Pod: podOf(k.pod), Container: k.given.name, Subject: subject, Text: fmt.Sprintf(format, args...),
		Fix: "ask for the device by a ResourceClaim in the pod's spec; if this is a system pod of the node, exempt its namespace in the plugin's configuration",
	}
}

func (k *check) unverifiable(subject string, err error) *Refusal {
	return &Refusal{
		Code: Unverifiable, Pod: podOf(k.pod), Container: k.given.name, Subject: subject, Err: err,
		Text: "whether its devices are its own can't be read", Fix: "look into the plugin's log on this node; the kubelet tries again",
	}
}
