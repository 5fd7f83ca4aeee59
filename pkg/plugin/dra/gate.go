package dra

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/kata-vfio/kata-vfio/pkg/claim"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/podpolicy"
)

// GateCode names why a pod may not have the devices of its claim. Codes are
// stable for machines.
type GateCode string

// Codes of a refused pod.
const (
	// NoPod: the claim is reserved for no pod.
	NoPod GateCode = "NoPod"
	// SharedClaim: the claim is reserved for more than one pod.
	SharedClaim GateCode = "SharedClaim"
	// PodReplaced: the pod is gone, or another one has its name.
	PodReplaced GateCode = "PodReplaced"
	// AllocatedElsewhere: the claim's devices are allocated on another node.
	AllocatedElsewhere GateCode = "AllocatedElsewhere"
	// OtherNode: the pod is not bound to this node.
	OtherNode GateCode = "OtherNode"
	// NoRuntimeClass: the pod would run under the node's default runtime.
	NoRuntimeClass GateCode = "NoRuntimeClass"
	// HandlerNotAllowed: the pod's RuntimeClass has another handler.
	HandlerNotAllowed GateCode = "HandlerNotAllowed"
	// AnnotationNotAllowed: an annotation of the pod could name devices or change its VM. Package nri refuses it by the same code, once
	// its VM has booted.
	AnnotationNotAllowed GateCode = "AnnotationNotAllowed"
	// MountNotAllowed: a hostPath volume of the pod shows VFIO nodes of the host. As for AnnotationNotAllowed.
	MountNotAllowed GateCode = "MountNotAllowed"
	// ClassUnknown: the allocation is of a request that the claim's spec does not have.
	ClassUnknown GateCode = "ClassUnknown"
	// ClassGone: the DeviceClass of a device was deleted.
	ClassGone GateCode = "ClassGone"
	// ClassNotGranted: the DeviceClass is not for the claim's namespace.
	ClassNotGranted GateCode = "ClassNotGranted"
	// ClassChanged: the DeviceClass has other parameters than the allocation.
	ClassChanged GateCode = "ClassChanged"
	// NoVLAN: a VF would be in no VLAN, and its DeviceClass does not say that it may.
	NoVLAN GateCode = "NoVLAN"
)

// GateError says why the pod of a claim may not have its devices.
type GateError struct {
	Code  GateCode
	Claim string // "namespace/name"
	// Text says what is wrong, Fix what to do.
	Text, Fix string
}

func (e *GateError) Error() string {
	return fmt.Sprintf("claim %s: %s: %s", e.Claim, e.Text, e.Fix)
}

// Gate admits the pods that may have devices: one pod a claim, under a
// RuntimeClass whose handler puts it into a VM, by DeviceClasses that are granted
// to its namespace. It is the decision that holds
// whatever admission policies there are: nothing of a claim is prepared
// before it.
type Gate struct {
	Client kubernetes.Interface
	// NodeName is the node's name.
	NodeName string
	// Handlers are the RuntimeClass handlers whose pods are admitted.
	Handlers []string
}

// Admit returns nil when the claim's pod may have its devices, a [GateError]
// when it may not, and another error when that can't be found out. An API
// server that can't be reached is asked again until ctx ends: the kubelet's own
// next try is a minute away.
func (g *Gate) Admit(ctx context.Context, req *claim.Request) error {
	consumer, err := g.consumer(req)
	if err != nil {
		return err
	}
	if err := g.allocatedHere(ctx, req); err != nil {
		return err
	}
	pod, err := g.pod(ctx, req, consumer)
	if err != nil {
		return err
	}
	if err := g.admitHandler(ctx, req, pod); err != nil {
		return err
	}
	if err := g.admitSpec(req, pod); err != nil {
		return err
	}
	return g.admitClasses(ctx, req)
}

// consumer returns the one pod that the claim is reserved for.
func (g *Gate) consumer(req *claim.Request) (claim.Pod, error) {
	switch len(req.Pods) {
	case 0:
		return claim.Pod{}, g.refuse(req, NoPod, "it is reserved for no pod", "delete the pod and create it again")
	case 1:
		return req.Pods[0], nil
	}
	names := make([]string, len(req.Pods))
	for i, p := range req.Pods {
		names[i] = p.Name
	}
	return claim.Pod{}, g.refuse(req, SharedClaim,
		"it is reserved for "+strings.Join(names, " and ")+", and a device can be in one VM only", "give each pod a claim of its own, by a ResourceClaimTemplate")
}

// pod returns the pod that the claim is reserved for, which is bound to this node.
func (g *Gate) pod(ctx context.Context, req *claim.Request, want claim.Pod) (*corev1.Pod, error) {
	var pod *corev1.Pod
	err := insist(ctx, func(ctx context.Context) (err error) {
		pod, err = g.Client.CoreV1().Pods(req.Namespace).Get(ctx, want.Name, metav1.GetOptions{})
		return err
	})
	switch {
	case apierrors.IsNotFound(err), err == nil && string(pod.UID) != want.UID:
		return nil, g.refuse(req, PodReplaced, fmt.Sprintf("pod %s (%s), which it is reserved for, is gone", want.Name, want.UID), "nothing to do: the claim goes with it")
	case err != nil:
		return nil, fmt.Errorf("claim %s/%s: look at pod %s: %w", req.Namespace, req.Name, want.Name, err)
	case pod.Spec.NodeName != g.NodeName:
		return nil, g.refuse(req, OtherNode, fmt.Sprintf("pod %s is bound to node %q, not to %s", want.Name, pod.Spec.NodeName, g.NodeName), "delete the pod and create it again")
	}
	return pod, nil
}

// admitHandler refuses a pod that would not run in a VM.
func (g *Gate) admitHandler(ctx context.Context, req *claim.Request, pod *corev1.Pod) error {
	if pod.Spec.RuntimeClassName == nil || *pod.Spec.RuntimeClassName == "" {
		return g.refuse(req, NoRuntimeClass, fmt.Sprintf("pod %s has no runtimeClassName, so it would share the node's kernel", pod.Name), "set runtimeClassName: kata-gpu in the pod")
	}
	handler, err := g.handler(ctx, req, *pod.Spec.RuntimeClassName)
	if err != nil {
		return err
	}
	if !slices.Contains(g.Handlers, handler) {
		return g.refuse(req, HandlerNotAllowed,
			fmt.Sprintf("pod %s runs under the handler %q, which is no VM for our devices", pod.Name, handler),
			"use a RuntimeClass with the handler "+strings.Join(g.Handlers, " or ")+", or allow this one in the node config (allowedHandlers)")
	}
	return nil
}

// admitSpec refuses a pod that asks for devices beside its claims. Package nri would refuse it too, but not before a VM has booted
// for it, again and again.
func (g *Gate) admitSpec(req *claim.Request, pod *corev1.Pod) error {
	if refused := podpolicy.Annotations(pod.Annotations, true); refused != nil {
		return g.refuse(req, AnnotationNotAllowed, "pod "+pod.Name+": "+refused.Text, refused.Fix)
	}
	for _, v := range pod.Spec.Volumes {
		if v.HostPath == nil {
			continue
		}
		if refused := podpolicy.HostPath(v.HostPath.Path); refused != nil {
			return g.refuse(req, MountNotAllowed, "pod "+pod.Name+": "+refused.Text, refused.Fix)
		}
	}
	return nil
}

func (g *Gate) handler(ctx context.Context, req *claim.Request, class string) (string, error) {
	var handler string
	err := insist(ctx, func(ctx context.Context) error {
		rc, err := g.Client.NodeV1().RuntimeClasses().Get(ctx, class, metav1.GetOptions{})
		if err == nil {
			handler = rc.Handler
		}
		return err
	})
	if err != nil {
		return "", fmt.Errorf("claim %s/%s: look at RuntimeClass %s: %w", req.Namespace, req.Name, class, err)
	}
	return handler, nil
}

func (g *Gate) refuse(req *claim.Request, code GateCode, text, fix string) error {
	return &GateError{Code: code, Claim: req.Namespace + "/" + req.Name, Text: text, Fix: fix}
}

// askAgain is the pause before the API server is asked again.
const askAgain = 500 * time.Millisecond

// insist calls the API server until it answers: an answer is a result, or an
// error that another try would not change.
func insist(ctx context.Context, call func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextCancel(ctx, askAgain, true, func(ctx context.Context) (bool, error) {
		last = call(ctx)
		return last == nil || !transient(last), nil
	})
	if err != nil {
		return errors.Join(context.Cause(ctx), last)
	}
	return last
}

// transient reports whether the API server may answer otherwise soon.
func transient(err error) bool {
	status := apierrors.APIStatus(nil)
	if !errors.As(err, &status) {
		return !errors.Is(err, context.Canceled) // not from the API server: the way to it is broken
	}
	return apierrors.IsTooManyRequests(err) || apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) ||
		apierrors.IsInternalError(err) || apierrors.IsServiceUnavailable(err)
}
