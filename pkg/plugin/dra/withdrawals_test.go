package dra_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/nodeconfig"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/dra"
	"github.com/kata-vfio/kata-vfio/pkg/prepare"
	"github.com/kata-vfio/kata-vfio/pkg/publish"
	"github.com/kata-vfio/kata-vfio/test/plugintest"
)

// leaving is a node with two GPUs of which one leaves the bus, and an API server.
type leaving struct {
	*plugintest.Node
	plugintest.Recorder
	client *fake.Clientset
	gone   pci.Address
	// err is the API server's answer to a list of claims, and lists counts them.
	err   error
	lists int
	// asks: whether claims may be listed is the API server's answer, and not taken for granted.
	asks bool
	// away is why the API server does not answer which slices there are.
	away error
	// accepted is what the API server has of the slices; nil for all that was published.
	accepted *plugintest.Recorder
}

const goneGPU = "gpu-0000-3c-00-0"

func newLeaving(t *testing.T, claims ...runtime.Object) *leaving {
	t.Helper()
	l := &leaving{Node: plugintest.New(t), client: plugintest.Cluster(claims...)}
	l.client.PrependReactor("list", "resourceclaims", func(clienttesting.Action) (bool, runtime.Object, error) {
		l.lists++
		return l.err != nil, nil, l.err
	})
	l.Kernel.AddGPU(0x3b)
	l.gone = l.Kernel.AddGPU(0x3c)
	l.restart()
	l.Publish(&l.Recorder)
	return l
}

// restart replaces the publisher by one that knows what the API server has.
func (l *leaving) restart() {
	l.Publisher = dra.NewPublisher(dra.PublisherConfig{
		NodeName: "worker-1", Node: l.Facts, Records: l.Records, Health: l.Health, Metrics: l.Metrics, Cluster: leavingCluster{l},
	})
}

// leavingCluster is the API server of a node that a GPU leaves.
type leavingCluster struct{ *leaving }

func (c leavingCluster) Published(context.Context) (map[publish.Allocated]publish.Listed, error) {
	if c.away != nil {
		return nil, c.away
	}
	return c.listed(), nil
}

func (c leavingCluster) Claimed(ctx context.Context) (map[publish.Allocated]bool, error) {
	return dra.ClusterDevices{Client: c.client, Node: "worker-1"}.Claimed(ctx)
}

func (c leavingCluster) MayListClaims(ctx context.Context) (bool, error) {
	if !c.asks {
		return true, nil
	}
	return dra.ClusterDevices{Client: c.client, Node: "worker-1"}.MayListClaims(ctx)
}

// listed is what the API server has of the slices.
func (l *leaving) listed() map[publish.Allocated]publish.Listed {
	r, all := &l.Recorder, map[publish.Allocated]publish.Listed{}
	if l.accepted != nil {
		r = l.accepted
	}
	if len(r.Published) == 0 {
		return all
	}
	for name, pool := range r.Published[len(r.Published)-1].Pools {
		for _, slice := range pool.Slices {
			publish.AddListed(all, name, slice.Devices, "")
		}
	}
	return all
}

// pass lets minutes pass, in which the node is published and withdrawn devices are settled.
func (l *leaving) pass(minutes int) {
	l.T.Helper()
	for range minutes {
		time.Sleep(time.Minute)
		_, err := l.Publisher.Settle(l.T.Context())
		if (err != nil) != (l.err != nil) && err != nil {
			l.T.Fatal(err)
		}
		l.Publish(&l.Recorder)
	}
}

// want checks whether the GPU that left is still published, and how often claims were listed.
func (l *leaving) want(published bool, lists int) {
	l.T.Helper()
	if taints, there := l.Devices()[goneGPU]; there != published || there && taints[0] != "withdrawn" {
		l.T.Errorf("published %t with taints %v, want %t", there, taints, published)
	}
	if l.lists != lists {
		l.T.Errorf("claims were listed %d times, want %d", l.lists, lists)
	}
}

// TestDeviceStaysUntilNoSchedulerCanAllocateIt, and claims are listed once.
func TestDeviceStaysUntilNoSchedulerCanAllocateIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLeaving(t)
		l.pass(60)
		if l.lists > 0 {
			t.Errorf("claims are listed without a change")
		}
		l.Kernel.Remove(l.gone)
		l.pass(26)
		l.want(true, 0)
		l.pass(6)
		l.want(false, 1)
		l.pass(60)
		l.want(false, 1)
	})
}

// TestAllocatedDeviceStaysWhileItsAllocationStands: only the API server's word ends that, not the kubelet's silence.
func TestAllocatedDeviceStaysWhileItsAllocationStands(t *testing.T) {
	claims := resourceapi.SchemeGroupVersion.WithResource("resourceclaims")
	for name, end := range map[string]func(s *fake.Clientset, c *resourceapi.ResourceClaim) error{
		"its claim is deleted": func(s *fake.Clientset, c *resourceapi.ResourceClaim) error {
			return s.Tracker().Delete(claims, c.Namespace, c.Name)
		},
		"its allocation is withdrawn": func(s *fake.Clientset, c *resourceapi.ResourceClaim) error {
			c = c.DeepCopy()
			c.Status.Allocation = nil
			return s.Tracker().Update(claims, c, c.Namespace)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := plugintest.Allocated("uid-1", goneGPU)
				l := newLeaving(t, c)
				l.Kernel.Remove(l.gone)
				l.pass(120)
				l.want(true, l.lists)
				if l.lists > 4 {
					t.Errorf("claims were listed %d times in two hours", l.lists)
				}
				l.err = errors.New("dial tcp: connection refused")
				if err := end(l.client, c); err != nil {
					t.Fatal(err)
				}
				l.pass(120)
				l.want(true, l.lists)
				l.restart()
				l.pass(120)
				l.want(true, l.lists)
				l.err = nil
				l.pass(6)
				l.want(false, l.lists)
			})
		})
	}
}

// TestDeviceStaysWithoutTheRightToAsk, and the error says which value of the chart gives it.
func TestDeviceStaysWithoutTheRightToAsk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLeaving(t)
		l.err = apierrors.NewForbidden(resourceapi.Resource("resourceclaims"), "", errors.New("no RBAC policy matched"))
		l.Kernel.Remove(l.gone)
		l.pass(90)
		l.want(true, l.lists)
		time.Sleep(time.Hour)
		_, err := l.Publisher.Settle(t.Context())
		if err == nil || !strings.Contains(err.Error(), goneGPU) || !strings.Contains(err.Error(), "plugin.listClaims") {
			t.Errorf("got %v, want an error with the device and the value", err)
		}
	})
}

// TestTimeBeginsWhenTheAPIServerHasTheTaint: until then a scheduler can choose the device.
func TestTimeBeginsWhenTheAPIServerHasTheTaint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLeaving(t)
		l.accepted = &plugintest.Recorder{Published: l.Published}
		l.Kernel.Remove(l.gone)
		l.pass(120)
		l.want(true, 0)
		l.accepted = nil
		l.pass(26)
		l.want(true, 0)
		l.pass(6)
		l.want(false, 1)
	})
}

// TestTimeBeginsAgainWhenAnEndingInstanceOffersTheDevice.
func TestTimeBeginsAgainWhenAnEndingInstanceOffersTheDevice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLeaving(t)
		before := &plugintest.Recorder{Published: l.Published}
		l.Kernel.Remove(l.gone)
		l.pass(20)
		l.accepted = before
		l.pass(20)
		l.accepted = nil
		l.pass(26)
		l.want(true, 0)
		l.pass(6)
		l.want(false, 1)
	})
}

// TestUnpreparedDeviceStays: the allocation ends after the kubelet's call, or another pod has the claim already.
func TestUnpreparedDeviceStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLeaving(t, plugintest.Allocated("uid-1", goneGPU))
		l.Prepare("uid-1", goneGPU)
		l.Reopen(func(c *prepare.Config) {
			c.Node = nodeconfig.Default()
			c.Node.Devices = []v1alpha1.DeviceRule{{Match: v1alpha1.DeviceMatch{Addresses: []pci.Address{{Bus: 0x3b}}}}}
		})
		l.pass(120)
		l.want(true, 0)
		if _, err := l.Claims.Unprepare(t.Context(), "uid-1"); err != nil {
			t.Fatal(err)
		}
		l.pass(25)
		l.want(true, 0)
		l.pass(6)
		l.want(true, 1)
	})
}

// TestRestartDropsNoDevice: what the last instance has published may be allocated. While the API server does not say what that is, nothing is published.
func TestRestartDropsNoDevice(t *testing.T) {
	l := newLeaving(t)
	l.Kernel.Remove(l.gone)
	l.restart()
	l.away = errors.New("connection refused")
	before := len(l.Published)
	if err := l.Publisher.Publish(t.Context(), &l.Recorder, l.Snapshot()); !errors.Is(err, l.away) || len(l.Published) != before {
		t.Errorf("Publish = %v, published %d times more", err, len(l.Published)-before)
	}
	l.away = nil
	l.Publish(&l.Recorder)
	l.want(true, 0)
}

// TestClaimedDevicesAreOfOneMoment: a list without a resourceVersion is not from an old cache, and the other pages are of its version.
func TestClaimedDevicesAreOfOneMoment(t *testing.T) {
	other, elsewhere := plugintest.Allocated("uid-2", "gpu-0000-01-00-0"), plugintest.Allocated("uid-3", "gpu-0000-02-00-0")
	other.Status.Allocation.Devices.Results[0].Driver = "other.example.com"
	elsewhere.Status.Allocation.Devices.Results[0].Pool = "worker-10"
	pages := map[string]*resourceapi.ResourceClaimList{
		"":     {ListMeta: metav1.ListMeta{Continue: "next"}, Items: []resourceapi.ResourceClaim{*other, *plugintest.Allocated("uid-1", goneGPU)}},
		"next": {Items: []resourceapi.ResourceClaim{*elsewhere, *plugintest.Allocated("uid-4", "vf-0000-5e-10-1"), {}}},
	}
	client := plugintest.Cluster()
	client.PrependReactor("list", "resourceclaims", func(a clienttesting.Action) (bool, runtime.Object, error) {
		o := a.(clienttesting.ListActionImpl).ListOptions
		if o.ResourceVersion != "" || o.Limit == 0 {
			t.Errorf("listed with %+v", o)
		}
		return true, pages[o.Continue], nil
	})
	got, err := dra.ClusterDevices{Client: client, Node: "worker-1"}.Claimed(t.Context())
	want := map[publish.Allocated]bool{
		{Pool: "worker-1/kata-vfio.dev", Name: goneGPU}: true, {Pool: "worker-1/kata-vfio.dev/pf-0000-5e-00-0", Name: "vf-0000-5e-10-1"}: true,
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}
