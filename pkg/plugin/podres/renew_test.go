package podres_test

import (
	"context"
	"testing"
	"time"

	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/kata-vfio/kata-vfio/pkg/journal"
)

// renewer records what is to be reset in the background.
type renewer chan string

func (r renewer) RenewLater(claimUID, sandboxID string) { r <- claimUID + " after " + sandboxID }

// TestResetGoesOnAfterItsCallerGaveUp: a shim waits for ten seconds, and the reset after the pod's former sandbox takes longer. It goes on in
// the background, or no sandbox of the pod would ever get the devices. A first sandbox has nothing to reset.
func TestResetGoesOnAfterItsCallerGaveUp(t *testing.T) {
	w := newWorld(t)
	former, first := record("c1", "p1", gpu), record("c2", "p1", vf)
	former.Sandbox = &journal.Sandbox{ID: "s0"}
	w.prepared(former)
	w.prepared(first)
	w.lists(dynamic("c1", gpu), dynamic("c2", vf))
	w.startKubelet()
	w.claims.wait = make(chan struct{}) // for ever
	cfg, later := w.config(), make(renewer, 2)
	cfg.Renewer = later
	running := w.start(cfg)
	client, hangUp := w.dial()
	defer hangUp()
	ctx, giveUp := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer giveUp()
	if _, err := client.Get(ctx, &podresourcesv1.GetPodResourcesRequest{PodName: "db-0", PodNamespace: namespace}); err == nil {
		t.Fatal("Get = nil, want an error")
	}
	running.end(t)
	close(later)
	var got []string
	for reset := range later {
		got = append(got, reset)
	}
	if len(got) != 1 || got[0] != "c1 after s0" {
		t.Errorf("reset in the background: %q; want c1 after s0", got)
	}
}
