package twin_test

import (
	"fmt"
	"testing"
	"time"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/controller/twin"
)

// withoutNode is a node with GPUs, and claims of unpublished devices that name no node, so that each may have any of them.
func withoutNode(gpus, claims int) *twin.View {
	var ours []string
	for i := range gpus {
		ours = append(ours, fmt.Sprintf("gpu-0000-%02x-00-0 0000:%02x:00.0 sharedWith=%s driver=vfio-pci", 0x10+i, 0x10+i, other))
	}
	a := &apiServer{Slices: []*resourceapi.ResourceSlice{slice(v1alpha1.DriverName, "n", "n/kata-vfio.dev/shared", 1, ours...)}}
	for i := range claims {
		// The order of the UIDs is not that of the list.
		a.Claims = append(a.Claims, allocated(fmt.Sprint(i*7919%claims), "", fmt.Sprintf("%s lost gpu-%d", other, i)))
	}
	return a.view()
}

// TestClaimsWithoutNodeAreShared: each GPU has all claims that may have it, and none a copy of its own.
func TestClaimsWithoutNodeAreShared(t *testing.T) {
	gpus := withoutNode(8, 100).GPUs("n")
	if len(gpus) != 8 {
		t.Fatalf("got %d GPUs, want 8", len(gpus))
	}
	for _, g := range gpus {
		if len(g.TwinClaims) != 100 || &g.TwinClaims[0] != &gpus[0].TwinClaims[0] {
			t.Errorf("%s has %d claims, want the 100 that all GPUs have", g.PCI, len(g.TwinClaims))
		}
	}
}

// BenchmarkClaimsWithoutNode collects the GPUs of a node beside 2,000 and 8,000 claims that may have any of them. Linear is 4.
func BenchmarkClaimsWithoutNode(b *testing.B) {
	counts := [2]int{2000, 8000}
	if testing.Short() {
		counts = [2]int{20, 80}
	}
	small, large := withoutNode(8, counts[0]), withoutNode(8, counts[1])
	var took [2]time.Duration
	for b.Loop() {
		for i, v := range []*twin.View{small, large} {
			began := time.Now()
			gpus := v.GPUs("n")
			took[i] += time.Since(began)
			if len(gpus[0].TwinClaims) != counts[i] {
				b.Fatalf("a GPU has %d claims, want %d", len(gpus[0].TwinClaims), counts[i])
			}
		}
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(took[1])/float64(took[0]), "time-8000/2000")
	b.ReportMetric(float64(took[1].Milliseconds())/float64(b.N), "ms-8000")
}
