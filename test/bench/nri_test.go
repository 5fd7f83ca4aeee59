//go:build e2e

package bench

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
	nrilog "github.com/containerd/nri/pkg/log"
	"github.com/containerd/nri/pkg/stub"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/cdi"
)

// runtime is the NRI side of containerd: the library that it has inside.
type runtime struct {
	*adaptation.Adaptation
	synchronized chan struct{} // a word for each plugin
}

// startRuntime serves <dir>/nri.sock.
func startRuntime(b *testing.B, dir string) *runtime {
	b.Helper()
	nrilog.Set(silent{})
	r := &runtime{synchronized: make(chan struct{}, 10)}
	var err error
	r.Adaptation, err = adaptation.New("containerd", "v2.4.2", r.synchronize, r.update, adaptation.WithSocketPath(filepath.Join(dir, "nri.sock")),
		adaptation.WithPluginPath(dir+"/none"), adaptation.WithPluginConfigPath(dir+"/none"))
	if err == nil {
		err = r.Start()
	}
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(r.Stop)
	return r
}

func (r *runtime) synchronize(ctx context.Context, plugin adaptation.SyncCB) error {
	_, err := plugin(ctx, nil, nil)
	r.synchronized <- struct{}{}
	return err
}

func (*runtime) update(context.Context, []*adaptation.ContainerUpdate) ([]*adaptation.ContainerUpdate, error) {
	return nil, nil
}

// ready waits until a plugin is asked.
func (r *runtime) ready(b *testing.B) {
	b.Helper()
	select {
	case <-r.synchronized:
	case <-b.Context().Done():
		b.Fatal(b.Context().Err())
	}
	r.BlockPluginSync().Unblock() // the runtime has it in its list
}

// silent is the log of the runtime's side.
type silent struct{}

func (silent) Debugf(context.Context, string, ...any) {}
func (silent) Infof(context.Context, string, ...any)  {}
func (silent) Warnf(context.Context, string, ...any)  {}
func (silent) Errorf(context.Context, string, ...any) {}

// empty is a plugin that is asked the same and says nothing.
type empty struct{}

func (empty) CreateContainer(context.Context, *api.PodSandbox, *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	return nil, nil, nil
}

func (empty) ValidateContainerAdjustment(context.Context, *api.ValidateContainerAdjustmentRequest) error {
	return nil
}

// startEmpty is a runtime whose only plugin is empty. It is in this process, which makes its calls faster than those
// of a plugin in one of its own.
func startEmpty(b *testing.B) *runtime {
	b.Helper()
	dir := socketDir(b)
	r := startRuntime(b, dir)
	s, err := stub.New(empty{}, stub.WithPluginName("empty"), stub.WithPluginIdx("99"), stub.WithSocketPath(filepath.Join(dir, "nri.sock")))
	if err == nil {
		err = s.Start(b.Context())
	}
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(s.Stop)
	r.ready(b)
	return r
}

// create has a runtime create a container, and returns what the plugins want of it.
func (r *runtime) create(ctx context.Context, pod *api.PodSandbox, c *api.Container) (*api.ContainerAdjustment, error) {
	answer, err := r.CreateContainer(ctx, &api.CreateContainerRequest{Pod: pod, Container: c})
	return answer.GetAdjust(), err
}

// createContainer times what a container waits for: the plugin's two hooks in the creation of one with a device of
// its pod's claim, and of one without, as nearly all are.
func createContainer(b *testing.B, r *runtime, tenants []*tenant, specs *cdi.Dir) {
	bare, plain := startEmpty(b), podWithout()
	if _, err := r.create(b.Context(), tenants[0].podSandbox(), tenants[1].container(b, specs)); err == nil {
		b.Fatal("the plugin permits a container the device of another pod: it does not look")
	}
	var with, without, base samples
	for b.Loop() {
		for _, t := range tenants {
			own := t.container(b, specs)
			took := turns(b, 1,
				func() error { _, err := r.create(b.Context(), t.podSandbox(), own); return err },
				func() error { _, err := r.create(b.Context(), plain, container()); return err },
				func() error { _, err := bare.create(b.Context(), t.podSandbox(), own); return err })
			with, without, base = append(with, took[0]...), append(without, took[1]...), append(base, took[2]...)
		}
	}
	b.ReportMetric(0, "ns/op")
	with.report(b, "with", base)
	without.report(b, "without", base)
	fmt.Printf("CreateContainer, %d pods with a claim: with %v, without %v, an empty plugin %v\n", len(tenants), with, without, base)
}

// podSandbox is the tenant's, as the runtime tells of it.
func (t *tenant) podSandbox() *api.PodSandbox {
	return &api.PodSandbox{
		Id: t.sandbox(), Uid: string(t.pod.UID), Name: t.pod.Name, Namespace: t.pod.Namespace, RuntimeHandler: v1alpha1.DefaultHandler,
	}
}

// podWithout is one without a claim, under the node's default runtime.
func podWithout() *api.PodSandbox {
	return &api.PodSandbox{Id: "sandbox-web", Uid: "b2f0a5d8", Name: "web", Namespace: namespace, RuntimeHandler: "runc"}
}

// container has what containerd gives every one.
func container() *api.Container {
	rules := []*api.LinuxDeviceCgroup{
		{Type: "a", Access: "rwm"},
		{Allow: true, Type: "c", Access: "m"},
		{Allow: true, Type: "c", Major: api.Int64(int64(1)), Minor: api.Int64(int64(3)), Access: "rwm"},
	}
	return &api.Container{
		Id: "container", Name: "main", Linux: &api.LinuxContainer{Resources: &api.LinuxResources{Devices: rules}},
		Mounts: []*api.Mount{
			{Destination: "/proc", Type: "proc", Source: "proc"},
			{Destination: "/dev", Type: "tmpfs", Source: "tmpfs"},
			{Destination: "/dev/shm", Type: "bind", Source: "/run/containerd/sandboxes/s/shm"},
		},
	}
}

// container is the tenant's, with its device as the runtime puts it in by the CDI spec.
func (t *tenant) container(b *testing.B, specs *cdi.Dir) *api.Container {
	b.Helper()
	spec, err := specs.Read(string(t.claim.UID))
	if err != nil {
		b.Fatal(err)
	}
	c := container()
	c.CDIDevices = []*api.CDIDevice{{Name: t.cdi()}}
	for _, d := range spec.Devices {
		for _, n := range d.ContainerEdits.DeviceNodes {
			c.Linux.Devices = append(c.Linux.Devices, &api.LinuxDevice{Path: n.Path, Type: n.Type, Major: n.Major, Minor: n.Minor})
			c.Linux.Resources.Devices = append(c.Linux.Resources.Devices, &api.LinuxDeviceCgroup{
				Allow: true, Type: "c", Major: api.Int64(n.Major), Minor: api.Int64(n.Minor), Access: "rw",
			})
		}
	}
	if len(c.Linux.Devices) == 0 {
		b.Fatalf("the CDI spec of claim %s names no node", t.claim.Name)
	}
	return c
}
