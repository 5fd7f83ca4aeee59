package publish_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/publish"
)

// publishedDomains are what devices say of their domains: "Switch/... waits", by name.
func publishedDomains(n *publish.Node) map[string]string {
	all := map[string]string{}
	for _, pool := range publish.Pools(n) {
		for _, s := range pool.Slices {
			for i := range s.Devices {
				all[s.Devices[i].Name] = saidOfDomains(&s.Devices[i])
			}
		}
	}
	return all
}

func saidOfDomains(d *resourceapi.Device) string {
	var said []string
	if a := d.Attributes[publish.AttrExclusiveDomains].StringValue; a != nil {
		said = append(said, *a)
	}
	return strings.Join(append(append(said, d.BindingConditions...), d.BindingFailureConditions...), " ")
}

// TestExclusiveDomainsArePublished: devices name the domains around them, whichever rule makes these, and have conditions if one of their
// domains is reserved.
func TestExclusiveDomainsArePublished(t *testing.T) {
	const first, second, conditions = "gpu-0000-3b-00-0", "gpu-0000-3c-00-0", " kata-vfio.dev/DomainReserved kata-vfio.dev/DomainTaken"
	of := func(reserve bool, kinds ...v1alpha1.ExclusiveDomain) *v1alpha1.NodeConfig {
		cfg := everything()
		cfg.Devices[0].Name = "others"
		cfg.Devices = append([]v1alpha1.DeviceRule{{
			Match: v1alpha1.DeviceMatch{Addresses: []pci.Address{addr(t, "0000:3b:00.0")}}, Exclusive: kinds, ReserveDomains: reserve,
		}}, cfg.Devices...)
		return cfg
	}
	long := []v1alpha1.ExclusiveDomain{v1alpha1.ExclusiveCard, v1alpha1.ExclusivePF, v1alpha1.ExclusiveRootPort, v1alpha1.ExclusiveNUMA, v1alpha1.ExclusiveFabric}
	for name, tt := range map[string]struct {
		config *v1alpha1.NodeConfig
		want   map[string]string
	}{
		"none":                      {everything(), map[string]string{first: "", second: ""}},
		"the card":                  {of(false, v1alpha1.ExclusiveCard), map[string]string{first: "Card/0000:3b:00.0", second: ""}},
		"the card, reserved":        {of(true, v1alpha1.ExclusiveCard), map[string]string{first: "Card/0000:3b:00.0" + conditions, second: ""}},
		"the node, by another rule": {of(true, v1alpha1.ExclusiveNode), map[string]string{first: "Node" + conditions, second: "Node" + conditions}},
		"a long list":               {of(false, long...), map[string]string{first: "Node", second: "NUMA/1,Fabric/10de"}},
	} {
		n := nodeOf(hopper(t, "0000:3b:00.0", 1), hopper(t, "0000:3c:00.0", 2))
		choose(n, tt.config)
		if diff := cmp.Diff(tt.want, publishedDomains(n)); diff != "" {
			t.Errorf("%s: the domains differ (-want +got):\n%s", name, diff)
		}
	}
}

// TestDomainsOfDevicesThatAreGone: a claim's device that has left the bus is in all domains of the node, since nobody can tell where it is.
func TestDomainsOfDevicesThatAreGone(t *testing.T) {
	n := nodeOf(hopper(t, "0000:3b:00.0", 1))
	cfg := everything()
	cfg.Devices[0].Exclusive = []v1alpha1.ExclusiveDomain{v1alpha1.ExclusiveCard}
	choose(n, cfg)
	n.Allocated = []publish.Allocated{{Pool: device.NodePool("worker-1"), Name: "gpu-0000-3c-00-0"}}
	want := map[string]string{"gpu-0000-3b-00-0": "Card/0000:3b:00.0", "gpu-0000-3c-00-0": "Node"}
	if diff := cmp.Diff(want, publishedDomains(n)); diff != "" {
		t.Errorf("the domains differ (-want +got):\n%s", diff)
	}
}
