package dra_test

import (
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/bind"
	"github.com/kata-vfio/kata-vfio/pkg/cdi"
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
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/control"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
	"github.com/kata-vfio/kata-vfio/pkg/vfio"
)

// node is a scripted node with the parts of the plugin that stand behind
// package dra.
type node struct {
	t         *testing.T
	k         *sysfstest.Kernel
	fs        *sysfs.FS
	records   *journal.Store
	specs     *cdi.Dir
	config    prepare.Config
	claims    *claims
	health    *dra.Health
	metrics   *metrics.Metrics
	publisher *dra.Publisher
	links     *vftest.Links
	policy    *vf.Policy
}

func newNode(t *testing.T) *node {
	t.Helper()
	n := &node{t: t, k: sysfstest.New(t), health: dra.NewHealth()}
	var err error
	if n.fs, err = sysfs.Open(n.k.Root()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.fs.Close() })
	if n.records, err = journal.Open(filepath.Join(n.k.Root(), "var/lib/kata-vfio/journal")); err != nil {
		t.Fatal(err)
	}
	if n.specs, err = cdi.Open(filepath.Join(n.k.Root(), "run/cdi")); err != nil {
		t.Fatal(err)
	}
	locks, err := journal.NewLocks(filepath.Join(n.k.Root(), "run/locks"))
	if err != nil {
		t.Fatal(err)
	}
	n.links = vftest.New(t, n.fs, vftest.Igb())
	n.policy = &vf.Policy{FS: n.fs, Links: n.links, Switches: n.links.Switches()}
	n.metrics = metrics.New(n.records.List, func() int { return 0 })
	n.config = prepare.Config{
		Parts: effects.Parts{
			FS: n.fs, Inventory: scanner{n.fs}, Locks: locks,
			Executor: bind.New(n.fs, control.New(n.k, n.fs, 10*time.Second), n.k, n.k.HotReset),
			Journal:  n.records, Specs: n.specs, Holders: vfio.NewProcesses(n.fs),
			VFs: n.policy, Observe: n.metrics.Observe,
		},
		Node: nodeconfig.Default(), NodeName: "worker-1", UndoLimit: 10 * time.Second,
	}
	n.reopen(func(*prepare.Config) {})
	planNode := func(snap *device.Snapshot) (plan.Node, error) { return n.claims.PlanNode(snap) }
	n.publisher = dra.NewPublisher("worker-1", planNode, n.records.List, n.health, n.metrics)
	return n
}

// claims is all that works on a node's claims and functions.
type claims struct {
	*prepare.Preparer
	*maintain.Maintainer
}

// reopen opens the node with another config.
func (n *node) reopen(change func(*prepare.Config)) {
	change(&n.config)
	p := prepare.New(n.config)
	n.claims = &claims{Preparer: p, Maintainer: maintain.New(p.Order(), n.policy)}
}

// snapshot scans the node.
func (n *node) snapshot() *device.Snapshot {
	n.t.Helper()
	snap, err := inventory.Scan(n.t.Context(), n.fs)
	if err != nil {
		n.t.Fatal(err)
	}
	return snap
}

// driver returns the function's driver.
func (n *node) driver(a pci.Address) string {
	n.t.Helper()
	driver, err := n.fs.Driver(a)
	if err != nil {
		n.t.Fatal(err)
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

// quiet is a logger for nobody.
func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// untagged are parameters of a class whose VFs may be in no VLAN.
const untagged = `{"apiVersion":"resource.kata-vfio.dev/v1alpha1","kind":"VFConfig","allowUntagged":true}`

// fromClass is what an allocation copies from a request's class.
func fromClass(request, parameters string) resourceapi.DeviceAllocationConfiguration {
	return resourceapi.DeviceAllocationConfiguration{
		Source: resourceapi.AllocationConfigSourceClass, Requests: []string{request},
		DeviceConfiguration: resourceapi.DeviceConfiguration{Opaque: &resourceapi.OpaqueDeviceConfiguration{
			Driver: v1alpha1.DriverName, Parameters: runtime.RawExtension{Raw: []byte(parameters)},
		}},
	}
}

// allocated returns a claim whose requests got the devices: "gpu" the first,
// "gpu-more" the second.
func allocated(uid string, devices ...string) *resourceapi.ResourceClaim {
	c := &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "claim-" + uid, UID: types.UID(uid)},
		Status: resourceapi.ResourceClaimStatus{
			Allocation:  &resourceapi.AllocationResult{},
			ReservedFor: []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: "train", UID: "pod-uid"}},
		},
	}
	for i, name := range devices {
		request, class := "gpu"+strings.Repeat("-more", i), "gpu.kata-vfio.dev"
		if strings.Contains(name, "vf-") {
			class = "vf.kata-vfio.dev"
			c.Status.Allocation.Devices.Config = append(c.Status.Allocation.Devices.Config, fromClass(request, untagged))
		}
		c.Spec.Devices.Requests = append(c.Spec.Devices.Requests, resourceapi.DeviceRequest{
			Name: request, Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: class},
		})
		c.Status.Allocation.Devices.Results = append(c.Status.Allocation.Devices.Results,
			resourceapi.DeviceRequestAllocationResult{Request: request, Driver: v1alpha1.DriverName, Pool: poolOf(name), Device: name})
	}
	return c
}

// poolOf is the pool of a device on the tests' node, where a PF is the first function of its VFs' bus.
func poolOf(name string) string {
	parts, err := device.ParseParts(name)
	if err != nil || parts[0].Type != device.VFType {
		return "worker-1"
	}
	pf := pci.Address{Domain: parts[0].Address.Domain, Bus: parts[0].Address.Bus}
	return "worker-1/pf-" + pf.Label()
}
