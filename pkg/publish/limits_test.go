package publish_test

import (
	"fmt"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/publish"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// checker applies the rules by which the API server takes or refuses slices
// (pkg/apis/resource/validation in Kubernetes, which is not a library).
type checker struct {
	t    *testing.T
	pool string
	// sets are the pool's counter sets.
	sets map[string]resourceapi.CounterSet
}

func checkPools(t *testing.T, pools map[string]publish.Pool) {
	t.Helper()
	for name, p := range pools {
		c := checker{t, name, map[string]resourceapi.CounterSet{}}
		for part := range strings.SplitSeq(name, "/") {
			c.ok(validation.IsDNS1123Subdomain(part), "pool name")
		}
		c.check(len(name) <= resourceapi.PoolNameMaxLength, "pool name of %d bytes", len(name))
		c.counterSets(p)
		seen := map[string]bool{}
		for _, s := range p.Slices {
			c.check(s.Devices == nil || s.SharedCounters == nil, "a slice with devices and counters")
			c.check(len(s.Devices) <= resourceapi.ResourceSliceMaxDevicesWithAdvancedFeatures, "%d devices in a slice", len(s.Devices))
			for _, d := range s.Devices {
				c.check(!seen[d.Name], "device %s twice", d.Name)
				seen[d.Name] = true
				c.device(d)
			}
		}
	}
}

func (c *checker) check(ok bool, format string, args ...any) {
	c.t.Helper()
	if !ok {
		c.t.Errorf("pool %s: %s", c.pool, fmt.Sprintf(format, args...))
	}
}

func (c *checker) ok(complaints []string, what string) {
	c.t.Helper()
	c.check(len(complaints) == 0, "%s: %v", what, complaints)
}

func (c *checker) counterSets(p publish.Pool) {
	for _, s := range p.Slices {
		c.check(len(s.SharedCounters) <= resourceapi.ResourceSliceMaxCounterSets, "%d counter sets in a slice", len(s.SharedCounters))
		for _, set := range s.SharedCounters {
			_, twice := c.sets[set.Name]
			c.check(!twice, "counter set %s twice", set.Name)
			c.sets[set.Name] = set
			c.ok(validation.IsDNS1123Label(set.Name), "counter set")
			c.check(len(set.Counters) > 0 && len(set.Counters) <= resourceapi.ResourceSliceMaxCountersPerCounterSet, "%d counters", len(set.Counters))
			for name := range set.Counters {
				c.ok(validation.IsDNS1123Label(name), "counter")
			}
		}
	}
}

func (c *checker) device(d resourceapi.Device) {
	c.ok(validation.IsDNS1123Label(d.Name), "device")
	c.check(len(d.Attributes)+len(d.Capacity) <= resourceapi.ResourceSliceMaxAttributesAndCapacitiesPerDevice,
		"%s has %d attributes and capacities", d.Name, len(d.Attributes)+len(d.Capacity))
	for name, a := range d.Attributes {
		c.qualified(name)
		c.check(a.StringValue == nil || *a.StringValue != "" && len(*a.StringValue) <= resourceapi.DeviceAttributeMaxValueLength, "%s.%s", d.Name, name)
		c.check(a.VersionValue == nil || len(*a.VersionValue) <= resourceapi.DeviceAttributeMaxValueLength, "%s.%s", d.Name, name)
		c.check((a.StringValue != nil) != (a.IntValue != nil) != (a.BoolValue != nil) != (a.VersionValue != nil), "%s.%s is not one value", d.Name, name)
	}
	for name, capacity := range d.Capacity {
		c.qualified(name)
		c.check(capacity.Value.Sign() > 0, "%s.%s is %s", d.Name, name, &capacity.Value)
	}
	c.taints(d)
	c.consumption(d)
}

func (c *checker) qualified(name resourceapi.QualifiedName) {
	domain, id, ok := strings.Cut(string(name), "/")
	if !ok {
		domain, id = v1alpha1.DriverName, string(name)
	}
	c.ok(validation.IsDNS1123Subdomain(domain), "attribute domain")
	c.ok(validation.IsCIdentifier(id), "attribute")
	c.check(len(id) <= resourceapi.DeviceMaxIDLength && len(domain) <= resourceapi.DeviceMaxDomainLength, "attribute name %s", name)
}

func (c *checker) taints(d resourceapi.Device) {
	c.check(len(d.Taints) <= resourceapi.DeviceTaintsMaxLength, "%s has %d taints", d.Name, len(d.Taints))
	seen := map[string]bool{}
	for _, taint := range d.Taints {
		c.ok(validation.IsQualifiedName(taint.Key), "taint key")
		c.ok(validation.IsValidLabelValue(taint.Value), "taint value")
		c.check(!seen[taint.Key], "%s has taint %s twice", d.Name, taint.Key)
		seen[taint.Key] = true
	}
}

func (c *checker) consumption(d resourceapi.Device) {
	c.check(len(d.ConsumesCounters) <= resourceapi.ResourceSliceMaxDeviceCounterConsumptionsPerDevice, "%s consumes of %d sets", d.Name, len(d.ConsumesCounters))
	seen := map[string]bool{}
	for _, use := range d.ConsumesCounters {
		c.check(!seen[use.CounterSet], "%s consumes of %s twice", d.Name, use.CounterSet)
		seen[use.CounterSet] = true
		for name, counter := range use.Counters {
			total, ok := c.sets[use.CounterSet].Counters[name]
			c.check(ok, "%s consumes of %s.%s, which is not there", d.Name, use.CounterSet, name)
			c.check(counter.Value.Cmp(total.Value) <= 0, "%s consumes more of %s.%s than there is", d.Name, use.CounterSet, name)
		}
	}
}

// worst returns a function with everything as long as it gets.
func worst(t testing.TB) device.Function {
	f := hopper(t, "0000:3b:00.0", 1<<30)
	f.Address = pci.Address{Domain: 1<<32 - 1, Bus: 0xff, Device: 0x1f, Function: 7}
	f.Class = nic
	f.VF = &device.VF{PF: pci.Address{Domain: 1<<32 - 1, Bus: 0xff}, Index: 65535}
	f.Root = "pciffffffff:ff"
	f.Driver = strings.Repeat("d", 100)
	f.Model = strings.Repeat("é", 40)
	f.Children.RDMA = []string{"mlx5_0"}
	f.BARs = nil
	for i := range 6 {
		f.BARs = append(f.BARs, device.BAR{Index: i, Size: 1 << (40 + i)})
	}
	return f
}

func TestLimits(t *testing.T) {
	nodes := map[string]func() *publish.Node{
		"mixed": func() *publish.Node { return mixed(t) },
		"4,096": func() *publish.Node { return big(t) },
		"256 VFs of one PF in one group": func() *publish.Node {
			functions := pfWith(t, "0000:5e:00.0", 256, 128, 1)
			for i := range functions {
				functions[i].Group = new(1)
			}
			return nodeOf(functions...)
		},
		"many units in one pool": func() *publish.Node {
			var functions []device.Function
			for i := range 40 {
				functions = append(functions, hopper(t, fmt.Sprintf("0000:%02x:00.0", i), 2*i), sound(t, fmt.Sprintf("0000:%02x:00.1", i), 2*i+1))
			}
			return nodeOf(functions...)
		},
		"as long as it gets": func() *publish.Node {
			f := worst(t)
			n := nodeOf(f)
			choose(n, &v1alpha1.NodeConfig{Devices: []v1alpha1.DeviceRule{}})
			blemish(n, f.Address, rule.NoInterruptRemapping, rule.Critical)
			refuse(n, f.Address, rule.Quarantined, rule.ConfigSpaceDead, rule.LinkLost, rule.FatalErrors, rule.GroupMateNotSelected)
			n.Allocated = []publish.Allocated{{Pool: "worker-1/kata-vfio.dev/pf-ffffffff-ff-00-0", Name: "vf-ffffffff-ff-1f-7"}}
			n.Name = strings.Repeat("n", 63)
			n.Allocated[0].Pool = n.Name + "/pf-ffffffff-ff-00-0"
			return n
		},
	}
	for name, build := range nodes {
		t.Run(name, func(t *testing.T) {
			pools := publish.Pools(build())
			checkPools(t, pools)
			total := 0
			for _, p := range pools {
				total += len(names(p))
				wantVocabulary(t, p)
			}
			if total == 0 {
				t.Error("nothing is published, so nothing was checked")
			}
		})
	}
}

// wantVocabulary checks that the chart's policy for slices takes what is published.
func wantVocabulary(t *testing.T, p publish.Pool) {
	t.Helper()
	for _, s := range p.Slices {
		for i := range s.Devices {
			if misfits := publish.Misfits(&s.Devices[i]); len(misfits) > 0 {
				t.Errorf("%s has attributes %q, want none that Attributes and Capacities lack", s.Devices[i].Name, misfits)
			}
		}
	}
}

func TestModelIsCutBetweenCharacters(t *testing.T) {
	pools := publish.Pools(nodeOf(worst(t)))
	d := pools["worker-1/kata-vfio.dev/pf-ffffffff-ff-00-0"].Slices[0].Devices[0]
	if got := *d.Attributes[publish.AttrModel].StringValue; got != strings.Repeat("é", 32) {
		t.Errorf("model is %q, want 32 characters that are whole", got)
	}
}

func TestLinkSpeed(t *testing.T) {
	for text, want := range map[string]int64{
		"2.5 GT/s PCIe": 2500, "16.0 GT/s PCIe": 16000, "64.0 GT/s PCIe": 64000, "Unknown": 0, "": 0, "fast GT/s": 0, "-1 GT/s": 0,
	} {
		f := hopper(t, "0000:3b:00.0", 1)
		f.Link = &device.Link{MaxSpeed: text}
		a := publish.Pools(nodeOf(f))["worker-1/kata-vfio.dev"].Slices[0].Devices[0].Attributes[publish.AttrLinkSpeed]
		if a.IntValue == nil && want != 0 || a.IntValue != nil && *a.IntValue != want {
			t.Errorf("%q: got %v, want %d", text, a.IntValue, want)
		}
	}
}

// A VF's link is its PF's: its own registers say nothing of it.
func TestVFHasItsPFsLinkSpeed(t *testing.T) {
	functions := pfWith(t, "0000:5e:00.0", 7, 2, 10)
	functions[0].Link = &device.Link{MaxSpeed: "16.0 GT/s PCIe", MaxWidth: 16, Speed: "16.0 GT/s PCIe", Width: 16}
	d := deviceNamed(publish.Pools(nodeOf(functions...)), "vf-0000-5e-10-1")
	if speed := d.Attributes[publish.AttrLinkSpeed].IntValue; speed == nil || *speed != 16000 {
		t.Errorf("linkSpeed is %v, want 16000", speed)
	}
	if len(d.Taints) > 0 {
		t.Errorf("taints are %v, want none", d.Taints)
	}
}
