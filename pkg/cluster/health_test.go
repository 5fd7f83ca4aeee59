package cluster_test

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kata-vfio/kata-vfio/pkg/cluster"
)

// said is a slice of a node, with what its plugin says of it.
func said(driver, node, text string) *resourceapi.ResourceSlice {
	s := &resourceapi.ResourceSlice{Spec: resourceapi.ResourceSliceSpec{Driver: driver, NodeName: &node, Pool: resourceapi.ResourcePool{Name: node, Generation: 1, ResourceSliceCount: 2}}}
	if text != "" {
		s.ObjectMeta = metav1.ObjectMeta{Annotations: map[string]string{cluster.AnnotationHealth: text}}
	}
	return s
}

// TestHealthOfANode is the newest in the driver's own slices.
func TestHealthOfANode(t *testing.T) {
	c := &cluster.Cluster{}
	for _, s := range []*resourceapi.ResourceSlice{
		said("kata-vfio.dev", "worker-1", `{"updated": "2026-11-22T11:00:00Z", "nri": false}`),
		said("kata-vfio.dev", "worker-1", `{"updated": "2026-11-22T12:00:00Z", "nri": true}`),
		said("kata-vfio.dev", "worker-1", `{"updated": "2026-11-22T10:00:00Z", "nri": false}`),
		said("gpu.example.com", "worker-2", `{"updated": "2026-11-22T12:00:00Z", "nri": true}`),
		said("kata-vfio.dev", "worker-3", "no JSON"),
		said("kata-vfio.dev", "worker-4", ""),
	} {
		c.Add(s)
	}
	want := map[string]*cluster.NodeHealth{"worker-1": {Updated: "2026-11-22T12:00:00Z", NRI: true}, "worker-2": nil, "worker-3": nil, "worker-4": nil}
	got := map[string]*cluster.NodeHealth{}
	for node := range want {
		got[node] = c.Health(node)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("health by node (-want +got):\n%s", diff)
	}
}

// TestHealthIsSmall, whatever a node has: the objects of all nodes are sent to all that watch them.
func TestHealthIsSmall(t *testing.T) {
	b := &cluster.BootstrapHealth{Outcome: "changes needed"}
	for i := range 100 {
		b.AddDrift(cluster.Drift{Part: "kernel", Path: fmt.Sprintf("/etc/%d/%s", i, strings.Repeat("ä", 300)), What: "changed", Since: "2026-11-22T12:00:00Z"})
	}
	if len(b.Drift) != 8 || b.More != 92 || len(b.Drift[0].Path) > 256 || !utf8.ValidString(b.Drift[0].Path) {
		t.Errorf("%d differences and %d more, a path of %d bytes (%q); want 8, 92 and at most 256", len(b.Drift), b.More, len(b.Drift[0].Path), b.Drift[0].Path)
	}
	h := &cluster.NodeHealth{Bootstrap: b}
	h.AddAlert("KataVFIOKernelStuck", strings.Repeat("x", 1000))
	text, err := h.Encode()
	if err != nil || len(text) > 4096 {
		t.Errorf("%d bytes, want at most 4096: %v", len(text), err)
	}
	decoded, err := cluster.DecodeHealth(said("kata-vfio.dev", "worker-1", text))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(h, decoded); diff != "" {
		t.Errorf("read again, it differs (-written +read):\n%s", diff)
	}
}
