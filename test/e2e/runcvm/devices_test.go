package main

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// ofPod is what containerd writes on a sandbox, with devices that the tenant has asked for by itself.
func ofPod() map[string]string {
	return map[string]string{
		containerType: typeSandbox, sandboxNamespace: "team-a", sandboxName: "db-0",
		"cdi.k8s.io/b": "kata-vfio.dev/vfio=two,kata-vfio.dev/vfio=three", "cdi.k8s.io/a": "kata-vfio.dev/vfio=one",
	}
}

// socketPath is short enough for a socket, whatever the test's name.
func socketPath(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "runcvm")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "pod-resources.sock")
}

// lister is a PodResources server.
type lister struct {
	podresourcesv1.UnimplementedPodResourcesListerServer
	get func(context.Context, *podresourcesv1.GetPodResourcesRequest) (*podresourcesv1.PodResources, error)
}

func (l lister) Get(
	ctx context.Context, r *podresourcesv1.GetPodResourcesRequest,
) (*podresourcesv1.GetPodResourcesResponse, error) {
	resources, err := l.get(ctx, r)
	return &podresourcesv1.GetPodResourcesResponse{PodResources: resources}, err
}

// serve serves on a real socket and returns its path.
func (l lister) serve(t *testing.T) string {
	t.Helper()
	path := socketPath(t)
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	podresourcesv1.RegisterPodResourcesListerServer(server, l)
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-done; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return path
}

// holding is a server for pod db-0 of team-a, and none other.
func holding(containers ...*podresourcesv1.ContainerResources) lister {
	return lister{get: func(_ context.Context, r *podresourcesv1.GetPodResourcesRequest) (*podresourcesv1.PodResources, error) {
		if r.GetPodNamespace() != "team-a" || r.GetPodName() != "db-0" {
			return nil, status.Errorf(codes.NotFound, "no pod %s/%s", r.GetPodNamespace(), r.GetPodName())
		}
		return &podresourcesv1.PodResources{Name: "db-0", Namespace: "team-a", Containers: containers}, nil
	}}
}

func of(resource string, ids ...string) *podresourcesv1.ContainerDevices {
	return &podresourcesv1.ContainerDevices{ResourceName: resource, DeviceIds: ids}
}

// fromDRA is how the kubelet tells of a claim's device.
func fromDRA(name string) *podresourcesv1.DynamicResource {
	return &podresourcesv1.DynamicResource{
		ClaimName: "gpu", ClaimNamespace: "team-a",
		ClaimResources: []*podresourcesv1.ClaimResource{{CdiDevices: []*podresourcesv1.CDIDevice{{Name: name}}}},
	}
}

func TestDeviceNamesAreThePodsDevicesOfTheServer(t *testing.T) {
	for name, test := range map[string]struct {
		containers []*podresourcesv1.ContainerResources
		want       []string
	}{
		"devices of all containers": {
			[]*podresourcesv1.ContainerResources{
				{Name: "a", Devices: []*podresourcesv1.ContainerDevices{
					of("kata-vfio.dev/vfio", "gpu-0", "gpu-1"), of("kata-vfio.dev/nic", "vf-0"),
				}},
				{Name: "b", Devices: []*podresourcesv1.ContainerDevices{of("kata-vfio.dev/vfio", "gpu-2")}},
			},
			[]string{"kata-vfio.dev/vfio=gpu-0", "kata-vfio.dev/vfio=gpu-1", "kata-vfio.dev/nic=vf-0", "kata-vfio.dev/vfio=gpu-2"},
		},
		"those of DRA are not read": {
			[]*podresourcesv1.ContainerResources{{
				Name: "a", Devices: []*podresourcesv1.ContainerDevices{of("kata-vfio.dev/vfio", "gpu-0")},
				DynamicResources: []*podresourcesv1.DynamicResource{fromDRA("kata-vfio.dev/vfio=gpu-9")},
			}},
			[]string{"kata-vfio.dev/vfio=gpu-0"},
		},
		"a pod with claims only": {
			[]*podresourcesv1.ContainerResources{{
				Name: "a", DynamicResources: []*podresourcesv1.DynamicResource{fromDRA("kata-vfio.dev/vfio=gpu-9")},
			}},
			nil,
		},
		"a pod without devices has none, whatever its annotations say": {nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			n := node{podResources: holding(test.containers...).serve(t)}
			got, err := n.deviceNames(t.Context(), ofPod())
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("names (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDevicesFromAnnotationsWithoutSocket(t *testing.T) {
	n := node{podResources: filepath.Join(t.TempDir(), "run", "pod-resources.sock")}
	got, err := n.deviceNames(t.Context(), ofPod())
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"kata-vfio.dev/vfio=one", "kata-vfio.dev/vfio=two", "kata-vfio.dev/vfio=three"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
}

// refusing is a socket whose server has died.
func refusing(t *testing.T) string {
	t.Helper()
	path := socketPath(t)
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err != nil {
		t.Fatal(err)
	}
	listener.SetUnlinkOnClose(false)
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestDeviceNamesFailClosed: what can't be asked is an error, and never a reason to go by the annotations.
func TestDeviceNamesFailClosed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	broken := lister{get: func(context.Context, *podresourcesv1.GetPodResourcesRequest) (*podresourcesv1.PodResources, error) {
		return nil, status.Error(codes.FailedPrecondition, "the claim is not prepared")
	}}
	stranger := ofPod()
	stranger[sandboxName] = "db-1"
	for name, test := range map[string]struct {
		socket      string
		annotations map[string]string
		want        string
	}{
		"a file":                {socket: file, want: "is not a socket"},
		"a directory":           {socket: t.TempDir(), want: "is not a socket"},
		"a path through a file": {socket: filepath.Join(file, "socket"), want: "not a directory"},
		"nobody serves":         {socket: refusing(t), want: "connection refused"},
		"the server says no":    {socket: broken.serve(t), want: "the claim is not prepared"},
		"a pod that it has not": {socket: holding().serve(t), annotations: stranger, want: "no pod team-a/db-1"},
	} {
		t.Run(name, func(t *testing.T) {
			annotations := test.annotations
			if annotations == nil {
				annotations = ofPod()
			}
			got, err := node{podResources: test.socket}.deviceNames(t.Context(), annotations)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("deviceNames = %q, %v; want an error with %q", got, err, test.want)
			}
			if got != nil {
				t.Errorf("deviceNames = %q with an error", got)
			}
		})
	}
}

func TestSilentServerIsWaitedForNoLongerThanTheContext(t *testing.T) {
	silent := lister{get: func(ctx context.Context, _ *podresourcesv1.GetPodResourcesRequest) (*podresourcesv1.PodResources, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	got, err := node{podResources: silent.serve(t)}.deviceNames(ctx, ofPod())
	if status.Code(err) != codes.DeadlineExceeded || got != nil {
		t.Errorf("deviceNames = %q, %v; want that the deadline is exceeded", got, err)
	}
}
