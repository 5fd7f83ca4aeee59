//go:build e2e

package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/cdi"
)

// kubelet answers for its pods at once.
type kubelet struct {
	podresourcesv1.UnimplementedPodResourcesListerServer

	tenants map[string]*tenant // by the pod's name
}

// Get is what the kubelet lists for a pod with a claim.
func (k kubelet) Get(_ context.Context, r *podresourcesv1.GetPodResourcesRequest) (*podresourcesv1.GetPodResourcesResponse, error) {
	t := k.tenants[r.GetPodName()]
	if t == nil {
		return nil, fmt.Errorf("no pod %s", r.GetPodName())
	}
	device := &podresourcesv1.ClaimResource{
		DriverName: v1alpha1.DriverName, PoolName: t.pool, DeviceName: t.device,
		CdiDevices: []*podresourcesv1.CDIDevice{{Name: t.cdi()}},
	}
	claim := &podresourcesv1.DynamicResource{
		ClaimName: t.claim.Name, ClaimNamespace: t.claim.Namespace, ClaimResources: []*podresourcesv1.ClaimResource{device},
	}
	return &podresourcesv1.GetPodResourcesResponse{PodResources: &podresourcesv1.PodResources{
		Name: t.pod.Name, Namespace: t.pod.Namespace,
		Containers: []*podresourcesv1.ContainerResources{{Name: "main", DynamicResources: []*podresourcesv1.DynamicResource{claim}}},
	}}, nil
}

func (t *tenant) cdi() string     { return cdi.QualifiedName(string(t.claim.UID), t.device) }
func (t *tenant) sandbox() string { return "sandbox-" + t.device }

// startKubelet serves the pod-resources API of the kubelet.
func startKubelet(b *testing.B, socket string, tenants []*tenant) {
	b.Helper()
	k := kubelet{tenants: map[string]*tenant{}}
	for _, t := range tenants {
		k.tenants[t.pod.Name] = t
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		b.Fatal(err)
	}
	server := grpc.NewServer()
	podresourcesv1.RegisterPodResourcesListerServer(server, k)
	go func() { _ = server.Serve(l) }()
	b.Cleanup(server.Stop)
}

// ask asks for a pod on a connection of its own, as each shim does.
func ask(ctx context.Context, socket string, t *tenant) (*podresourcesv1.PodResources, error) {
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	answer, err := podresourcesv1.NewPodResourcesListerClient(conn).Get(ctx, &podresourcesv1.GetPodResourcesRequest{
		PodName: t.pod.Name, PodNamespace: t.pod.Namespace,
	})
	return answer.GetPodResources(), errors.Join(err, conn.Close())
}

// plug asks the plugin for a pod, and checks that its device is what would be plugged.
func (p *plugin) plug(ctx context.Context, t *tenant) error {
	answer, err := ask(ctx, p.podResources(), t)
	if err != nil {
		return err
	}
	for _, c := range answer.GetContainers() {
		for _, d := range c.GetDevices() {
			if slices.Contains(d.GetDeviceIds(), cdi.DeviceName(string(t.claim.UID), t.device)) {
				return nil
			}
		}
	}
	return fmt.Errorf("the answer for pod %s lacks %s: %v", t.pod.Name, t.cdi(), answer)
}

// become makes this process the shim of a pod's sandbox: the plugin knows a shim by the bundle that it is in, a directory beside the
// present one.
func become(t *tenant) error {
	config, err := json.Marshal(map[string]any{"annotations": map[string]string{
		"io.kubernetes.cri.sandbox-id":        t.sandbox(),
		"io.kubernetes.cri.sandbox-namespace": t.pod.Namespace,
		"io.kubernetes.cri.sandbox-name":      t.pod.Name,
		"io.kubernetes.cri.sandbox-uid":       string(t.pod.UID),
	}})
	if err != nil {
		return err
	}
	bundle := filepath.Join("..", t.sandbox())
	if err := os.MkdirAll(bundle, 0o700); err != nil {
		return err
	}
	if err := os.Chdir(bundle); err != nil {
		return err
	}
	return os.WriteFile("config.json", config, 0o600)
}

// asked are the times of answers for all tenants, and those of empty calls in turn with them: of the kubelet, whom the
// plugin asks itself.
type asked struct{ plugin, empty samples }

// askPause keeps the plugin below its limit of requests to the API server, of which each answer needs one.
const askPause = 25 * time.Millisecond

// askForAll asks for each tenant once, and adds the times.
func (a *asked) askForAll(b *testing.B, p *plugin, tenants []*tenant) {
	b.Helper()
	for _, t := range tenants {
		if err := become(t); err != nil {
			b.Fatal(err)
		}
		took := turns(b, 1,
			func() error { return p.plug(b.Context(), t) },
			func() error { _, err := ask(b.Context(), p.kubeletSocket(), t); return err })
		time.Sleep(askPause)
		a.plugin, a.empty = append(a.plugin, took[0]...), append(a.empty, took[1]...)
	}
}

// podResources times what a sandbox waits for before its VM can boot. The first answer hands the devices over, which
// is written to the disk; later ones find that done.
func podResources(b *testing.B, p *plugin, tenants []*tenant, first asked) {
	var again asked
	for b.Loop() {
		again.askForAll(b, p, tenants)
	}
	b.ReportMetric(0, "ns/op")
	first.plugin.report(b, "first", first.empty)
	again.plugin.report(b, "again", again.empty)
	b.ReportMetric(1.3, "again-p99/empty-aim")
	fmt.Printf("pod-resources Get, %d claims: first %v, again %v, an empty call %v\n", len(tenants), first.plugin, again.plugin, again.empty)
}
