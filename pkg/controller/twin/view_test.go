package twin_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/cluster"
	"github.com/kata-vfio/kata-vfio/pkg/controller/twin"
	"github.com/kata-vfio/kata-vfio/pkg/publish"
)

const other = "gpu.example.com"

// apiServer has the objects of a view.
type apiServer struct {
	Slices []*resourceapi.ResourceSlice
	Claims []*resourceapi.ResourceClaim
	Rules  []*resourceapi.DeviceTaintRule
}

// view is that of a controller that shares GPUs with the driver other.
func (a *apiServer) view() *twin.View {
	v := &twin.View{
		Drivers: []string{other}, Cluster: &cluster.Cluster{}, Rules: a.Rules,
		Since: func(*resourceapi.DeviceTaintRule) twin.Millis { return 11 },
	}
	for _, s := range a.Slices {
		v.Cluster.Add(s)
	}
	for _, c := range a.Claims {
		v.Cluster.Add(c)
	}
	return v
}

// device is "name address" with attributes "key=value" and taints "!key".
func device(words string) resourceapi.Device {
	f := strings.Fields(words)
	d := resourceapi.Device{Name: f[0], Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{}}
	if f[1] != "-" {
		d.Attributes["resource.kubernetes.io/pciBusID"] = resourceapi.DeviceAttribute{StringValue: &f[1]}
	}
	for _, w := range f[2:] {
		if key, ok := strings.CutPrefix(w, "!"); ok {
			d.Taints = append(d.Taints, resourceapi.DeviceTaint{Key: key})
			continue
		}
		key, value, _ := strings.Cut(w, "=")
		d.Attributes[resourceapi.QualifiedName(key)] = resourceapi.DeviceAttribute{StringValue: &value}
	}
	return d
}

// slice is one of a node's, of a generation.
func slice(driver, node, pool string, generation int64, devices ...string) *resourceapi.ResourceSlice {
	s := &resourceapi.ResourceSlice{Spec: resourceapi.ResourceSliceSpec{Driver: driver, NodeName: &node, Pool: resourceapi.ResourcePool{Name: pool, Generation: generation}}}
	for _, d := range devices {
		s.Spec.Devices = append(s.Spec.Devices, device(d))
	}
	return s
}

// allocated has devices "driver pool name" and is bound to a node, if any.
func allocated(name, node string, devices ...string) *resourceapi.ResourceClaim {
	at := metav1.NewTime(time.UnixMilli(5_000))
	c := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "team-a", UID: types.UID("uid-" + name), ResourceVersion: "7"}}
	c.Status.Allocation = &resourceapi.AllocationResult{AllocationTimestamp: &at}
	if node != "" {
		c.Status.Allocation.NodeSelector = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{node}}},
		}}}
	}
	for _, d := range devices {
		f := strings.Fields(d)
		c.Status.Allocation.Devices.Results = append(c.Status.Allocation.Devices.Results, resourceapi.DeviceRequestAllocationResult{Driver: f[0], Pool: f[1], Device: f[2]})
	}
	return c
}

// admin gives a claim adminAccess to its devices.
func admin(c *resourceapi.ResourceClaim) *resourceapi.ResourceClaim {
	for i := range c.Status.Allocation.Devices.Results {
		c.Status.Allocation.Devices.Results[i].AdminAccess = new(true)
	}
	return c
}

// written is a rule as the controller writes it for a device, with another device in its selector if one is named.
func written(target cluster.ID, pci string, change func(*resourceapi.DeviceTaintRule)) *resourceapi.DeviceTaintRule {
	r := &resourceapi.DeviceTaintRule{
		ObjectMeta: metav1.ObjectMeta{
			Name: v1alpha1.TwinRuleName(target.Driver, target.Pool, target.Name), UID: "uid-rule", ResourceVersion: "9",
			Annotations: map[string]string{v1alpha1.AnnotationTwinPCI: pci, v1alpha1.AnnotationTwinOf: "kata-vfio.dev/a/kata-vfio.dev/shared/x", v1alpha1.AnnotationTwinClaim: "mark"},
		},
		Spec: resourceapi.DeviceTaintRuleSpec{
			DeviceSelector: &resourceapi.DeviceTaintSelector{Driver: &target.Driver, Pool: &target.Pool, Device: &target.Name},
			Taint:          resourceapi.DeviceTaint{Key: v1alpha1.TaintTwin, Value: twin.Side(target), Effect: resourceapi.DeviceTaintEffectNoSchedule},
		},
	}
	if change != nil {
		change(r)
	}
	return r
}

const (
	oursA    = "gpu-0000-3b-00-0 0000:3b:00.0 sharedWith=" + other + " driver=nvidia"
	oursA2   = "gpu-0000-62-00-0 0000:62:00.0 sharedWith=" + other + " driver=vfio-pci"
	sharedVM = "kata-vfio.dev a/kata-vfio.dev/shared gpu-0000-3b-00-0"
)

// summary is a GPU on one line.
func summary(g *twin.GPU) string {
	ours := "-"
	if g.Ours != nil {
		ours = fmt.Sprintf("%s %s healthy=%v", g.Ours.Device, g.Ours.KernelDriver, g.Ours.Healthy)
	}
	s := fmt.Sprintf("%s with %s: %s; twins %v", g.PCI, g.SharedWith, ours, g.Twins)
	for _, c := range g.OurClaims {
		s += fmt.Sprintf("; vm %s at %d %v", c.Name, c.AllocatedAt, c.Conditions)
	}
	for _, c := range g.TwinClaims {
		s += "; container " + c.Name
	}
	for _, r := range g.Rules {
		s += fmt.Sprintf("; rule %s damaged=%v since %d", r.Target, r.Damaged, r.Since)
	}
	return s
}

func TestGPUs(t *testing.T) {
	ours := cluster.ID{Driver: v1alpha1.DriverName, Pool: "a/kata-vfio.dev/shared", Name: "gpu-0000-3b-00-0"}
	theirs := cluster.ID{Driver: other, Pool: "a", Name: "gpu-0"}
	gone := cluster.ID{Driver: other, Pool: "a", Name: "mig-7"}
	both := []*resourceapi.ResourceSlice{
		slice("kata-vfio.dev", "a", "a/kata-vfio.dev/shared", 1, oursA, oursA2), slice("kata-vfio.dev", "a", "a", 1, "gpu-0000-90-00-0 0000:90:00.0"),
		slice(other, "a", "a", 1, "gpu-0 0000:3b:00.0", "gpu-1 0000:62:00.0", "switch -"), slice(other, "b", "b", 1, "gpu-0 0000:3b:00.0"),
		slice("third.example.com", "a", "a", 1, "x 0000:3b:00.0"),
	}
	const (
		first  = "a/0000:3b:00.0 with " + other + ": kata-vfio.dev/a/kata-vfio.dev/shared/gpu-0000-3b-00-0 nvidia healthy=true; twins [" + other + "/a/gpu-0]"
		second = "a/0000:62:00.0 with " + other + ": kata-vfio.dev/a/kata-vfio.dev/shared/gpu-0000-62-00-0 vfio-pci healthy=true; twins [" + other + "/a/gpu-1]"
	)
	for name, tt := range map[string]struct {
		slices []*resourceapi.ResourceSlice
		claims []*resourceapi.ResourceClaim
		rules  []*resourceapi.DeviceTaintRule
		want   []string
	}{
		"both drivers publish them": {slices: both, want: []string{first, second}},
		"the other driver has an attribute of its own": {
			slices: []*resourceapi.ResourceSlice{slice("kata-vfio.dev", "a", "a/kata-vfio.dev/shared", 1, oursA), slice(other, "a", "a", 1, "gpu-0 - pciBusID=0000:3b:00.0")},
			want:   []string{first},
		},
		"parts of a GPU": {
			slices: []*resourceapi.ResourceSlice{slice("kata-vfio.dev", "a", "a/kata-vfio.dev/shared", 1, oursA), slice(other, "a", "a", 1, "mig-2 0000:3b:00.0", "mig-1 0000:3b:00.0")},
			want:   []string{strings.Replace(first, "a/gpu-0]", "a/mig-1 "+other+"/a/mig-2]", 1)},
		},
		"a pool that is rewritten": {
			slices: append(both, slice(other, "a", "a", 2, "gpu-1 0000:3b:00.0"), slice("kata-vfio.dev", "a", "a/kata-vfio.dev/shared", 0, strings.Replace(oursA, "nvidia", "old", 1))),
			want:   []string{strings.Replace(first, "a/gpu-0]", "a/gpu-0 "+other+"/a/gpu-1]", 1), strings.Replace(second, other+"/a/gpu-1]", "]", 1)},
		},
		"a pool that gets another name": {
			slices: append(both, slice("kata-vfio.dev", "a", "a/shared", 1, oursA+" !"+publish.TaintWithdrawn, oursA2+" !"+publish.TaintWithdrawn)),
			want:   []string{first, second},
		},
		"a pool with a former name": {
			slices: []*resourceapi.ResourceSlice{slice("kata-vfio.dev", "a", "a/shared", 1, oursA), slice(other, "a", "a", 1, "gpu-0 0000:3b:00.0")},
			want:   []string{strings.Replace(first, "a/kata-vfio.dev/shared", "a/shared", 1)},
		},
		"one that can't serve": {
			slices: []*resourceapi.ResourceSlice{slice("kata-vfio.dev", "a", "a/kata-vfio.dev/shared", 1, oursA+" !"+publish.TaintQuarantined)},
			want:   []string{strings.Replace(strings.Replace(first, "healthy=true", "healthy=false", 1), other+"/a/gpu-0]", "]", 1)},
		},
		"claims of both sides": {
			slices: both, claims: []*resourceapi.ResourceClaim{allocated("c", "a", other+" a gpu-0", other+" a gpu-0"), allocated("v", "a", sharedVM), allocated("x", "a", other+" a switch"), allocated("b", "b", other+" b gpu-0"), allocated("third", "a", "third.example.com a x")},
			want: []string{first + "; vm v at 5000 []; container c", second},
		},
		"a claim of a device that is not published": {
			slices: both, claims: []*resourceapi.ResourceClaim{allocated("c", "a", other+" a mig-7"), allocated("b", "b", other+" b mig-7")},
			want: []string{first + "; container c", second + "; container c"},
		},
		"a claim of a device that is not published, on an unknown node": {
			slices: both, claims: []*resourceapi.ResourceClaim{allocated("c", "", other+" net mig-7")}, want: []string{first + "; container c", second + "; container c"},
		},
		"a monitor, which has nothing to itself": {
			slices: both, claims: []*resourceapi.ResourceClaim{admin(allocated("m", "a", other+" a gpu-0", other+" a mig-7")), admin(allocated("n", "", other+" net mig-7")), admin(allocated("o", "a", sharedVM))},
			want: []string{first, second},
		},
		"a claim that is older than the sharing": {
			slices: both, claims: []*resourceapi.ResourceClaim{allocated("v", "a", "kata-vfio.dev a gpu-0000-3b-00-0")},
			want: []string{first + "; vm v at 5000 [{kata-vfio.dev/TwinReserved true  5000}]", second},
		},
		"a claim of a device of ours that is gone": {
			claims: []*resourceapi.ResourceClaim{allocated("v", "a", sharedVM)}, want: []string{"a/0000:3b:00.0 with " + other + ": -; twins []; vm v at 5000 []"},
		},
		"rules": {
			slices: both, rules: []*resourceapi.DeviceTaintRule{written(theirs, "a/0000:3b:00.0", nil), written(ours, "a/0000:3b:00.0", nil), written(gone, "a/0000:62:00.0", nil)},
			want: []string{
				first + "; rule gpu.example.com/a/gpu-0 damaged=false since 11; rule kata-vfio.dev/a/kata-vfio.dev/shared/gpu-0000-3b-00-0 damaged=false since 11",
				second + "; rule gpu.example.com/a/mig-7 damaged=false since 11",
			},
		},
		"rules that somebody changed": {
			slices: both, rules: []*resourceapi.DeviceTaintRule{
				written(theirs, "a/0000:3b:00.0", func(r *resourceapi.DeviceTaintRule) { r.Spec.DeviceSelector.Device = &ours.Name }),
				written(ours, "", func(r *resourceapi.DeviceTaintRule) { r.Spec.Taint.Effect = resourceapi.DeviceTaintEffectNone }),
				written(gone, "a/0000:62:00.0", func(r *resourceapi.DeviceTaintRule) { r.Spec.DeviceSelector = nil }),
			},
			want: []string{
				first + "; rule gpu.example.com/a/gpu-0 damaged=true since 11; rule kata-vfio.dev/a/kata-vfio.dev/shared/gpu-0000-3b-00-0 damaged=true since 11",
				second + "; rule // damaged=true since 11",
			},
		},
		"a rule alone": {
			rules: []*resourceapi.DeviceTaintRule{written(theirs, "a/0000:3b:00.0", nil)},
			want:  []string{"a/0000:3b:00.0 with " + other + ": -; twins []; rule gpu.example.com/a/gpu-0 damaged=false since 11"},
		},
		"a rule of nothing that is known": {rules: []*resourceapi.DeviceTaintRule{written(theirs, "", nil)}},
	} {
		t.Run(name, func(t *testing.T) {
			c := (&apiServer{Slices: tt.slices, Claims: tt.claims, Rules: tt.rules}).view()
			var got []string
			for _, g := range c.GPUs("a") {
				got = append(got, summary(g))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("the GPUs differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestConditionsAreThoseOfTheDevice(t *testing.T) {
	v := allocated("v", "a", sharedVM, "kata-vfio.dev a/kata-vfio.dev/shared gpu-0000-62-00-0")
	at := metav1.NewTime(time.UnixMilli(6_000))
	v.Status.Devices = []resourceapi.AllocatedDeviceStatus{{Driver: "kata-vfio.dev", Pool: "a/kata-vfio.dev/shared", Device: "gpu-0000-3b-00-0", Conditions: []metav1.Condition{
		{Type: v1alpha1.ConditionTwinReserved, Status: metav1.ConditionTrue, Reason: "TwinFree", LastTransitionTime: at}, {Type: "Ready", Status: metav1.ConditionTrue},
	}}}
	c := (&apiServer{Claims: []*resourceapi.ResourceClaim{v}}).view()
	gpus := c.GPUs("a")
	if len(gpus) != 2 {
		t.Fatalf("there are %d GPUs", len(gpus))
	}
	want := []twin.Condition{{Type: v1alpha1.ConditionTwinReserved, True: true, Reason: "TwinFree", At: 6000}}
	if diff := cmp.Diff(want, gpus[0].OurClaims[0].Conditions); diff != "" {
		t.Errorf("the conditions differ (-want +got):\n%s", diff)
	}
	if got := gpus[1].OurClaims[0].Conditions; got != nil {
		t.Errorf("the other device has the conditions %v", got)
	}
}

func TestNodes(t *testing.T) {
	c := (&apiServer{
		Slices: []*resourceapi.ResourceSlice{slice("kata-vfio.dev", "a", "a/kata-vfio.dev/shared", 1, oursA), slice(other, "z", "z", 1), slice("kata-vfio.dev", "y", "y", 1)},
		Claims: []*resourceapi.ResourceClaim{allocated("v", "b", "kata-vfio.dev b/kata-vfio.dev/shared gpu-0000-3b-00-0"), allocated("c", "z", other+" z gpu-0"), {}},
		Rules:  []*resourceapi.DeviceTaintRule{written(cluster.ID{Driver: other, Pool: "c", Name: "x"}, "c/0000:3b:00.0", nil)},
	}).view()
	if diff := cmp.Diff([]string{"a", "b", "c"}, c.Nodes()); diff != "" {
		t.Errorf("the nodes differ (-want +got):\n%s", diff)
	}
	for name, tt := range map[string]struct {
		claim *resourceapi.ResourceClaim
		nodes []string
		all   bool
	}{
		"ours":                   {allocated("v", "a", sharedVM), []string{"a"}, false},
		"ours, by a former name": {allocated("v", "a", "kata-vfio.dev a/shared gpu-0000-3b-00-0"), []string{"a"}, false},
		"ours, and not shared":   {allocated("v", "a", "kata-vfio.dev a/kata-vfio.dev gpu-0000-3b-00-0"), []string{"a"}, false},
		"of a node":              {allocated("c", "b", other+" x gpu-0"), []string{"b"}, false},
		"of an unknown node":     {allocated("c", "", other+" x gpu-0"), nil, true},
		"of neither driver":      {allocated("c", "b", "third.example.com x gpu-0"), nil, false},
		"of nothing":             {&resourceapi.ResourceClaim{}, nil, false},
		"of a VF, which is ours": {allocated("c", "b", "kata-vfio.dev b/pf-0000-3b-00-0 vf-0000-3b-00-1"), nil, false},
	} {
		if nodes, all := twin.ClaimNodes(cluster.DecodeClaim(tt.claim), []string{other}); !cmp.Equal(nodes, tt.nodes) || all != tt.all {
			t.Errorf("a claim %s is of %q, all %v", name, nodes, all)
		}
	}
}

// TestRulesGoWithTheirNode: neither driver publishes a GPU of a node that was deleted, so that nothing else ends its rules.
func TestRulesGoWithTheirNode(t *testing.T) {
	ours := slice(v1alpha1.DriverName, "n", "n/kata-vfio.dev/shared", 1)
	ours.OwnerReferences = []metav1.OwnerReference{
		{APIVersion: "v1", Kind: "Pod", Name: "n", UID: "uid-pod"}, {APIVersion: "v1", Kind: "Node", Name: "n", UID: "uid-n", Controller: new(true)},
	}
	v := (&apiServer{Slices: []*resourceapi.ResourceSlice{slice(other, "m", "m", 1), ours}}).view()
	if diff := cmp.Diff([]metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "n", UID: "uid-n"}}, v.Owners("n")); diff != "" {
		t.Errorf("owners on n (-want +got):\n%s", diff)
	}
	if got := v.Owners("m"); got != nil {
		t.Errorf("owners on m, whose slice has none: %v", got)
	}
}
