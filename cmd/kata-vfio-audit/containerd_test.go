package main

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/containerd/containerd/api/services/containers/v1"
	"github.com/containerd/containerd/api/services/introspection/v1"
	"github.com/containerd/containerd/api/services/namespaces/v1"
	"github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/api/services/version/v1"
	"github.com/containerd/containerd/api/types/task"
	spaces "github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/emptypb"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// double answers what containerd answers. The lab asks the real one.
type double struct {
	version.UnimplementedVersionServer
	introspection.UnimplementedIntrospectionServer
	cri.UnimplementedRuntimeServiceServer
	withoutCRI bool
	config     string
}

func (d *double) Version(context.Context, *emptypb.Empty) (*version.VersionResponse, error) {
	return &version.VersionResponse{Version: "v2.4.2"}, nil
}

func (d *double) Plugins(context.Context, *introspection.PluginsRequest) (*introspection.PluginsResponse, error) {
	all := []*introspection.Plugin{{Type: "io.containerd.nri.v1", ID: "nri", InitErr: status.New(codes.Unknown, "no socket").Proto()}}
	if !d.withoutCRI {
		all = append(all, &introspection.Plugin{Type: "io.containerd.grpc.v1", ID: "cri"})
	}
	return &introspection.PluginsResponse{Plugins: all}, nil
}

func (d *double) Status(_ context.Context, r *cri.StatusRequest) (*cri.StatusResponse, error) {
	if !r.Verbose {
		return &cri.StatusResponse{}, nil
	}
	return &cri.StatusResponse{Info: map[string]string{"config": d.config}}, nil
}

type namespaceDouble struct {
	namespaces.UnimplementedNamespacesServer
}

func (namespaceDouble) List(context.Context, *namespaces.ListNamespacesRequest) (*namespaces.ListNamespacesResponse, error) {
	return &namespaces.ListNamespacesResponse{Namespaces: []*namespaces.Namespace{{Name: "moby"}, {Name: "k8s.io"}}}, nil
}

type containerDouble struct {
	containers.UnimplementedContainersServer
}

func (containerDouble) List(ctx context.Context, _ *containers.ListContainersRequest) (*containers.ListContainersResponse, error) {
	space, _ := spaces.Namespace(ctx)
	if space == "moby" {
		return &containers.ListContainersResponse{Containers: []*containers.Container{container("web", "io.containerd.runc.v2", `{"process": {"env": ["PASSWORD=x"]}}`)}}, nil
	}
	return &containers.ListContainersResponse{Containers: []*containers.Container{
		container("gone", "io.containerd.runc.v2", `{}`),
		container("main", "io.containerd.kata-gpu.v2", podSpec),
	}}, nil
}

type taskDouble struct {
	tasks.UnimplementedTasksServer
}

func (taskDouble) List(ctx context.Context, _ *tasks.ListTasksRequest) (*tasks.ListTasksResponse, error) {
	space, _ := spaces.Namespace(ctx)
	if space == "moby" {
		return &tasks.ListTasksResponse{Tasks: []*task.Process{{ID: "web", Pid: 11, Status: task.Status_RUNNING}}}, nil
	}
	return &tasks.ListTasksResponse{Tasks: []*task.Process{
		{ID: "gone", Pid: 12, Status: task.Status_STOPPED}, {ID: "main", Pid: 13, Status: task.Status_PAUSED},
	}}, nil
}

func container(id, runtime, spec string) *containers.Container {
	return &containers.Container{
		ID: id, Runtime: &containers.Container_Runtime{Name: runtime},
		Spec: &anypb.Any{TypeUrl: "types.containerd.io/opencontainers/runtime-spec/1/Spec", Value: []byte(spec)},
	}
}

const podSpec = `{
	"annotations": {"io.kubernetes.cri.sandbox-id": "s", "io.kubernetes.cri.sandbox-namespace": "tenant-a", "io.kubernetes.cri.sandbox-name": "train"},
	"mounts": [{"source": "/var/lib//kubelet"}, {"source": "tmpfs"}],
	"process": {"capabilities": {"bounding": ["CAP_SYS_ADMIN"]}},
	"linux": {"devices": [{"path": "/dev/vfio/15"}], "resources": {"devices": [{"allow": false, "access": "rwm"}, {"allow": true, "type": "a", "access": "rwm"}]}}
}`

const criConfig = `{"containerd": {"defaultRuntimeName": "runc", "runtimes": {
	"kata-gpu": {"runtimeType": "io.containerd.kata-gpu.v2", "runtimePath": "/opt/kata/bin/containerd-shim-kata-v2", "PodAnnotations": ["a"],
		"options": {"ConfigPath": "/opt/kata/configuration.toml"}, "privileged_without_host_devices": true, "sandboxer": "podsandbox"},
	"runc": {"runtimeType": "io.containerd.runc.v2", "options": {"SystemdCgroup": true}, "sandboxer": "podsandbox"}
}}, "cdiSpecDirs": ["/etc/cdi", "/var/run/cdi"]}`

// serve has the double serve the socket of a tree.
func serve(t *testing.T, d *double) *sysfs.FS {
	t.Helper()
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "run/containerd"), 0o755); err != nil {
		t.Fatal(err)
	}
	if d != nil {
		listener, err := net.Listen("unix", filepath.Join(root, "run/containerd/containerd.sock"))
		if err != nil {
			t.Fatal(err)
		}
		server := grpc.NewServer()
		version.RegisterVersionServer(server, d)
		introspection.RegisterIntrospectionServer(server, d)
		cri.RegisterRuntimeServiceServer(server, criDouble{d})
		namespaces.RegisterNamespacesServer(server, namespaceDouble{})
		containers.RegisterContainersServer(server, containerDouble{})
		tasks.RegisterTasksServer(server, taskDouble{})
		go func() { _ = server.Serve(listener) }()
		t.Cleanup(server.Stop)
	}
	fsys, err := sysfs.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = fsys.Close() })
	return fsys
}

// criDouble keeps CRI's Version from containerd's.
type criDouble struct{ *double }

func (d criDouble) Version(context.Context, *cri.VersionRequest) (*cri.VersionResponse, error) {
	return &cri.VersionResponse{}, nil
}

const socket = "/run/containerd/containerd.sock"

func TestAsk(t *testing.T) {
	got, err := askContainerd(t.Context(), serve(t, &double{config: criConfig}), socket)
	if err != nil {
		t.Fatal(err)
	}
	want := &facts.RunningContainerd{
		Socket: socket, Version: "v2.4.2",
		Plugins: []facts.ContainerdPlugin{
			{Type: "io.containerd.nri.v1", ID: "nri", Error: "no socket"}, {Type: "io.containerd.grpc.v1", ID: "cri"},
		},
		CRI: &facts.CRI{CDIDirs: []string{"/etc/cdi", "/var/run/cdi"}, Handlers: map[string]facts.CRIHandler{
			"kata-gpu": {
				Type: "io.containerd.kata-gpu.v2", Path: "/opt/kata/bin/containerd-shim-kata-v2", Config: "/opt/kata/configuration.toml",
				PodAnnotations: []string{"a"}, PrivilegedWithoutHostDevices: true, Sandboxer: "podsandbox",
			},
			"runc": {Type: "io.containerd.runc.v2", Sandboxer: "podsandbox"},
		}},
		Containers: []facts.Container{
			{
				ID: "main", Space: "k8s.io", Runtime: "io.containerd.kata-gpu.v2", PID: 13, Sandbox: "s", Namespace: "tenant-a", Pod: "train",
				Mounts: []string{"/var/lib/kubelet"}, Devices: []string{"/dev/vfio/15"}, Privileged: true,
			},
			{ID: "web", Space: "moby", Runtime: "io.containerd.runc.v2", PID: 11},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Ask (-want +got):\n%s", diff)
	}
	if got.HasNRI() {
		t.Error("NRI failed to start, and is said to be there")
	}
}

func TestAskWithoutCRI(t *testing.T) {
	got, err := askContainerd(t.Context(), serve(t, &double{withoutCRI: true}), socket)
	if err != nil || got.CRI != nil {
		t.Errorf("CRI %v, error %v; want neither", got.CRI, err)
	}
}

func TestAskSaysWhatIsNotAnswered(t *testing.T) {
	if _, err := askContainerd(t.Context(), serve(t, nil), socket); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no socket: %v", err)
	}
	if _, err := askContainerd(t.Context(), serve(t, &double{config: "{"}), socket); err == nil {
		t.Error("a configuration that can't be read is not an error")
	}
	fsys := serve(t, nil)
	abandoned := filepath.Join(fsys.Path(), socket)
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: abandoned, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	listener.SetUnlinkOnClose(false)
	_ = listener.Close()
	if _, err := askContainerd(t.Context(), fsys, socket); err == nil {
		t.Error("nobody listens, and that is not an error")
	}
}
