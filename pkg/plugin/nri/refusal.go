package nri

import (
	"fmt"
	"log/slog"

	"github.com/containerd/nri/pkg/api"

	"github.com/kata-vfio/kata-vfio/pkg/plan"
)

// Code names the reason of a refusal. Codes are stable for machines.
type Code string

// Refusal codes.
const (
	// HandlerNotAllowed: a pod with one of our claims runs under a runtime handler that does not start
	// a VM for it.
	HandlerNotAllowed Code = "HandlerNotAllowed"
	// AnnotationNotAllowed: an annotation can name devices or change the VM.
	AnnotationNotAllowed Code = "AnnotationNotAllowed"
	// ClaimNotUsable: the claim is not prepared, or was prepared before a reboot.
	ClaimNotUsable Code = "ClaimNotUsable"
	// DeviceNotClean: another sandbox has the devices, or had them and they have not been reset.
	DeviceNotClean Code = "DeviceNotClean"
	// NotInSandbox: the VM booted without the device and can't get it later.
	NotInSandbox Code = "NotInSandbox"
	// NodeWithoutClaim: a VFIO device that belongs to no prepared claim.
	NodeWithoutClaim Code = "NodeWithoutClaim"
	// NodeOfOthersClaim: a VFIO device of a claim that the pod does not have.
	NodeOfOthersClaim Code = "NodeOfOthersClaim"
	// NodeMismatch: a node with the name of one device and the number of another.
	NodeMismatch Code = "NodeMismatch"
	// MountNotAllowed: a mount that shows the host's VFIO nodes, or a mount of a device node into a VM.
	MountNotAllowed Code = "MountNotAllowed"
	// Unverifiable: the facts for the decision can't be read.
	Unverifiable Code = "Unverifiable"
)

// Refusal says why a sandbox or a container must not run. The runtime puts its text into an Event of
// the pod, which the tenant can read.
type Refusal struct {
	Code Code
	// Pod and Container are refused; Container is empty for a sandbox.
	Pod       Pod
	Container string
	// Subject is the node, mount source or destination, CDI name or annotation that causes it, if any.
	Subject string
	// Claim is the claim in question, zero for none. It can be another tenant's, so the text names it
	// only if the pod consumes it.
	Claim plan.Ref
	// Text is the problem, and Fix the remedy. Both are complete phrases.
	Text, Fix string
	// Err says what could not be read, for Unverifiable, or what was found. It can contain what the tenant must not
	// see, so it is not in the text.
	Err error
}

// Pod names a pod.
type Pod struct{ Namespace, Name, UID string }

// String returns "namespace/name".
func (p Pod) String() string { return p.Namespace + "/" + p.Name }

// Error returns the refusal on one line.
func (r *Refusal) Error() string {
	who := "pod " + r.Pod.String()
	if r.Container != "" {
		who = fmt.Sprintf("container %s of %s", r.Container, who)
	}
	return fmt.Sprintf("kata-vfio refuses %s: %s; %s (%s)", who, r.Text, r.Fix, r.Code)
}

// Unwrap returns Err.
func (r *Refusal) Unwrap() error { return r.Err }

// attributes returns a refusal for the log, in one group.
func (r *Refusal) attributes() slog.Attr {
	return slog.Group("refusal",
		slog.String("code", string(r.Code)), slog.String("pod", r.Pod.String()), slog.String("container", r.Container),
		slog.String("subject", r.Subject), slog.String("claim", r.Claim.String()), slog.String("reason", r.Error()), slog.Any("err", r.Err))
}

func podOf(p *api.PodSandbox) Pod {
	return Pod{Namespace: p.GetNamespace(), Name: p.GetName(), UID: p.GetUid()}
}
