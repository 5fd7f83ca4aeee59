package fleet

import (
	"cmp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/publish"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// trouble returns the moment as a trouble, with the advice for the reason of its condition, Event or container.
func (e *explaining) trouble(m Moment, reason string) Moment {
	m.Trouble = true
	if text, ok := rule.Find(e.texts, reason); ok {
		m.Fix, m.Who = text.Fix, text.Who
		return m
	}
	m.Fix = cmp.Or(e.missingClass(m.Text), sayingIn(m.Text), kubernetesAdvice(reason))
	return m
}

// kubernetesAdvice is about reasons of the scheduler, the kubelet and Kubernetes' controllers.
func kubernetesAdvice(reason string) string {
	switch reason {
	case "FailedScheduling":
		return "run `kubectl kata-vfio classes` to see how many devices of the class are free for your namespace, or as an admin `kubectl kata-vfio devices`: they must match the claim's selectors too"
	case corev1.PodReasonSchedulingGated:
		return "wait until what the message names removes the pod's gate. Before that, the scheduler looks for no node"
	case "BindingConditionsPending":
		return "wait: kata-vfio-controller answers the claim within seconds. If it does not, ask the cluster's admin whether it runs"
	case "FailedResourceClaimCreation":
		return "correct the pod's ResourceClaimTemplate: the message says what is wrong"
	case "FailedPrepareDynamicResources":
		return "read the claim's condition Ready; if there is none, the plugin does not run on the node"
	case "FailedCreatePodSandBox":
		return "check the node's plugin and Kata: the message says what failed"
	case "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull":
		return "correct the image's name, or give the pod the right to pull it (imagePullSecrets). With images that Kata's guest pulls, the registry must be reachable from the VM"
	case "CrashLoopBackOff", "BackOff":
		return "read what the container wrote before it ended: `kubectl logs POD --previous`"
	case "FailedMount", "FailedAttachVolume":
		return "correct the volume that the message names: it must exist in the pod's namespace, and its driver must run on the node"
	case "CreateContainerConfigError":
		return "create the ConfigMap or Secret that the message names, in the pod's namespace"
	case "CreateContainerError", "RunContainerError":
		return "correct the container as the message says; if it names the runtime or the VM, ask the cluster's admin"
	default:
		return ""
	}
}

// Annotations of the DeviceTaintRules of `kubectl kata-vfio drain`.
const (
	// AnnotationDrainOf is the drain's target, a node or NODE/DEVICE.
	AnnotationDrainOf = v1alpha1.DriverName + "/drain-of"
	// AnnotationReason is the value of the flag --reason.
	AnnotationReason = v1alpha1.DriverName + "/reason"
)

// aboutTaint returns the meaning of a device's taint, and the fix. The code in the value is more precise than the key.
func (e *explaining) aboutTaint(t resourceapi.DeviceTaint) (text, fix string) {
	if t.Key == publish.TaintAudit {
		return e.aboutAuditTaint(t.Value)
	}
	if !strings.HasPrefix(t.Key, v1alpha1.DriverName+"/") {
		return "a taint keeps claims away: " + taintWord(t), "ask the cluster's admin why the taint is set"
	}
	words := []string{t.Value, t.Key}
	switch t.Key {
	case v1alpha1.TaintSanitizing: // the taint's value is the name of a profile, which may be any word
		words = []string{string(rule.NotSanitized)}
	case v1alpha1.TaintTenant: // the taint's value is the ID of a tenant
		words = []string{string(rule.DomainOfOtherTenant)}
	}
	for _, word := range words {
		if code, ok := rule.Find(e.texts, word); ok {
			return code.Title, code.Fix
		}
	}
	return "the plugin's taint keeps claims away: " + taintWord(t), "read the plugin's log on its node: this version does not know the taint"
}

// aboutTaintRule returns the moment for a DeviceTaintRule that taints a device. The scheduler applies this taint, although the
// device's ResourceSlice does not have it.
func (e *explaining) aboutTaintRule(of string, d *Device, r *resourceapi.DeviceTaintRule) Moment {
	m := Moment{
		Of: of, What: "taint " + taintWord(r.Spec.Taint), At: r.CreationTimestamp.UTC(), Trouble: true, Who: []rule.Role{rule.Platform},
		Text: "DeviceTaintRule " + r.Name + " keeps claims away",
		Fix:  "delete the rule when its reason is gone: `kubectl describe devicetaintrule " + r.Name + "` shows it",
	}
	if r.Spec.Taint.Key == v1alpha1.TaintTwin {
		return e.aboutTwinRule(m, d, r)
	}
	if target := r.Annotations[AnnotationDrainOf]; target != "" {
		m.Text = "an operator is taking " + target + " out of use, by DeviceTaintRule " + r.Name
		if why := r.Annotations[AnnotationReason]; why != "" {
			m.Text += ": " + why
		}
		m.Fix = "`kubectl kata-vfio undrain " + target + "` ends it"
	}
	return m
}

func (e *explaining) aboutAuditTaint(id string) (text, fix string) {
	if known := e.known[id]; known != nil {
		return "check " + id + " fails; expected: " + known.Expected(), known.Fix
	}
	return "check " + id + " fails", "run `kata-vfio-audit explain " + id + "` with the node's version"
}
