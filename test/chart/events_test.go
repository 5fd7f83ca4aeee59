package chart

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apiserver/pkg/authentication/user"
)

// pluginOf is the plugin of a node; of no node for "".
func pluginOf(node string) user.Info {
	u := &user.DefaultInfo{Name: "system:serviceaccount:kata-vfio-system:kata-vfio-plugin"}
	if node != "" {
		u.Extra = map[string][]string{"authentication.kubernetes.io/node-name": {node}}
	}
	return u
}

// TestPolicyForEvents: a plugin's token writes Events as its own node's plugin, about what that may have to do with.
func TestPolicyForEvents(t *testing.T) {
	p, long := compiled(t, "admission/events.yaml"), strings.Repeat("n", 200)
	claim := corev1.ObjectReference{APIVersion: "resource.k8s.io/v1", Kind: "ResourceClaim", Namespace: "team-a", Name: "train"}
	for name, test := range map[string]struct {
		node, controller, instance string
		about                      corev1.ObjectReference
		refused                    int
	}{
		"about a claim":            {"n1", "kata-vfio.dev", "kata-vfio.dev-n1", claim, 0},
		"about a pod":              {"n1", "kata-vfio.dev", "kata-vfio.dev-n1", corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Name: "train"}, 0},
		"about its node":           {"n1", "kata-vfio.dev", "kata-vfio.dev-n1", corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: "n1"}, 0},
		"on a node of a long name": {long, "kata-vfio.dev", "kata-vfio.dev-" + long[:111] + "...", claim, 0},
		"in another node's name":   {"n1", "kata-vfio.dev", "kata-vfio.dev-n2", claim, 1},
		"in a like node's name":    {"n1", "kata-vfio.dev", "kata-vfio.dev-n", claim, 1},
		"in another's name":        {"n1", "kubelet", "kata-vfio.dev-n1", claim, 1},
		"in nobody's name":         {"n1", "", "", claim, 1},
		"about another node":       {"n1", "kata-vfio.dev", "kata-vfio.dev-n1", corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: "n2"}, 1},
		"about a Secret":           {"n1", "kata-vfio.dev", "kata-vfio.dev-n1", corev1.ObjectReference{APIVersion: "v1", Kind: "Secret", Name: "n1"}, 1},
		"about another's claim":    {"n1", "kata-vfio.dev", "kata-vfio.dev-n1", corev1.ObjectReference{APIVersion: "example.com/v1", Kind: "ResourceClaim", Name: "x"}, 1},
		"about nothing":            {"n1", "kata-vfio.dev", "kata-vfio.dev-n1", corev1.ObjectReference{}, 1},
		"with a token of no node":  {"", "kata-vfio.dev", "kata-vfio.dev-", claim, 1},
	} {
		e := &eventsv1.Event{ReportingController: test.controller, ReportingInstance: test.instance, Regarding: test.about}
		if messages := p.refusalsBy(t, e, pluginOf(test.node)); len(messages) != test.refused {
			t.Errorf("%s: %q, want %d refusals", name, messages, test.refused)
		}
	}
}
