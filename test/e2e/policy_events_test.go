//go:build e2e

package e2e

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kata-vfio/kata-vfio/test/e2e/controlplane"
)

// event is one of the plugin's, on a node.
func event(ns, node string, about corev1.ObjectReference) *eventsv1.Event {
	return &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, GenerateName: "e2e-"}, EventTime: metav1.NowMicro(),
		ReportingController: driver, ReportingInstance: driver + "-" + node, Regarding: about,
		Type: corev1.EventTypeNormal, Reason: "Prepared", Action: "Prepare", Note: "e2e",
	}
}

// The token of one node's plugin may create Events in all namespaces.
func TestPluginWritesEventsAsItselfOnly(t *testing.T) {
	const a, b, kubeSystem = "e2e-events-a", "e2e-events-b", "kube-system"
	const itself, about = "a kata-vfio plugin may write Events as itself only", "a kata-vfio plugin may write Events about claims, pods and its own node only"
	p := installed(t)
	ns := tenantNamespace(t, p)
	addFitNode(t, p, a)
	addFitNode(t, p, b)
	onA, admin := pluginOn(t, p, a).EventsV1(), client(t, p, controlplane.Admin())
	claim := func(ns string) corev1.ObjectReference {
		return corev1.ObjectReference{APIVersion: "resource.k8s.io/v1", Kind: "ResourceClaim", Namespace: ns, Name: "train"}
	}
	node := func(name string) corev1.ObjectReference {
		return corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: name}
	}
	inNameOf := func(e *eventsv1.Event, controller string) *eventsv1.Event {
		e.ReportingController = controller
		return e
	}
	for name, attack := range map[string]struct {
		event *eventsv1.Event
		want  string
	}{
		"as itself, about a claim":      {event(ns, a, claim(ns)), ""},
		"as itself, about its node":     {event(metav1.NamespaceDefault, a, node(a)), ""},
		"as another node's plugin":      {event(kubeSystem, b, claim(kubeSystem)), itself},
		"as the kubelet":                {inNameOf(event(metav1.NamespaceDefault, a, node(a)), "kubelet"), itself},
		"about another node":            {event(metav1.NamespaceDefault, a, node(b)), about},
		"about an object of the system": {event(kubeSystem, a, corev1.ObjectReference{APIVersion: "apps/v1", Kind: "DaemonSet", Namespace: kubeSystem, Name: "x"}), about},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := onA.Events(attack.event.Namespace).Create(t.Context(), attack.event, dryRunCreate())
			wantForbidden(t, err, attack.want)
		})
	}
	t.Run("changing another node's", func(t *testing.T) {
		theirs, err := admin.EventsV1().Events(ns).Create(t.Context(), event(ns, b, claim(ns)), metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		_, err = onA.Events(ns).Patch(t.Context(), theirs.Name, "application/merge-patch+json",
			[]byte(`{"series": {"count": 2, "lastObservedTime": "2026-11-22T08:00:00.000000Z"}}`), metav1.PatchOptions{})
		wantForbidden(t, err, itself)
	})
}
