package fleet

import (
	"strings"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/publish"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// advice returns the fix for the reason of a condition or an Event; empty if the message has it, or if there is nothing to do.
func (e *explaining) advice(reason string) string {
	if text, ok := rule.Find(e.texts, reason); ok {
		return text.Fix
	}
	return kubernetesAdvice(reason)
}

// kubernetesAdvice is about reasons of the scheduler, the kubelet and Kubernetes' controllers.
func kubernetesAdvice(reason string) string {
	switch reason {
	case "FailedScheduling":
		return "run `kubectl kata-vfio devices` to see the free devices: they must match the class and the claim's selectors"
	case "BindingConditionsPending":
		return "wait: kata-vfio-controller answers the claim within seconds. If it does not, ask the cluster's admin whether it runs"
	case "FailedResourceClaimCreation":
		return "correct the pod's ResourceClaimTemplate: the message says what is wrong"
	case "FailedPrepareDynamicResources":
		return "read the claim's condition Ready; if there is none, the plugin does not run on the node"
	case "FailedCreatePodSandBox":
		return "check the node's plugin and Kata: the message says what failed"
	default:
		return ""
	}
}

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
	case v1alpha1.TaintSanitizing: // its value is a profile's name, which may be any word
		words = []string{string(rule.NotSanitized)}
	case v1alpha1.TaintTenant: // its value is a tenant's ID
		words = []string{string(rule.DomainOfOtherTenant)}
	}
	for _, word := range words {
		if code, ok := rule.Find(e.texts, word); ok {
			return code.Title, code.Fix
		}
	}
	return "the plugin's taint keeps claims away: " + taintWord(t), "read the plugin's log on its node: this version does not know the taint"
}

func (e *explaining) aboutAuditTaint(id string) (text, fix string) {
	if known := e.known[id]; known != nil {
		return "check " + id + " fails; expected: " + known.Expected(), known.Fix
	}
	return "check " + id + " fails", "run `kata-vfio-audit explain " + id + "` with the node's version"
}
