//go:build e2e

package bench

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/publish"
	"github.com/kata-vfio/kata-vfio/test/bench/fleet"
	"github.com/kata-vfio/kata-vfio/test/e2e/controlplane"
)

const (
	// manyNodes is how many nodes' slices are put into a real control plane. Memory grows with their number, so that
	// wantNodes can be told from them.
	manyNodes, wantNodes = 400, 5000
	// vfsOfMany is the number of VFs of each of a node's 8 PFs.
	vfsOfMany = 16
	// settleTime is for the components to have read what was written, and for Go to give back what it freed.
	settleTime = 45 * time.Second
)

// BenchmarkControlPlane measures what the slices of nodes with 8 GPUs and 8 PFs take of a real API server's, etcd's and
// scheduler's memory: of none, a quarter and all of the nodes that it makes, and so, by the growth between the last two, of
// 5,000.
func BenchmarkControlPlane(b *testing.B) {
	for name, config := range map[string]*v1alpha1.NodeConfig{
		"singles":           {},
		"pairs":             {Pairing: v1alpha1.PairingSwitch},
		"few-VF-attributes": {VFAttributes: v1alpha1.VFAttributesSelection},
		"minimal":           {VFAttributes: v1alpha1.VFAttributesMinimal},
	} {
		b.Run(name, func(b *testing.B) {
			for done := false; b.Loop(); done = true {
				if !done { // three minutes, which rounds would only repeat
					fillControlPlane(b, config)
				}
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

func fillControlPlane(b *testing.B, config *v1alpha1.NodeConfig) {
	plane, err := controlplane.Start(b.Context(), controlplane.Config{Progress: os.Stderr})
	if err != nil {
		b.Fatal(err)
	}
	defer plane.Stop()
	rest, err := plane.RESTConfig(controlplane.Admin())
	if err != nil {
		b.Fatal(err)
	}
	rest.QPS, rest.Burst = -1, -1
	client, err := kubernetes.NewForConfig(rest)
	if err != nil {
		b.Fatal(err)
	}
	const from = "node"
	pools := publish.Pools(fleet.Node(from, vfsOfMany, config))
	empty := memoryOf(b, plane)
	createNodes(b, client, pools, from, 0, manyNodes/4)
	some := memoryOf(b, plane)
	live := liveHeapOf(b, client)
	took := createNodes(b, client, pools, from, manyNodes/4, manyNodes)
	all := memoryOf(b, plane)
	live = (liveHeapOf(b, client) - live) / (manyNodes - manyNodes/4)
	for i, component := range components() {
		grown := float64(all[i]-some[i]) / (manyNodes - manyNodes/4)
		whole := float64(empty[i]) + grown*wantNodes
		fmt.Printf("%-15s %6.0f MiB empty, %6.0f with %d nodes, %6.0f with %d; %.0f KiB a node, so %.1f GiB with %d\n",
			component, float64(empty[i])/(1<<20), float64(some[i])/(1<<20), manyNodes/4, float64(all[i])/(1<<20), manyNodes,
			grown/(1<<10), whole/(1<<30), wantNodes)
		b.ReportMetric(grown/(1<<10), "KiB-"+component+"/node")
	}
	fmt.Printf("%-15s %.0f KiB a node on the heap after a collection, so %.1f GiB with %d\n", "kube-apiserver",
		live/(1<<10), live*wantNodes/(1<<30), wantNodes)
	b.ReportMetric(live/(1<<10), "KiB-live/node")
	fmt.Printf("%d nodes' slices written in %s\n", manyNodes-manyNodes/4, took.Round(time.Second))
}

func components() []string { return []string{"kube-apiserver", "etcd", "kube-scheduler"} }

// memoryOf waits until the components are at rest and returns their VmRSS in bytes.
func memoryOf(b *testing.B, plane *controlplane.ControlPlane) []int64 {
	b.Helper()
	time.Sleep(settleTime)
	var all []int64
	for _, component := range components() {
		r, err := residentOf(plane.Process(component))
		if err != nil {
			b.Fatal(fmt.Errorf("%s: %w", component, err))
		}
		all = append(all, r.all)
	}
	return all
}

// liveHeapOf has the API server collect its garbage, and returns the bytes that it needs then.
func liveHeapOf(b *testing.B, client kubernetes.Interface) float64 {
	b.Helper()
	get := func(path string, parameters ...string) []byte {
		request := client.CoreV1().RESTClient().Get().AbsPath(path)
		for _, p := range parameters {
			request = request.Param(p, "1")
		}
		answer, err := request.DoRaw(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		return answer
	}
	for range 2 { // the second frees what the first has finalized
		get("/debug/pprof/heap", "gc")
	}
	for line := range strings.Lines(string(get("/metrics"))) {
		if value, ok := strings.CutPrefix(line, "go_memstats_heap_alloc_bytes "); ok {
			bytes, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err != nil {
				b.Fatal(err)
			}
			return bytes
		}
	}
	b.Fatal("the API server's metrics lack its heap")
	return 0
}

// createNodes writes the slices of nodes, some at a time, and returns how long that took.
func createNodes(b *testing.B, client kubernetes.Interface, pools map[string]publish.Pool, from string, first, end int) time.Duration {
	b.Helper()
	begin := time.Now()
	g, ctx := errgroup.WithContext(b.Context())
	g.SetLimit(16)
	for i := first; i < end; i++ {
		for _, s := range fleet.Slices(pools, from, fleet.Name(i)) {
			g.Go(func() error { return createSlice(ctx, client, s) })
		}
	}
	if err := g.Wait(); err != nil {
		b.Fatal(err)
	}
	return time.Since(begin)
}

func createSlice(ctx context.Context, client kubernetes.Interface, s *resourceapi.ResourceSlice) error {
	_, err := client.ResourceV1().ResourceSlices().Create(ctx, s, metav1.CreateOptions{})
	return err
}
