package dra

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/cdi"
	"github.com/kata-vfio/kata-vfio/pkg/claim"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// Gate admits the pods that may have devices: one pod for each claim, under a RuntimeClass whose handler starts a VM, with DeviceClasses
// that are granted to the pod's namespace. It does not depend on admission policies: nothing is prepared before the gate admits the claim.
type Gate struct {
	Client kubernetes.Interface
	// NodeName is the node's name.
	NodeName string
	// Handlers are the RuntimeClass handlers whose pods are admitted.
	Handlers []string
}

// Admit returns nil if the claim's pod may have its devices, a [rule.RefusedError] if it may not, and another error if that is unknown.
// It retries until ctx ends if the API server does not answer, because the kubelet's next attempt is a minute away.
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
	// Kubernetes allows up to 256 consumers of a claim (ResourceClaimReservedForMaxSize). VFIO lets one VM open an IOMMU group.
	switch len(req.Pods) {
	case 0:
		return claim.Pod{}, refuse(req, rule.NoPod, "it is reserved for no pod", "delete the pod and create it again")
	case 1:
		return req.Pods[0], nil
	}
	names := make([]string, len(req.Pods))
	for i, p := range req.Pods {
		names[i] = p.Name
	}
	return claim.Pod{}, refuse(req, rule.SharedClaim,
		"it is reserved for "+strings.Join(names, " and ")+", and a device can be in one VM only", "give each pod a claim of its own, by a ResourceClaimTemplate")
}

// pod returns the pod that has the claim reserved, and is bound to this node.
func (g *Gate) pod(ctx context.Context, req *claim.Request, want claim.Pod) (*corev1.Pod, error) {
	var pod *corev1.Pod
	// The pod is read from the API server: a cache may not yet have the pod that the kubelet starts.
	err := insist(ctx, func(ctx context.Context) (err error) {
		pod, err = g.Client.CoreV1().Pods(req.Namespace).Get(ctx, want.Name, metav1.GetOptions{})
		return err
	})
	switch {
	// status.reservedFor names a pod by its UID. A pod with the same name and another UID, such as the next pod of a
	// StatefulSet, has not reserved the claim.
	case apierrors.IsNotFound(err), err == nil && string(pod.UID) != want.UID:
		return nil, refuse(req, rule.PodReplaced, fmt.Sprintf("pod %s (%s), for which it is reserved, no longer exists", want.Name, want.UID), "nothing to do: the claim goes with it")
	case err != nil:
		return nil, fmt.Errorf("claim %s/%s: look at pod %s: %w", req.Namespace, req.Name, want.Name, err)
	case pod.Spec.NodeName != g.NodeName:
		return nil, refuse(req, rule.OtherNode, fmt.Sprintf("pod %s is bound to node %q, not to %s", want.Name, pod.Spec.NodeName, g.NodeName), "delete the pod and create it again")
	}
	return pod, nil
}

// admitHandler refuses a pod that would not run in a VM.
func (g *Gate) admitHandler(ctx context.Context, req *claim.Request, pod *corev1.Pod) error {
	// Without a RuntimeClass the pod runs under containerd's default handler, which usually is runc.
	if pod.Spec.RuntimeClassName == nil || *pod.Spec.RuntimeClassName == "" {
		return refuse(req, rule.NoRuntimeClass, fmt.Sprintf("pod %s has no runtimeClassName, so it would share the node's kernel", pod.Name), "set runtimeClassName: kata-gpu in the pod")
	}
	handler, err := g.handler(ctx, req, *pod.Spec.RuntimeClassName)
	if err != nil {
		return err
	}
	if !slices.Contains(g.Handlers, handler) {
		return refuse(req, rule.HandlerNotAllowed,
			fmt.Sprintf("pod %s runs under the handler %q, which is not allowed to get kata-vfio's devices", pod.Name, handler),
			"use a RuntimeClass with the handler "+strings.Join(g.Handlers, " or ")+", or allow this one in the node config (allowedHandlers)")
	}
	return nil
}

// admitSpec refuses a pod that asks for devices outside of its claims. Package nri refuses it too, but only after a VM booted for
// each attempt.
func (g *Gate) admitSpec(req *claim.Request, pod *corev1.Pod) error {
	if refused := cdi.CheckAnnotations(pod.Annotations, true); refused != nil {
		return refuse(req, refused.Code, "pod "+pod.Name+": "+refused.Text, refused.Fix)
	}
	for _, v := range pod.Spec.Volumes {
		if v.HostPath == nil {
			continue
		}
		if refused := cdi.CheckHostPath(v.HostPath.Path); refused != nil {
			return refuse(req, refused.Code, "pod "+pod.Name+": "+refused.Text, refused.Fix)
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

// askAgain returns the pauses before the API server is asked again. They grow from half a second to five seconds, and each is up to a half
// longer at random, because the claims of all nodes wait for the API server.
func askAgain() wait.DelayFunc {
	return wait.Backoff{Duration: 500 * time.Millisecond, Factor: 1.5, Jitter: 0.5, Steps: 10, Cap: 5 * time.Second}.DelayFunc()
}

// insist calls the API server until it answers: with a result, or with an error that another attempt would not change.
func insist(ctx context.Context, call func(context.Context) error) error {
	var last error
	err := askAgain().Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		last = call(ctx)
		return last == nil || !transient(last), nil
	})
	if err != nil {
		// Until fails only if ctx ends. The error of the last call says what was wrong until then.
		return errors.Join(context.Cause(ctx), last)
	}
	return last
}

// transient reports whether another attempt can succeed soon.
func transient(err error) bool {
	status := apierrors.APIStatus(nil)
	if !errors.As(err, &status) {
		return !errors.Is(err, context.Canceled) // the API server was not reached
	}
	return apierrors.IsTooManyRequests(err) || apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) ||
		apierrors.IsInternalError(err) || apierrors.IsServiceUnavailable(err)
}

// allocatedHere refuses a claim whose devices are allocated on another node. A tenant can bind a pod to this node with
// spec.nodeName, and Kubernetes still reserves the claim for that pod.
func (g *Gate) allocatedHere(ctx context.Context, req *claim.Request) error {
	// The pools come first: comparing them needs no request to the API server.
	for i := range req.Devices {
		if d := &req.Devices[i]; !device.IsNodesPool(g.NodeName, d.Pool) {
			return g.elsewhere(req, fmt.Sprintf("device %s is allocated from pool %s, which is not of node %s (the names of its pools begin with %s)",
				d.Name, d.Pool, g.NodeName, device.NodePool(g.NodeName)))
		}
	}
	if req.NodeSelector == nil {
		return nil
	}
	selector, err := nodeaffinity.NewNodeSelector(req.NodeSelector)
	if err != nil {
		return g.elsewhere(req, fmt.Sprintf("status.allocation.nodeSelector can't be read (%v)", err))
	}
	node, err := g.node(ctx, req)
	if err != nil {
		return err
	}
	if !selector.Match(node) {
		return g.elsewhere(req, fmt.Sprintf("its allocation is for other nodes (status.allocation.nodeSelector does not match %s)", g.NodeName))
	}
	return nil
}

func (g *Gate) elsewhere(req *claim.Request, text string) error {
	return refuse(req, rule.AllocatedElsewhere, text,
		"run the pod on the node of the allocation: delete the pod and create it again without spec.nodeName, so that the scheduler places it")
}

// node returns this node for a request's selector, which usually names only the node.
func (g *Gate) node(ctx context.Context, req *claim.Request) (*corev1.Node, error) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: g.NodeName}}
	if !asksForLabels(req.NodeSelector) {
		return node, nil
	}
	err := insist(ctx, func(ctx context.Context) (err error) {
		node, err = g.Client.CoreV1().Nodes().Get(ctx, g.NodeName, metav1.GetOptions{})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("claim %s/%s: look at node %s: %w", req.Namespace, req.Name, g.NodeName, err)
	}
	return node, nil
}

func asksForLabels(s *corev1.NodeSelector) bool {
	for i := range s.NodeSelectorTerms {
		// The terms' matchFields need no request: the API allows only metadata.name there.
		if len(s.NodeSelectorTerms[i].MatchExpressions) > 0 {
			return true
		}
	}
	return false
}

// allocateAgain is the fix for an allocation that no longer matches its DeviceClass.
const allocateAgain = "delete the pod, and the claim if no template made it, and create them again"

// admitClasses admits a claim if all its DeviceClasses are granted to its namespace. Only a class may have parameters that weaken
// isolation, and a claim that names the class gets these parameters.
func (g *Gate) admitClasses(ctx context.Context, req *claim.Request) error {
	classes := map[string]*resourceapi.DeviceClass{}
	for i := range req.Devices {
		d := &req.Devices[i]
		if d.Class == "" {
			return refuse(req, rule.ClassUnknown,
				fmt.Sprintf("device %s is allocated to request %s, which the claim's spec does not have, so its DeviceClass is unknown", d.Name, d.Request), allocateAgain)
		}
		if classes[d.Class] == nil {
			class, err := g.class(ctx, req, d)
			if err != nil {
				return err
			}
			classes[d.Class] = class
		}
		if err := g.admitClass(req, d, classes[d.Class]); err != nil {
			return err
		}
	}
	return nil
}

// class reads the DeviceClass of a device.
func (g *Gate) class(ctx context.Context, req *claim.Request, d *claim.Device) (*resourceapi.DeviceClass, error) {
	var class *resourceapi.DeviceClass
	err := insist(ctx, func(ctx context.Context) (err error) {
		class, err = g.Client.ResourceV1().DeviceClasses().Get(ctx, d.Class, metav1.GetOptions{})
		return err
	})
	switch {
	case apierrors.IsNotFound(err):
		return nil, refuse(req, rule.ClassGone,
			fmt.Sprintf("DeviceClass %s of request %s was deleted after device %s was allocated by it", d.Class, d.Request, d.Name),
			"name a DeviceClass that exists; then "+allocateAgain)
	case err != nil:
		return nil, fmt.Errorf("claim %s/%s: look at DeviceClass %s: %w", req.Namespace, req.Name, d.Class, err)
	}
	return class, nil
}

// admitClass compares one device with its DeviceClass, which may have changed since the scheduler copied the class's parameters.
func (g *Gate) admitClass(req *claim.Request, d *claim.Device, class *resourceapi.DeviceClass) error {
	// The annotation can have changed since the scheduler decided.
	if !v1alpha1.Grants(class.Annotations, req.Namespace) {
		return refuse(req, rule.ClassNotGranted,
			fmt.Sprintf("DeviceClass %s of request %s is not granted to namespace %s, so device %s is not either", d.Class, d.Request, req.Namespace, d.Name),
			fmt.Sprintf("name a class that is, such as gpu.%s; or have the cluster's admin add the namespace to the class's annotation %s",
				v1alpha1.DriverName, v1alpha1.AnnotationNamespaces))
	}
	// The scheduler copies the class's parameters into status.allocation.devices.config, with the source FromClass.
	if !slices.EqualFunc(d.ClassParameters, classParameters(class), sameJSON) {
		return refuse(req, rule.ClassChanged,
			fmt.Sprintf("DeviceClass %s of request %s has other parameters now than when device %s was allocated by it", d.Class, d.Request, d.Name),
			allocateAgain)
	}
	if kind, _, err := device.ParseName(d.Name); err == nil && kind == device.VFType && !d.VF.SaysSegment() {
		return refuse(req, rule.NoVLAN,
			fmt.Sprintf("VF %s would be without a VLAN, in the network of its PF, and DeviceClass %s does not allow that", d.Name, d.Class),
			"have the cluster's admin set vlan in the class's VFConfig, or allowUntagged: true if the VF is meant to have no VLAN (chart: deviceClasses.vf.vf)")
	}
	return nil
}

// classParameters returns a class's parameters for our driver, in its order.
func classParameters(class *resourceapi.DeviceClass) []json.RawMessage {
	var all []json.RawMessage
	for i := range class.Spec.Config {
		if o := class.Spec.Config[i].Opaque; o != nil && o.Driver == v1alpha1.DriverName {
			all = append(all, o.Parameters.Raw)
		}
	}
	return all
}

// sameJSON reports whether two texts are the same JSON, whatever the order of members.
func sameJSON(a, b json.RawMessage) bool {
	var left, right any
	// A text that is not JSON is equal to nothing, so the claim is refused.
	if json.Unmarshal(a, &left) != nil || json.Unmarshal(b, &right) != nil {
		return false
	}
	return reflect.DeepEqual(left, right)
}
