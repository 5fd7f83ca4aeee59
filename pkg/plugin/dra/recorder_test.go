package dra_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kata-vfio/kata-vfio/pkg/plugin/dra"
	"github.com/kata-vfio/kata-vfio/test/plugintest"
)

// TestEventsAreInTheirNodesName: the chart's policy events knows a plugin by its node, and refuses Events with another instance.
func TestEventsAreInTheirNodesName(t *testing.T) {
	long := strings.Repeat("n", 200)
	for node, want := range map[string]string{"worker-1": "kata-vfio.dev-worker-1", long: "kata-vfio.dev-" + long[:111] + "..."} {
		client, created := plugintest.Cluster(), make(chan *eventsv1.Event, 1)
		client.PrependReactor("create", "events", func(a clienttesting.Action) (bool, runtime.Object, error) {
			if e, ok := a.(clienttesting.CreateAction).GetObject().(*eventsv1.Event); ok {
				created <- e
			}
			return false, nil, nil
		})
		recorder, err := dra.NewRecorder(t.Context(), client, node)
		if err != nil {
			t.Fatal(err)
		}
		about := &corev1.ObjectReference{APIVersion: "resource.k8s.io/v1", Kind: "ResourceClaim", Namespace: "team-a", Name: "train"}
		recorder.Event(about, nil, corev1.EventTypeNormal, "Prepared", "Prepare", "test")
		select {
		case e := <-created:
			if e.ReportingController != "kata-vfio.dev" || e.ReportingInstance != want {
				t.Errorf("the Event is of %s, %s; want %s", e.ReportingController, e.ReportingInstance, want)
			}
		case <-time.After(time.Minute):
			t.Fatal("no Event was created")
		}
	}
}
