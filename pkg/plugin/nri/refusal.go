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
	// HandlerNotAllowed: a pod with a claim of ours runs under a runtime handler
	// that gives it no VM of its own.
	HandlerNotAllowed Code = "HandlerNotAllowed"
	// AnnotationNotAllowed: an annotation could name devices or change the VM.
	AnnotationNotAllowed Code = "AnnotationNotAllowed"
	// ClaimNotUsable: the claim is not prepared (any more), or of an earlier boot.
	ClaimNotUsable Code = "ClaimNotUsable"
	// DeviceNotClean: another sandbox has the devices, or had them and they are
	// not reset since.
	DeviceNotClean Code = "DeviceNotClean"
	// NotInSandbox: the VM booted without the device and can't get it any more.
	NotInSandbox Code = "NotInSandbox"
	// NodeWithoutClaim: a VFIO device that no prepared claim explains.
	NodeWithoutClaim Code = "NodeWithoutClaim"
	// NodeOfOthersClaim: a VFIO device of a claim that the pod does not have.
	NodeOfOthersClaim Code = "NodeOfOthersClaim"
	// NodeMismatch: a node with the name of one device and the number of another.
	NodeMismatch Code = "NodeMismatch"
	// MountNotAllowed: a mount that shows VFIO nodes of the host.
	MountNotAllowed Code = "MountNotAllowed"
	// Unverifiable: what the decision needs can't be read.
	Unverifiable Code = "Unverifiable"
)

// Refusal is why a sandbox or a container must not run. The runtime puts its
// text into an event of the pod, which the tenant reads.
type Refusal struct {
	Code Code
	// Pod and Container are what is refused; no container for a sandbox.
	Pod       Pod
	Container string
	// Subject is the node, mount source, CDI name or annotation at fault, where
	// there is one.
	Subject string
	// Claim is the claim in question, zero for none. It may be another tenant's
	// and is not in the text unless the pod consumes it.
	Claim plan.Ref
	// Text says what is wrong and Fix what to do; both are whole phrases.
	Text, Fix string
	// Err is what could not be read, for Unverifiable. It may name what is not the
	// tenant's to know and is not in the text.
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

// attributes returns what the log says of a refusal, in one group.
func (r *Refusal) attributes() slog.Attr {
	return slog.Group("refusal",
		slog.String("code", string(r.Code)), slog.String("pod", r.Pod.String()), slog.String("container", r.Container),
		slog.String("subject", r.Subject), slog.String("claim", r.Claim.String()), slog.String("reason", r.Error()), slog.Any("err", r.Err))
}

func podOf(p *api.PodSandbox) Pod {
	return Pod{Namespace: p.GetNamespace(), Name: p.GetName(), UID: p.GetUid()}
}
