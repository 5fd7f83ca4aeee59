package fleet_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kata-vfio/kata-vfio/pkg/audit/fleet"
	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
)

const (
	driver = "kata-vfio.dev"
	gpu    = "gpu-0000-3b-00-0"
	pair   = gpu + "-vf-0000-3e-00-2"
)

// slice is one slice of a pool of node n1, of its first generation.
func slice(pool string, devices ...resourceapi.Device) resourceapi.ResourceSlice {
	return resourceapi.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: pool},
		Spec: resourceapi.ResourceSliceSpec{
			Driver: driver, NodeName: new("n1"), Pool: resourceapi.ResourcePool{Name: pool, Generation: 1, ResourceSliceCount: 1}, Devices: devices,
		},
	}
}

// uses is a device that takes so much of a counter.
func uses(name, set string, amount int64) resourceapi.Device {
	return resourceapi.Device{Name: name, ConsumesCounters: []resourceapi.DeviceCounterConsumption{{CounterSet: set, Counters: counter(amount)}}}
}

func counter(n int64) map[string]resourceapi.Counter {
	return map[string]resourceapi.Counter{"use": {Value: *resource.NewQuantity(n, resource.DecimalSI)}}
}

// shares adds a set of counters to a slice.
func shares(s resourceapi.ResourceSlice, set string, amount int64) resourceapi.ResourceSlice {
	s.Spec.SharedCounters = append(s.Spec.SharedCounters, resourceapi.CounterSet{Name: set, Counters: counter(amount)})
	return s
}

func tainted(d resourceapi.Device, taints ...resourceapi.DeviceTaint) resourceapi.Device {
	d.Taints = taints
	return d
}

func taint(key, value string) resourceapi.DeviceTaint {
	return resourceapi.DeviceTaint{Key: key, Value: value, Effect: resourceapi.DeviceTaintEffectNoSchedule}
}

// holds is a claim t1/c with devices of a pool.
func holds(pool string, devices ...string) resourceapi.ResourceClaim {
	c := resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "t1", Name: "c", UID: "uid"}}
	c.Status.Allocation = &resourceapi.AllocationResult{}
	for _, name := range devices {
		c.Status.Allocation.Devices.Results = append(c.Status.Allocation.Devices.Results,
			resourceapi.DeviceRequestAllocationResult{Driver: driver, Pool: pool, Device: name})
	}
	return c
}

func claims(list ...resourceapi.ResourceClaim) []resourceapi.ResourceClaim { return list }

// TestStateOfADevice: who can have it, and why not.
func TestStateOfADevice(t *testing.T) {
	adminAccess := holds("n1", gpu)
	adminAccess.Status.Allocation.Devices.Results[0].AdminAccess = new(true)
	otherDriver := holds("n1", gpu)
	otherDriver.Status.Allocation.Devices.Results[0].Driver = "other.example.com"
	informs := taint(driver+"/note", "")
	informs.Effect = resourceapi.DeviceTaintEffectNone
	one := func(d resourceapi.Device) []resourceapi.ResourceSlice {
		return []resourceapi.ResourceSlice{slice("n1", d)}
	}
	plain := resourceapi.Device{Name: gpu}
	older := slice("n1", resourceapi.Device{Name: "gpu-0000-01-00-0"})
	older.Spec.Pool.Generation = 0
	foreign := slice("n1", resourceapi.Device{Name: "x"})
	foreign.Spec.Driver = "other.example.com"
	family := shares(slice("n1/pf", uses("pf-0000-5e-00-0", "pf", 8), uses("vf-0000-5e-00-2", "pf", 1), uses("vf-0000-5e-00-3", "pf", 1)), "pf", 8)
	unit := shares(slice("n1", uses(gpu, "unit", 1), uses(pair, "unit", 1)), "unit", 1)
	for name, tt := range map[string]struct {
		state listed
		want  map[string]string
	}{
		"nobody has it":                         {listed{Slices: one(plain)}, map[string]string{gpu: "free"}},
		"a claim has it":                        {listed{Slices: one(plain), Claims: claims(holds("n1", gpu))}, map[string]string{gpu: "claimed t1/c"}},
		"a claim has its namesake":              {listed{Slices: one(plain), Claims: claims(holds("n2", gpu))}, map[string]string{gpu: "free"}},
		"another driver's claim":                {listed{Slices: one(plain), Claims: claims(otherDriver)}, map[string]string{gpu: "free"}},
		"somebody looks at it":                  {listed{Slices: one(plain), Claims: claims(adminAccess)}, map[string]string{gpu: "free"}},
		"claims are not seen":                   {listed{Slices: one(plain), Missing: map[fleet.Kind]string{fleet.Claims: "no"}}, map[string]string{gpu: "unknown"}},
		"a namespace's claims are seen":         {listed{Slices: one(plain), Namespace: "t1"}, map[string]string{gpu: "unknown"}},
		"it is tainted":                         {listed{Slices: one(tainted(plain, taint(driver+"/audit", "IOM-003"), taint("example.com/x", "y")))}, map[string]string{gpu: "tainted: audit,example.com/x"}},
		"it is tainted, claims not seen":        {listed{Slices: one(tainted(plain, taint(driver+"/dead", ""))), Namespace: "t1"}, map[string]string{gpu: "tainted: dead"}},
		"a taint that only informs":             {listed{Slices: one(tainted(plain, informs))}, map[string]string{gpu: "free"}},
		"it is quarantined":                     {listed{Slices: one(tainted(plain, taint(driver+"/quarantined", "")))}, map[string]string{gpu: "quarantined"}},
		"it waits for its stage":                {listed{Slices: one(tainted(plain, taint(driver+"/sanitizing", "memory")))}, map[string]string{gpu: "sanitizing"}},
		"it waits, claims not seen":             {listed{Slices: one(tainted(plain, taint(driver+"/sanitizing", "memory"))), Namespace: "t1"}, map[string]string{gpu: "sanitizing"}},
		"it waits, and is tainted":              {listed{Slices: one(tainted(plain, taint(driver+"/sanitizing", "memory"), taint(driver+"/dead", "")))}, map[string]string{gpu: "tainted: dead"}},
		"it waits, and is quarantined":          {listed{Slices: one(tainted(plain, taint(driver+"/sanitizing", "memory"), taint(driver+"/quarantined", "")))}, map[string]string{gpu: "quarantined"}},
		"it will wait after its tenant":         {listed{Slices: one(tainted(plain, taint(driver+"/sanitizing", "memory"))), Claims: claims(holds("n1", gpu))}, map[string]string{gpu: "claimed t1/c"}},
		"its domain is another's":               {listed{Slices: one(tainted(plain, taint(driver+"/tenant", "0123456789abcdef")))}, map[string]string{gpu: "kept for tenant 0123456789abcdef"}},
		"its domain is another's, not seen":     {listed{Slices: one(tainted(plain, taint(driver+"/tenant", "0123456789abcdef"))), Namespace: "t1"}, map[string]string{gpu: "kept for tenant 0123456789abcdef"}},
		"its domain has several tenants":        {listed{Slices: one(tainted(plain, taint(driver+"/tenant", "several")))}, map[string]string{gpu: "kept: its domain has several tenants"}},
		"its domain has an unknown tenant":      {listed{Slices: one(tainted(plain, taint(driver+"/tenant", "unknown")))}, map[string]string{gpu: "kept: its domain has an unknown tenant"}},
		"kept, and it waits for its stage":      {listed{Slices: one(tainted(plain, taint(driver+"/tenant", "0123456789abcdef"), taint(driver+"/sanitizing", "memory")))}, map[string]string{gpu: "sanitizing"}},
		"kept, and is tainted":                  {listed{Slices: one(tainted(plain, taint(driver+"/tenant", "0123456789abcdef"), taint(driver+"/dead", "")))}, map[string]string{gpu: "tainted: dead"}},
		"kept, and is quarantined":              {listed{Slices: one(tainted(plain, taint(driver+"/tenant", "0123456789abcdef"), taint(driver+"/quarantined", "")))}, map[string]string{gpu: "quarantined"}},
		"its tenant got it":                     {listed{Slices: one(tainted(plain, taint(driver+"/tenant", "0123456789abcdef"))), Claims: claims(holds("n1", gpu))}, map[string]string{gpu: "claimed t1/c"}},
		"another driver's taint of a tenant":    {listed{Slices: one(tainted(plain, taint("example.com/tenant", "a")))}, map[string]string{gpu: "tainted: example.com/tenant"}},
		"another driver's taint of a like name": {listed{Slices: one(tainted(plain, taint("example.com/sanitizing", "")))}, map[string]string{gpu: "tainted: example.com/sanitizing"}},
		"claimed, tainted since":                {listed{Slices: one(tainted(plain, taint(driver+"/link-lost", ""))), Claims: claims(holds("n1", gpu))}, map[string]string{gpu: "claimed t1/c, tainted: link-lost"}},
		"an older generation is gone":           {listed{Slices: append(one(plain), older)}, map[string]string{gpu: "free"}},
		"an older generation came first":        {listed{Slices: append([]resourceapi.ResourceSlice{older}, one(plain)...)}, map[string]string{gpu: "free"}},
		"another driver's slice":                {listed{Slices: append(one(plain), foreign)}, map[string]string{gpu: "free"}},
		"its VF is claimed":                     {listed{Slices: []resourceapi.ResourceSlice{family}, Claims: claims(holds("n1/pf", "vf-0000-5e-00-2"))}, map[string]string{"pf-0000-5e-00-0": "withheld: vf-0000-5e-00-2 is claimed", "vf-0000-5e-00-2": "claimed t1/c", "vf-0000-5e-00-3": "free"}},
		"its VFs are claimed":                   {listed{Slices: []resourceapi.ResourceSlice{family}, Claims: claims(holds("n1/pf", "vf-0000-5e-00-2", "vf-0000-5e-00-3"))}, map[string]string{"pf-0000-5e-00-0": "withheld: vf-0000-5e-00-2 is claimed, and more", "vf-0000-5e-00-2": "claimed t1/c", "vf-0000-5e-00-3": "claimed t1/c"}},
		"its PF is claimed":                     {listed{Slices: []resourceapi.ResourceSlice{family}, Claims: claims(holds("n1/pf", "pf-0000-5e-00-0"))}, map[string]string{"pf-0000-5e-00-0": "claimed t1/c", "vf-0000-5e-00-2": "withheld: pf-0000-5e-00-0 is claimed", "vf-0000-5e-00-3": "withheld: pf-0000-5e-00-0 is claimed"}},
		"its GPU is claimed alone":              {listed{Slices: []resourceapi.ResourceSlice{unit}, Claims: claims(holds("n1", gpu))}, map[string]string{gpu: "claimed t1/c", pair: "withheld: " + gpu + " is claimed"}},
		"its PF has one VF left": {listed{
			Slices: []resourceapi.ResourceSlice{shares(slice("n1/pf", uses("vf-0000-5e-00-2", "pf", 1), uses("vf-0000-5e-00-3", "pf", 1)), "pf", 2)},
			Claims: claims(holds("n1/pf", "vf-0000-5e-00-2")),
		}, map[string]string{"vf-0000-5e-00-2": "claimed t1/c", "vf-0000-5e-00-3": "free"}},
		"a counter that nobody has set up": {listed{Slices: one(uses(gpu, "none", 1))}, map[string]string{gpu: "free"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := map[string]string{}
			for _, d := range tt.state.state().Devices() {
				got[d.Name] = d.State()
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("states (-want +got):\n%s", diff)
			}
		})
	}
}

// TestStageIsNoFaultOfADevice: neither its health nor its mark shows one while it waits, is kept for a tenant, or while its tenant
// has it.
func TestStageIsNoFaultOfADevice(t *testing.T) {
	waits := tainted(resourceapi.Device{Name: gpu}, taint(driver+"/sanitizing", "memory"))
	kept := tainted(resourceapi.Device{Name: gpu}, taint(driver+"/tenant", "0123456789abcdef"))
	for name, tt := range map[string]struct {
		device resourceapi.Device
		claims []resourceapi.ResourceClaim
		mark   string
		health int
	}{
		"it waits":       {waits, nil, "◌ " + gpu + "  sanitizing", 0},
		"its tenant":     {waits, claims(holds("n1", gpu)), "● " + gpu + "  claimed", 0},
		"it is kept":     {kept, nil, "◌ " + gpu + "  kept for tenant 0123456789abcdef", 0},
		"its owner":      {kept, claims(holds("n1", gpu)), "● " + gpu + "  claimed", 0},
		"kept and dead":  {tainted(kept, taint(driver+"/dead", "")), nil, "✗ " + gpu, 1},
		"it is dead":     {tainted(waits, taint(driver+"/dead", "")), nil, "✗ " + gpu, 1},
		"it did not end": {tainted(waits, taint(driver+"/quarantined", "")), nil, "✗ " + gpu + "  quarantined", 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := listed{Slices: []resourceapi.ResourceSlice{slice("n1", tt.device)}, Claims: tt.claims}
			devices := s.state().Devices()
			if got := devices[0].Health; len(got) != tt.health {
				t.Errorf("health %q, want %d words", got, tt.health)
			}
			var tree strings.Builder
			if err := output.WriteTree(&tree, []output.Branch{fleet.Tree("n1", devices)}, 0, false); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(tree.String(), tt.mark) {
				t.Errorf("the tree lacks %q:\n%s", tt.mark, tree.String())
			}
		})
	}
}

// TestIsolationOfADevice in words.
func TestIsolationOfADevice(t *testing.T) {
	with := func(isolated *bool, taints ...resourceapi.DeviceTaint) resourceapi.Device {
		d := tainted(resourceapi.Device{Name: gpu, Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{}}, taints...)
		if isolated != nil {
			d.Attributes["isolated"] = resourceapi.DeviceAttribute{BoolValue: isolated}
		}
		return d
	}
	for want, d := range map[string]resourceapi.Device{
		"yes": with(new(true)), "no": with(new(false)), "unknown": with(nil), "no: GroupNotViable": with(new(false), taint(driver+"/not-isolated", "GroupNotViable")),
	} {
		s := listed{Slices: []resourceapi.ResourceSlice{slice("n1", d)}}
		if got := s.state().Devices()[0].Isolation(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestDevicesAreInOrder of nodes and of addresses as numbers, also those of large domains.
func TestDevicesAreInOrder(t *testing.T) {
	other := slice("n0", resourceapi.Device{Name: "gpu-0000-ff-00-0"})
	other.Spec.NodeName = new("n0")
	s := listed{Slices: []resourceapi.ResourceSlice{
		slice("n1", resourceapi.Device{Name: "what"}, resourceapi.Device{Name: "nvme-10000-01-00-0"}, resourceapi.Device{Name: "gpu-0000-3b-00-0"}),
		slice("n1/pf", resourceapi.Device{Name: "vf-0000-03-00-1"}), other,
	}}
	var got []string
	for _, d := range s.state().Devices() {
		got = append(got, d.Name)
	}
	if diff := cmp.Diff([]string{"gpu-0000-ff-00-0", "vf-0000-03-00-1", "gpu-0000-3b-00-0", "nvme-10000-01-00-0", "what"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"n0", "n1"}, s.state().Nodes()); diff != "" {
		t.Errorf("nodes (-want +got):\n%s", diff)
	}
}

// TestPoolThatIsBeingWrittenIsTold: its devices may be missing.
func TestPoolThatIsBeingWrittenIsTold(t *testing.T) {
	half := slice("n1/pf", resourceapi.Device{Name: "vf-0000-03-00-1"})
	half.Spec.Pool.ResourceSliceCount = 2
	s := listed{Slices: []resourceapi.ResourceSlice{slice("n1"), half}}
	if diff := cmp.Diff([]string{"n1/pf"}, s.state().Unfinished()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Nodes with few VF attributes say a VF's PF by its pool only.
func TestPFOfVFByItsPool(t *testing.T) {
	typed := func(name, kind string) resourceapi.Device {
		return resourceapi.Device{Name: name, Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{"type": {StringValue: &kind}}}
	}
	s := listed{Slices: []resourceapi.ResourceSlice{slice("n1/pf-0000-5e-00-0", typed("pf-0000-5e-00-0", "pf"), typed("vf-0000-5e-10-0", "vf"))}}
	got := map[string]string{}
	for _, d := range s.state().Devices() {
		got[d.Name] = d.PF
	}
	if diff := cmp.Diff(map[string]string{"pf-0000-5e-00-0": "", "vf-0000-5e-10-0": "0000:5e:00.0"}, got); diff != "" {
		t.Errorf("PFs by device (-want +got):\n%s", diff)
	}
}

// TestRuleWithoutSelectorTaintsNoDevice: to the scheduler, only an empty selector selects all devices.
func TestRuleWithoutSelectorTaintsNoDevice(t *testing.T) {
	rule := func(of *resourceapi.DeviceTaintSelector) resourceapi.DeviceTaintRule {
		return resourceapi.DeviceTaintRule{Spec: resourceapi.DeviceTaintRuleSpec{DeviceSelector: of, Taint: taint("kata-vfio.dev/drain", "")}}
	}
	for _, c := range []struct {
		name string
		of   *resourceapi.DeviceTaintSelector
		want fleet.Use
	}{
		{"none", nil, fleet.Free},
		{"empty", &resourceapi.DeviceTaintSelector{}, fleet.Tainted},
		{"of the device", &resourceapi.DeviceTaintSelector{Driver: new(driver), Pool: new("n1"), Device: new(gpu)}, fleet.Tainted},
		{"of another pool", &resourceapi.DeviceTaintSelector{Pool: new("n2")}, fleet.Free},
	} {
		s := (&listed{Slices: []resourceapi.ResourceSlice{slice("n1", resourceapi.Device{Name: gpu})}}).state()
		s.TaintRules = []resourceapi.DeviceTaintRule{rule(c.of)}
		if got := s.Devices()[0].Use; got != c.want {
			t.Errorf("selector %s: the device is %s, want %s", c.name, got, c.want)
		}
	}
}
