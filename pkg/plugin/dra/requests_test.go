package dra_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kata-vfio/kata-vfio/test/plugintest"
)

// TestRequestsOfAClaim: to prepare a claim the plugin asks for it, its pod, its RuntimeClass and its DeviceClass once each, and writes its
// status once. To unprepare it the plugin asks for nothing. Five thousand nodes share one API server.
func TestRequestsOfAClaim(t *testing.T) {
	n := plugintest.New(t)
	n.Kernel.AddGPU(0x3b)
	claim := plugintest.Allocated("uid-1", "gpu-0000-3b-00-0")
	k := plugintest.Serve(t, n, n.Claims, "", claim)
	before := len(k.Client.Actions())
	if answer := k.Prepare(claim)["uid-1"]; answer.Error != "" {
		t.Fatal(answer.Error)
	}
	want := map[string]int{"get resourceclaims": 1, "get pods": 1, "get runtimeclasses": 1, "get deviceclasses": 1, "patch resourceclaims": 1}
	prepared := requestsFrom(t, k, before, len(want))
	if answer := k.Unprepare(claim)["uid-1"]; answer.Error != "" {
		t.Fatal(answer.Error)
	}
	if diff := cmp.Diff(want, prepared); diff != "" {
		t.Errorf("the requests of Prepare differ (-want +got):\n%s", diff)
	}
	if all := requestsFrom(t, k, before+len(want), 0); len(all) > 0 {
		t.Errorf("the requests of Unprepare are %v, want none", all)
	}
}

// requestsFrom counts the requests from one on, once there are as many as wanted and after a pause.
func requestsFrom(t *testing.T, k *plugintest.Kubelet, first, want int) map[string]int {
	t.Helper()
	for range 100 {
		time.Sleep(10 * time.Millisecond)
		if len(k.Client.Actions()) >= first+want {
			break
		}
	}
	time.Sleep(100 * time.Millisecond) // for one too many
	counted := map[string]int{}
	for _, a := range append([]clienttesting.Action{}, k.Client.Actions()...)[first:] {
		counted[a.GetVerb()+" "+a.GetResource().Resource]++
	}
	return counted
}
