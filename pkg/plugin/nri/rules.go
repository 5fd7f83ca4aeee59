package nri

import (
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/nri/pkg/api"

	"github.com/kata-vfio/kata-vfio/pkg/cdi"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/podres"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// Rules decide what may run. The zero value allows no handler, exempts no namespace and expects hot
// plug.
type Rules struct {
	// AllowedHandlers are the runtime handlers that run each pod in its own VM, with our devices.
	AllowedHandlers []string
	// ExemptNamespaces are the namespaces whose pods may have the host's VFIO nodes and mounts. List each namespace whose pods are
	// privileged or mount /dev, such as kube-system and the plugin's own. Anyone who can create pods there can reach every device of the
	// node. Pods under an allowed handler are never exempt, and neither are the CDI names of kata-vfio.
	ExemptNamespaces []string
	// ColdPlug says that VMs get devices only at boot.
	ColdPlug bool
}

// Sandbox decides on a pod's sandbox, which the runtime has started, and returns the assignments of the pod's claims. If the journal can't
// be read, it refuses pods under an allowed handler, and admits all others: without assignments, their containers get no VFIO node either.
// A pod whose claim has an unreadable record is admitted for the same reason.
func (r *Rules) Sandbox(who Assignments, pod *api.PodSandbox) ([]*podres.Assignment, *rule.Verdict) {
	if refused := cdi.CheckAnnotations(pod.GetAnnotations(), r.allowed(pod)); refused != nil {
		return nil, refused
	}
	view, err := who.View()
	switch {
	case err != nil && r.allowed(pod):
		return nil, &rule.Verdict{
			Code: rule.Unverifiable, Err: err,
			Text: "the devices of its claims can't be read", Fix: "see the plugin's log on this node; the kubelet tries again",
		}
	case err != nil:
		return nil, nil
	}
	own := listAssignments(view, pod)
	for _, a := range own {
		if refused := r.inSandbox(a, pod); refused != nil {
			return nil, refused
		}
	}
	return own, nil
}

// inSandbox decides whether the pod's sandbox may have the devices of one of the pod's claims.
func (r *Rules) inSandbox(a *podres.Assignment, pod *api.PodSandbox) *rule.Verdict {
	refused := &rule.Verdict{}
	switch {
	case !r.allowed(pod):
		refused.Code = rule.HandlerNotAllowed
		refused.Text = fmt.Sprintf("its claim %s needs a VM, and the runtime handler %q does not start one", a.Claim, pod.GetRuntimeHandler())
		refused.Fix = "use a RuntimeClass with the handler " + strings.Join(r.AllowedHandlers, " or ")
	case !a.Usable():
		refused.Code = rule.ClaimNotUsable
		refused.Text = fmt.Sprintf("its claim %s is %s", a.Claim, condition(a))
		refused.Fix = "wait until the kubelet has prepared it, or delete the pod if it does not"
	case a.Sandbox == nil && len(a.Devices) > 0 && (r.ColdPlug || a.HasEndpoint()):
		refused.Code = rule.NotInSandbox
		refused.Text = fmt.Sprintf("its VM booted without the devices of claim %s", a.Claim)
		refused.Fix = "check that pod_resource_api_sock in the Kata configuration names the plugin's socket and that the plugin runs; then delete the pod"
	case !a.CleanFor(pod.GetId()):
		refused.Code = rule.DeviceNotClean
		refused.Text = fmt.Sprintf("the devices of claim %s were assigned to sandbox %s and have not been reset", a.Claim, a.Sandbox.ID)
		refused.Fix = "wait until that sandbox ends: its devices are then reset, and the kubelet tries again; pods can't share a device"
	default:
		return nil
	}
	return refused
}

// condition returns why a claim is not usable.
func condition(a *podres.Assignment) string {
	switch {
	case a.Stale:
		return "prepared in an earlier boot of the node"
	case a.State == journal.Prepared && a.Withdrawn != "":
		return "prepared with devices that are not allocated to it here: " + a.Withdrawn
	case a.State == journal.Prepared && a.SpecFault != "":
		return "without a CDI spec that can be read"
	case a.State == journal.Prepared:
		return "without its CDI spec"
	}
	return string(a.State)
}

func (r *Rules) allowed(pod *api.PodSandbox) bool {
	return slices.Contains(r.AllowedHandlers, pod.GetRuntimeHandler())
}

// exempt reports whether the pod may have the host's nodes.
func (r *Rules) exempt(pod *api.PodSandbox) bool {
	return !r.allowed(pod) && slices.Contains(r.ExemptNamespaces, pod.GetNamespace())
}

// listAssignments returns the assignments of the pod's claims; none for a pod without a UID, because
// another pod can have had its name.
func listAssignments(view *podres.View, pod *api.PodSandbox) []*podres.Assignment {
	if pod.GetUid() == "" {
		return nil
	}
	return view.OfPod(pod.GetUid())
}

// Host looks things up in the node's kernel; [Kernel] implements it. Its methods do not block, and Devices blocks only for a
// limited time.
type Host interface {
	// Majors returns the major numbers of VFIO's character devices; none while the modules are not
	// loaded.
	Majors() ([]int64, error)
	// Number returns the device number of a VFIO node, "/dev/vfio/15".
	Number(node string) (major, minor int64, err error)
	// StartTime returns when a process started, in clock ticks after boot.
	StartTime(pid int) (uint64, error)
	// Devices returns the device nodes among the files that paths of the node lead to, by path; see
	// [SourceFinder.Devices].
	Devices(namespace string, paths []string) (map[string]DeviceNode, error)
}

// Container decides on a container by its spec and the pending adjustments of all plugins; adjust may be nil. It reads assignments only for
// a container with a VFIO device, so that all other containers are admitted whatever the state of the journal. It looks at the sources of
// mounts only under an allowed handler.
func (r *Rules) Container(who Assignments, host Host, pod *api.PodSandbox, c *api.Container, adjust *api.ContainerAdjustment) *rule.Verdict {
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
	view  *podres.View         // nil until it is needed
	used  []*podres.Assignment // the pod's assignments that the container gets
}

func (k *check) run() *rule.Verdict {
	for _, annotations := range append(k.given.annotations, k.pod.GetAnnotations()) {
		if refused := cdi.CheckAnnotations(annotations, k.rules.allowed(k.pod)); refused != nil {
			return refused
		}
	}
	for _, part := range []func() *rule.Verdict{k.cdi, k.nodes, k.mounts, k.claims} {
		if refused := part(); refused != nil {
			return refused
		}
	}
	return nil
}

// cdi decides on the CDI names of our kind.
func (k *check) cdi() *rule.Verdict {
	for _, name := range k.given.ourCDI() {
		if refused := k.lookUp(name); refused != nil {
			return refused
		}
		a, known := k.view.WithCDI(name)
		switch {
		case !known && k.view.Unread() != nil:
			return k.unverifiable(name, k.view.Unread())
		case !known:
			return k.refuse(rule.NodeWithoutClaim, name, "no claim on this node has the device %s", name)
		case !k.isOurs(a):
			return ofOthers(a, k.refuse(rule.NodeOfOthersClaim, name, "the device %s belongs to a claim that is not the pod's", name))
		}
		k.use(a)
	}
	return nil
}

// nodes decides on the VFIO nodes.
func (k *check) nodes() *rule.Verdict {
	if k.rules.exempt(k.pod) {
		return nil
	}
	majors, err := k.host.Majors()
	// Without VFIO's numbers only a path tells a VFIO node, and a container may have one under any path.
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

func (k *check) node(n node) *rule.Verdict {
	if n.path == "" {
		return k.access(n)
	}
	owners := k.view.WithNode(n.path)
	mine := slices.IndexFunc(owners, k.isOurs)
	switch {
	case len(owners) == 0 && k.view.Unread() != nil:
		return k.unverifiable(n.path, k.view.Unread())
	case len(owners) == 0:
		return k.refuse(rule.NodeWithoutClaim, n.path, "no claim on this node explains the VFIO node %s (device %d:%d)", n.path, n.major, n.minor)
	case mine < 0:
		return ofOthers(owners[0], k.refuse(rule.NodeOfOthersClaim, n.path, "the VFIO node %s belongs to a claim that is not the pod's", n.path))
	}
	if refused := k.number(n); refused != nil {
		return refused
	}
	k.use(owners[mine])
	return nil
}

// number compares a node's device number with that of the host's node of the same name: Kata finds
// the device by its number.
func (k *check) number(n node) *rule.Verdict {
	major, minor, err := k.host.Number(n.path)
	if err != nil {
		return k.unverifiable(n.path, err)
	}
	if !n.char || n.major != major || n.minor != minor {
		return k.refuse(rule.NodeMismatch, n.path, "the VFIO node %s has the device number of another device (%d:%d)", n.path, n.major, n.minor)
	}
	return nil
}

// access decides on a device cgroup rule for VFIO's numbers: a node of the pod's claims must have the
// number.
func (k *check) access(n node) *rule.Verdict {
	for _, a := range listAssignments(k.view, k.pod) {
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
	return k.refuse(rule.NodeWithoutClaim, number, "its device cgroup allows VFIO devices (%s) that are not in its claims", number)
}

// claims decides whether the sandbox may have the container's devices.
func (k *check) claims() *rule.Verdict {
	for _, a := range k.used {
		if refused := k.rules.inSandbox(a, k.pod); refused != nil {
			return refused
		}
	}
	return nil
}

// lookUp reads the view once; a refusal names the subject.
func (k *check) lookUp(subject string) *rule.Verdict {
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

// ofOthers adds the claim that has the device to a verdict's error, which only the log shows: the claim may belong to another tenant.
func ofOthers(a *podres.Assignment, v *rule.Verdict) *rule.Verdict {
	v.Err = fmt.Errorf("it belongs to claim %s", a.Claim)
	return v
}

func (k *check) isOurs(a *podres.Assignment) bool {
	return slices.Contains(listAssignments(k.view, k.pod), a)
}

func (k *check) use(a *podres.Assignment) {
	if !slices.Contains(k.used, a) {
		k.used = append(k.used, a)
	}
}

func (k *check) refuse(code rule.Code, subject, format string, args ...any) *rule.Verdict {
	return &rule.Verdict{
		Code: code, Object: subject, Text: fmt.Sprintf(format, args...),
		Fix: "request the device with a ResourceClaim in the pod's spec; if this is a system pod of the node, exempt its namespace in the plugin's configuration",
	}
}

func (k *check) unverifiable(subject string, err error) *rule.Verdict {
	return &rule.Verdict{
		Code: rule.Unverifiable, Object: subject, Err: err,
		Text: "the owner of its devices can't be read", Fix: "see the plugin's log on this node; the kubelet tries again",
	}
}
