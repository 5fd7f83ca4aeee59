package dra_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/prepare"
	"github.com/kata-vfio/kata-vfio/test/plugintest"
)

// former gives the pools that were published last the names of earlier versions, and lets the plugin begin again.
func (l *leaving) former() {
	last := &l.Published[len(l.Published)-1]
	pools := map[string]resourceslice.Pool{}
	for name, pool := range last.Pools {
		pools[device.FormerPool(name)] = pool
	}
	last.Pools = pools
	l.restart()
	l.asks = true
}

// places are the pools in which the latest slices have the device, with its taints.
func (l *leaving) places(name string) string {
	var all []string
	for a := range l.listed() {
		if a.Name == name {
			all = append(all, strings.Join(append([]string{a.Pool}, l.Devices()[name]...), " "))
		}
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// fromFormer names a claim's pools as an earlier version does.
func fromFormer(c *resourceapi.ResourceClaim) *resourceapi.ResourceClaim {
	for i := range c.Status.Allocation.Devices.Results {
		r := &c.Status.Allocation.Devices.Results[i]
		r.Pool = device.FormerPool(r.Pool)
	}
	return c
}

const keptGPU = "gpu-0000-3b-00-0"

// TestUpgradeRenamesPools: a device that no claim has is offered by the new name once no scheduler can allocate it by the former one. One
// that a claim has stays well in its pool until the claim is gone, and is never on offer in two.
func TestUpgradeRenamesPools(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := fromFormer(plugintest.Allocated("uid-1", keptGPU))
		l := newLeaving(t, c)
		if err := l.PrepareClaim(c); err != nil {
			t.Fatal(err)
		}
		l.former()
		check := func(when, kept, free string) {
			t.Helper()
			if got := l.places(keptGPU); got != kept {
				t.Errorf("%s, the claimed GPU is in %q, want %q", when, got, kept)
			}
			if got := l.places(goneGPU); got != free {
				t.Errorf("%s, the free GPU is in %q, want %q", when, got, free)
			}
		}
		l.pass(20)
		check("at once", "worker-1", "worker-1 withdrawn")
		l.pass(12)
		check("after half an hour", "worker-1", "worker-1/kata-vfio.dev")
		l.restart()
		l.pass(60)
		check("after another restart", "worker-1", "worker-1/kata-vfio.dev")
		if _, err := l.Claims.Unprepare(t.Context(), "uid-1"); err != nil {
			t.Fatal(err)
		}
		l.pass(5)
		check("when its VM has ended", "worker-1 withdrawn", "worker-1/kata-vfio.dev")
		if err := l.client.ResourceV1().ResourceClaims(c.Namespace).Delete(t.Context(), c.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		l.pass(60)
		check("when the claim is gone", "worker-1/kata-vfio.dev", "worker-1/kata-vfio.dev")
	})
}

// TestPoolsKeepTheirNamesWithoutTheRightToAsk: else no device would be on offer ever again. An answer that says neither is not an answer.
func TestPoolsKeepTheirNamesWithoutTheRightToAsk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLeaving(t)
		l.former()
		before := len(l.Published)
		l.err = errors.New("dial tcp: connection refused")
		if err := l.Publisher.Publish(t.Context(), &l.Recorder, l.Snapshot()); !errors.Is(err, l.err) || len(l.Published) != before {
			t.Errorf("Publish = %v, published %d times more", err, len(l.Published)-before)
		}
		l.err = apierrors.NewForbidden(resourceapi.Resource("resourceclaims"), "", errors.New("no RBAC policy matched"))
		l.pass(90)
		if got := l.places(goneGPU); got != "worker-1" {
			t.Errorf("without the right the GPU is in %q", got)
		}
		l.Kernel.Remove(l.gone)
		l.pass(5)
		if got := l.places(goneGPU); got != "worker-1 withdrawn" {
			t.Errorf("a GPU that is gone is in %q", got)
		}
		l.err = nil
		l.former()
		l.pass(60)
		if got := l.places(keptGPU) + l.places(goneGPU); got != "worker-1/kata-vfio.dev" {
			t.Errorf("with the right they are in %q", got)
		}
	})
}

// TestRenamedDevicesAreHealthy: nothing is wrong with a device whose pool gets another name.
func TestRenamedDevicesAreHealthy(t *testing.T) {
	l := newLeaving(t)
	l.former()
	l.Publish(&l.Recorder)
	if got := l.places(keptGPU); got != "worker-1 withdrawn" {
		t.Fatalf("the GPU is in %q", got)
	}
	ctx, stop := context.WithCancel(t.Context())
	reports := make(chan kubeletplugin.DeviceHealthReport, 1)
	ended := make(chan error, 1)
	go func() { ended <- l.Health.Stream(ctx, reports) }()
	for _, d := range (<-reports).Devices {
		if d.Health != kubeletplugin.HealthStatusHealthy {
			t.Errorf("%+v", d)
		}
	}
	stop()
	<-ended
}

// TestOneDeviceInTwoAllocations: two schedulers, or one that acts on old slices, allocate one device by both names of its pool. The first
// pod gets it and the second is refused, whichever comes first, also over a restart of the plugin.
func TestOneDeviceInTwoAllocations(t *testing.T) {
	former := fromFormer(plugintest.Allocated("uid-former", keptGPU))
	current := plugintest.Allocated("uid-current", keptGPU)
	for name, test := range map[string]struct{ first, second *resourceapi.ResourceClaim }{
		"the former name first":  {former, current},
		"the current name first": {current, former},
	} {
		t.Run(name, func(t *testing.T) {
			n := plugintest.New(t)
			n.Kernel.AddGPU(0x3b)
			if err := n.PrepareClaim(test.first); err != nil {
				t.Fatal(err)
			}
			if err := n.PrepareClaim(test.second); err == nil || !strings.Contains(err.Error(), string(test.first.UID)) {
				t.Errorf("the second claim: %v", err)
			}
			n.Reopen(func(*prepare.Config) {})
			if err := n.PrepareClaim(test.second); err == nil {
				t.Error("the second claim got the device after a restart")
			}
			if err := n.PrepareClaim(test.first); err != nil {
				t.Errorf("the first claim again: %v", err)
			}
			if _, err := n.Claims.Unprepare(t.Context(), string(test.first.UID)); err != nil {
				t.Fatal(err)
			}
			if err := n.PrepareClaim(test.second); err != nil {
				t.Errorf("the second claim when the device is free: %v", err)
			}
		})
	}
}
