// Package plugintest is a scripted node, API server and kubelet around the parts of the plugin, for tests.
package plugintest

import (
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/bind"
	"github.com/kata-vfio/kata-vfio/pkg/cdi"
	"github.com/kata-vfio/kata-vfio/pkg/claim"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/inventory"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/maintain"
	"github.com/kata-vfio/kata-vfio/pkg/network/vf"
	"github.com/kata-vfio/kata-vfio/pkg/network/vf/vftest"
	"github.com/kata-vfio/kata-vfio/pkg/nodeconfig"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/dra"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/metrics"
	"github.com/kata-vfio/kata-vfio/pkg/prepare"
	"github.com/kata-vfio/kata-vfio/pkg/prepare/effects"
	"github.com/kata-vfio/kata-vfio/pkg/publish"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/control"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
	"github.com/kata-vfio/kata-vfio/pkg/vfio"
)

// Node is a scripted node with the parts of the plugin.
type Node struct {
	T         *testing.T
	Kernel    *sysfstest.Kernel
	FS        *sysfs.FS
	Records   *journal.Store
	Specs     *cdi.Dir
	Config    prepare.Config
	Claims    *Claims
	Health    *dra.Health
	Metrics   *metrics.Metrics
	Publisher *dra.Publisher
	Facts     *Facts
	Attempts  *dra.Attempts
	Links     *vftest.Links
	Policy    *vf.Policy
	// Twins, which may be nil, returns what looks after shared devices.
	Twins func(kubernetes.Interface) dra.Exclusion
	// Intercept, which may be nil, wraps the kubelet's calls.
	Intercept grpc.UnaryServerInterceptor
}

// New returns an empty node with the name worker-1.
func New(t *testing.T) *Node {
	t.Helper()
	n := &Node{T: t, Kernel: sysfstest.New(t), Health: dra.NewHealth()}
	var err error
	if n.FS, err = sysfs.Open(n.Kernel.Root()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.FS.Close() })
	if n.Records, err = journal.Open(filepath.Join(n.Kernel.Root(), "var/lib/kata-vfio/journal")); err != nil {
		t.Fatal(err)
	}
	if n.Specs, err = cdi.Open(filepath.Join(n.Kernel.Root(), "run/cdi")); err != nil {
		t.Fatal(err)
	}
	locks, err := journal.NewLocks(filepath.Join(n.Kernel.Root(), "run/locks"))
	if err != nil {
		t.Fatal(err)
	}
	n.Links = vftest.New(t, n.FS, vftest.Igb())
	n.Policy = &vf.Policy{FS: n.FS, Links: n.Links, Switches: n.Links.Switches()}
	n.Metrics = metrics.New(n.Records, func() int { return 0 })
	n.Config = prepare.Config{
		Parts: effects.Parts{
			FS: n.FS, Inventory: scanner{n.FS}, Locks: locks,
			Executor: bind.New(n.FS, control.New(n.Kernel, n.FS, 10*time.Second), n.Kernel, n.Kernel.Exclude),
			Journal:  n.Records, Specs: n.Specs, Holders: vfio.NewProcesses(n.FS),
			VFs: n.Policy, Observe: n.Metrics.Observe,
		},
		Node: nodeconfig.Default(), NodeName: "worker-1", UndoLimit: 10 * time.Second,
	}
	n.Reopen(func(*prepare.Config) {})
	n.Facts = &Facts{node: n}
	n.Attempts = &dra.Attempts{Kept: dra.AttemptsKept, Changes: NewWakes()}
	n.Publisher = dra.NewPublisher(dra.PublisherConfig{
		NodeName: "worker-1", Node: n.Facts, Records: n.Records, Health: n.Health, Metrics: n.Metrics, Attempts: n.Attempts,
	})
	return n
}

// Facts are what decides over the node's devices. It implements [dra.PublishedNode].
type Facts struct {
	node *Node
	// Selects, which may be nil, selects the published functions in place of the config that claims are planned with.
	Selects *v1alpha1.NodeConfig
	// Fails are the checks that fail, by function, Losses the claims that lost their devices, and Software the versions.
	Fails    map[pci.Address][]rule.Failure
	Losses   map[string]string
	Software publish.Versions
}

// PlanNode implements [dra.PublishedNode].
func (f *Facts) PlanNode(ctx context.Context, snap *device.Snapshot) (plan.Node, error) {
	known, err := f.node.Claims.PlanNode(ctx, snap)
	if f.Selects != nil {
		known.Selection = nodeconfig.Select(f.Selects, snap)
	}
	return known, err
}

// Failing implements [dra.PublishedNode].
func (f *Facts) Failing(a pci.Address) []rule.Failure { return f.Fails[a] }

// Drains implements [dra.PublishedNode].
func (f *Facts) Drains(snap *device.Snapshot) []maintain.Draining {
	drains, _ := f.node.Claims.DrainsIn(snap)
	return drains
}

// Lost implements [dra.PublishedNode].
func (f *Facts) Lost() map[string]string { return f.Losses }

// Versions implements [dra.PublishedNode].
func (f *Facts) Versions() publish.Versions { return f.Software }

// Wakes counts wakes. It implements [dra.Waker].
type Wakes chan struct{}

// NewWakes returns wakes with room for many.
func NewWakes() Wakes { return make(Wakes, 10000) }

// Wake implements [dra.Waker].
func (w Wakes) Wake() { w <- struct{}{} }

// NoRecords is the journal of a node that never had a claim.
type NoRecords struct{}

// List implements [journal.Lister].
func (NoRecords) List() ([]*journal.Record, []error) { return nil, nil }

// Claims is all that works on a node's claims and functions.
type Claims struct {
	*prepare.Preparer
	*maintain.Maintainer
}

// Reopen opens the node with another config.
func (n *Node) Reopen(change func(*prepare.Config)) {
	change(&n.Config)
	p := prepare.New(n.Config)
	n.Claims = &Claims{Preparer: p, Maintainer: maintain.New(p.Order(), n.Policy)}
}

// Snapshot scans the node.
func (n *Node) Snapshot() *device.Snapshot {
	n.T.Helper()
	snap, err := inventory.Scan(n.T.Context(), n.FS)
	if err != nil {
		n.T.Fatal(err)
	}
	return snap
}

// Driver returns the function's driver.
func (n *Node) Driver(a pci.Address) string {
	n.T.Helper()
	driver, err := n.FS.Driver(a)
	if err != nil {
		n.T.Fatal(err)
	}
	return driver
}

// scanner reads the whole node each time.
type scanner struct{ fs *sysfs.FS }

func (s scanner) Snapshot(ctx context.Context) (*device.Snapshot, error) {
	return inventory.Scan(ctx, s.fs)
}

func (s scanner) Refresh(ctx context.Context, _ []pci.Address) (*device.Snapshot, error) {
	return inventory.Scan(ctx, s.fs)
}

// RefreshFunctions implements [effects.Inventory].
func (s scanner) RefreshFunctions(ctx context.Context, addrs []pci.Address) (*device.Snapshot, error) {
	return s.Refresh(ctx, addrs)
}

// Quiet is a logger for nobody.
func Quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// Untagged are parameters of a class whose VFs may be in no VLAN.
const Untagged = `{"allowUntagged":true,"apiVersion":"resource.kata-vfio.dev/v1alpha1","kind":"VFConfig"}`

// FromClass is what an allocation copies from a request's class.
func FromClass(request, parameters string) resourceapi.DeviceAllocationConfiguration {
	return resourceapi.DeviceAllocationConfiguration{
		Source: resourceapi.AllocationConfigSourceClass, Requests: []string{request},
		DeviceConfiguration: resourceapi.DeviceConfiguration{Opaque: &resourceapi.OpaqueDeviceConfiguration{
			Driver: v1alpha1.DriverName, Parameters: runtime.RawExtension{Raw: []byte(parameters)},
		}},
	}
}

// Allocated returns a claim whose requests got the devices: "gpu" the first,
// "gpu-more" the second.
func Allocated(uid string, devices ...string) *resourceapi.ResourceClaim {
	c := &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "claim-" + uid, UID: types.UID(uid)},
		Status: resourceapi.ResourceClaimStatus{
			Allocation:  &resourceapi.AllocationResult{},
			ReservedFor: []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: "train", UID: "pod-uid"}},
		},
	}
	for i, name := range devices {
		request, class := "gpu"+strings.Repeat("-more", i), "gpu.kata-vfio.dev"
		if strings.Contains(name, "vf-") && !strings.HasPrefix(name, "gpuvf-") {
			class = "vf.kata-vfio.dev"
			c.Status.Allocation.Devices.Config = append(c.Status.Allocation.Devices.Config, FromClass(request, Untagged))
		}
		c.Spec.Devices.Requests = append(c.Spec.Devices.Requests, resourceapi.DeviceRequest{
			Name: request, Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: class},
		})
		c.Status.Allocation.Devices.Results = append(c.Status.Allocation.Devices.Results,
			resourceapi.DeviceRequestAllocationResult{Request: request, Driver: v1alpha1.DriverName, Pool: PoolOf(name), Device: name})
	}
	return c
}

// PoolOf is the pool of a device on the tests' node, where a PF is the first function of its VFs' bus.
func PoolOf(name string) string {
	parts, err := device.ParseParts(name)
	if err != nil || parts[0].Type != device.VFType {
		return device.NodePool("worker-1")
	}
	pf := pci.Address{Domain: parts[0].Address.Domain, Bus: parts[0].Address.Bus}
	return device.NodePool("worker-1") + "/pf-" + pf.Label()
}

// Publish publishes the node as it is now.
func (n *Node) Publish(r *Recorder) {
	n.T.Helper()
	if err := n.Publisher.Publish(n.T.Context(), r, n.Snapshot()); err != nil {
		n.T.Fatal(err)
	}
}

// Prepare prepares a claim for the device, past the kubelet.
func (n *Node) Prepare(uid, name string) {
	n.T.Helper()
	if err := n.PrepareClaim(Allocated(uid, name)); err != nil {
		n.T.Fatal(err)
	}
}

// PrepareClaim prepares a claim, past the kubelet.
func (n *Node) PrepareClaim(c *resourceapi.ResourceClaim) error {
	n.T.Helper()
	req, err := claim.Decode(c, v1alpha1.DriverName)
	if err != nil {
		n.T.Fatal(err)
	}
	_, err = n.Claims.Prepare(n.T.Context(), req)
	return err
}

// Recorder keeps what was published.
type Recorder struct {
	Published []resourceslice.DriverResources
	Err       error
}

// PublishResources implements [dra.Slices].
func (r *Recorder) PublishResources(_ context.Context, res resourceslice.DriverResources) error {
	if r.Err == nil {
		r.Published = append(r.Published, res)
	}
	return r.Err
}

// Devices returns the names of the devices published last, each with its taints.
func (r *Recorder) Devices() map[string][]string {
	all := map[string][]string{}
	for _, pool := range r.Published[len(r.Published)-1].Pools {
		for _, slice := range pool.Slices {
			for _, d := range slice.Devices {
				taints := []string{}
				for _, t := range d.Taints {
					taints = append(taints, strings.TrimPrefix(t.Key, "kata-vfio.dev/"))
				}
				all[d.Name] = taints
			}
		}
	}
	return all
}
