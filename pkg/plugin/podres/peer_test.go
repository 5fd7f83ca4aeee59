package podres_test

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/podres"
)

func TestKernelNamesThePeer(t *testing.T) {
	w := newWorld(t)
	w.startKubelet()
	w.start(w.config())
	if _, err := w.get(); err != nil {
		t.Fatal(err)
	}
	if pid := int(w.shim.pid.Load()); pid != os.Getpid() {
		t.Errorf("process %d asked, want %d", pid, os.Getpid())
	}
}

// TestShimIsHandedOverTo: the claim's record is to tell whether it still starts its VM.
func TestShimIsHandedOverTo(t *testing.T) {
	w := newWorld(t)
	w.prepared(record("c1", "p1", gpu))
	w.lists(dynamic("c1", gpu))
	w.startKubelet()
	w.start(w.config())
	if _, err := w.get(); err != nil {
		t.Fatal(err)
	}
	if want := []journal.Process{w.shim.sandbox.Shim}; !slices.Equal(w.claims.shims, want) {
		t.Errorf("handed over to %+v, want %+v", w.claims.shims, want)
	}
}

func TestPeerAnswersRootOnly(t *testing.T) {
	w := newWorld(t)
	w.startKubelet()
	cfg := w.config()
	cfg.Owner = 0
	server := podres.New(cfg)
	for name, c := range map[string]struct {
		peer *peer.Peer
		say  string
	}{
		"another user":                   {&peer.Peer{AuthInfo: podres.Peer{PID: 7, UID: 1000}}, "user 1000"},
		"a process of another namespace": {&peer.Peer{AuthInfo: podres.Peer{PID: 0, UID: 0}}, "hostPID"},
		"a connection without the peer":  {&peer.Peer{}, "the caller is unknown"},
		"no connection":                  {nil, "the caller is unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			if c.peer != nil {
				ctx = peer.NewContext(ctx, c.peer)
			}
			for call, err := range calls(ctx, server) {
				if status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), c.say) {
					t.Errorf("%s = %v; want PermissionDenied that says %q", call, err, c.say)
				}
			}
		})
	}
	root := peer.NewContext(t.Context(), &peer.Peer{AuthInfo: podres.Peer{PID: 7}})
	for call, err := range calls(root, server) {
		if err != nil {
			t.Errorf("%s by root: %v", call, err)
		}
	}
}

// calls makes each call and returns its error.
func calls(ctx context.Context, s *podres.Server) map[string]error {
	_, get := s.Get(ctx, &podresourcesv1.GetPodResourcesRequest{PodName: "db-0", PodNamespace: namespace})
	_, list := s.List(ctx, &podresourcesv1.ListPodResourcesRequest{})
	_, all := s.GetAllocatableResources(ctx, &podresourcesv1.AllocatableResourcesRequest{})
	return map[string]error{"Get": get, "List": list, "GetAllocatableResources": all}
}
