package nri

import (
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/nri/pkg/api"

	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/assignment"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/podpolicy"
)

// Rules decide what may run. The zero value allows no handler, exempts nobody
// and expects hot plug.
type Rules struct {
	// AllowedHandlers are the runtime handlers that run a pod in a VM of its own
	// with our devices.
	AllowedHandlers []string
	// ExemptNamespaces are trusted with the nodes and mounts of the host, for
	// the node's own privileged pods: every namespace whose pods mount /dev or
	// are privileged, such as kube-system and this plugin's own. Whoever may
	// create pods there can reach every device of the node. Pods under an
	// allowed handler are never exempt, and neither are CDI names of ours.
	ExemptNamespaces []string
	// ColdPlug says that VMs get devices at their boot and never later.
	ColdPlug bool
}

// Sandbox decides on a pod's sandbox, which the runtime has started, and
// returns what the pod's claims have. When assignments can't be read, pods under
// an allowed handler are refused and all others pass: their containers get no
// VFIO node either.
func (r *Rules) Sandbox(who Assignments, pod *api.PodSandbox) ([]*assignment.Assignment, *Refusal) {
	if refused := r.annotations(pod, "", pod.GetAnnotations()); refused != nil {
		return nil, refused
	}
	view, err := who.View()
	switch {
	case err != nil && r.allowed(pod):
		return nil, &Refusal{
			Code: Unverifiable, Pod: podOf(pod), Err: err,
			Text: "which devices its claims have can't be read", Fix: "look into the plugin's log on this node; the kubelet tries again",
		}
	case err != nil:
		return nil, nil
	}
	own := assignmentsOf(view, pod)
	for _, a := range own {
		if refused := r.inSandbox(a, pod, ""); refused != nil {
			return nil, refused
		}
	}
	return own, nil
}

// inSandbox decides whether the pod's sandbox may have the devices of a claim
// that the pod consumes.
func (r *Rules) inSandbox(a *assignment.Assignment, pod *api.PodSandbox, container string) *Refusal {
	refused := &Refusal{Pod: podOf(pod), Container: container, Claim: a.Claim}
	switch {
	case !r.allowed(pod):
		refused.Code = HandlerNotAllowed
		refused.Text = fmt.Sprintf("its claim %s needs a VM, and the runtime handler %q gives it none", a.Claim, pod.GetRuntimeHandler())
		refused.Fix = "use a RuntimeClass with the handler " + strings.Join(r.AllowedHandlers, " or ")
	case !a.Usable():
		refused.Code = ClaimNotUsable
		refused.Text = fmt.Sprintf("its claim %s is %s", a.Claim, condition(a))
		refused.Fix = "wait until the kubelet has prepared it, or delete the pod if it does not"
	case a.Sandbox == nil && len(a.Devices) > 0 && (r.ColdPlug || a.HasEndpoint()):
		refused.Code = NotInSandbox
		refused.Text = fmt.Sprintf("its VM booted without the devices of claim %s", a.Claim)
		refused.Fix = "check that pod_resource_api_sock in the Kata configuration names the plugin's socket and that the plugin runs; then delete the pod"
	case !a.CleanFor(pod.GetId()):
		refused.Code = DeviceNotClean
		refused.Text = fmt.Sprintf("the devices of claim %s were given to sandbox %s and are not reset since", a.Claim, a.Sandbox.ID)
		refused.Fix = "wait: they are reset once that sandbox is gone, and the kubelet tries again; pods can't share a device"
	default:
		return nil
	}
	return refused
}

// condition says why a claim is not usable.
func condition(a *assignment.Assignment) string {
	switch {
	case a.Stale:
		return "of an earlier boot of the node"
	case a.State == journal.Prepared && a.Withdrawn != "":
		return "prepared with devices that are not allocated to it here: " + a.Withdrawn
	case a.State == journal.Prepared:
		return "without its CDI spec"
	}
	return string(a.State)
}

// annotations decides on the annotations of a pod or of its container.
func (r *Rules) annotations(pod *api.PodSandbox, container string, annotations map[string]string) *Refusal {
	refused := podpolicy.Annotations(annotations, r.allowed(pod))
	if refused == nil {
		return nil
	}
	return &Refusal{
		Code: AnnotationNotAllowed, Pod: podOf(pod), Container: container, Subject: refused.Subject, Text: refused.Text, Fix: refused.Fix,
	}
}

func (r *Rules) allowed(pod *api.PodSandbox) bool {
	return slices.Contains(r.AllowedHandlers, pod.GetRuntimeHandler())
}

// exempt reports whether the pod is trusted with the host's nodes.
func (r *Rules) exempt(pod *api.PodSandbox) bool {
	return !r.allowed(pod) && slices.Contains(r.ExemptNamespaces, pod.GetNamespace())
}

// assignmentsOf returns what the pod's claims have. A pod without a UID has
// none: a name alone may be another pod's.
func assignmentsOf(view *assignment.View, pod *api.PodSandbox) []*assignment.Assignment {
	if pod.GetUid() == "" {
		return nil
	}
	return view.OfPod(pod.GetUid())
}
