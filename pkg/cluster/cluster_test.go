package cluster_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/cluster"
)

const (
	ours   = v1alpha1.DriverName
	theirs = "gpu.example.com"
	gpu    = "gpu-0000-3b-00-0"
)

// listed is a cluster with the objects.
func listed(t *testing.T, objects ...any) *cluster.Cluster {
	t.Helper()
	c := &cluster.Cluster{}
	for _, o := range objects {
		if !c.Add(o) {
			t.Fatalf("got false for a %T, want that the model has it", o)
		}
	}
	return c
}

// slice has devices of a node, of a generation of a pool.
func slice(driver, node, pool string, generation int64, devices ...resourceapi.Device) *resourceapi.ResourceSlice {
	return &resourceapi.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", node, generation)},
		Spec: resourceapi.ResourceSliceSpec{
			Driver: driver, NodeName: &node, Pool: resourceapi.ResourcePool{Name: pool, Generation: generation, ResourceSliceCount: 1}, Devices: devices,
		},
	}
}

// published is a device with a PCI address in an attribute; without one for "".
func published(name, attribute, address string) resourceapi.Device {
	d := resourceapi.Device{Name: name}
	if attribute != "" {
		d.Attributes = map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{resourceapi.QualifiedName(attribute): {StringValue: &address}}
	}
	return d
}

// allocated is a claim that has devices.
func allocated(name string, devices ...cluster.ID) *resourceapi.ResourceClaim {
	c := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "t1", Name: name}}
	c.Status.Allocation = &resourceapi.AllocationResult{}
	for _, d := range devices {
		c.Status.Allocation.Devices.Results = append(c.Status.Allocation.Devices.Results, resourceapi.DeviceRequestAllocationResult{Driver: d.Driver, Pool: d.Pool, Device: d.Name})
	}
	return c
}

// waiting is a claim that waits for a device by a class.
func waiting(class string) *resourceapi.ResourceClaim {
	return &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "t1", Name: "waits"},
		Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{
			Requests: []resourceapi.DeviceRequest{{Name: "r", Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: class}}},
		}},
	}
}

// TestFunctionIsFoundAtItsPlace whichever driver publishes it, and however.
func TestFunctionIsFoundAtItsPlace(t *testing.T) {
	const standard = "resource.kubernetes.io/pciBusID"
	for name, tt := range map[string]struct {
		driver string
		device resourceapi.Device
		want   []string
	}{
		"ours, by the attribute":                    {ours, published("what", standard, "0000:3b:00.0"), []string{"n1/0000:3b:00.0"}},
		"ours, by its name":                         {ours, published("vf-0000-5e-00-2", "", ""), []string{"n1/0000:5e:00.2"}},
		"ours, a pair":                              {ours, published(gpu+"-vf-0000-5e-00-2", standard, "0000:3b:00.0"), []string{"n1/0000:3b:00.0", "n1/0000:5e:00.2"}},
		"ours, a partition":                         {ours, published("gpu-x2-0000-86-87", "", ""), []string{"n1/0000:86:00.0", "n1/0000:87:00.0"}},
		"another driver's, in capital digits":       {theirs, published("gpu-0", standard, "0000:3B:00.0"), []string{"n1/0000:3b:00.0"}},
		"another driver's, by its own attribute":    {theirs, published("gpu-0", "pciAddress", "0000:3b:00.0"), []string{"n1/0000:3b:00.0"}},
		"another driver's, which has no address":    {theirs, published(gpu, "", ""), nil},
		"another driver's, which is not a function": {theirs, published("x", standard, "3b:00.0"), nil},
		"ours, with an address that is none":        {ours, published("what", standard, "\x1b[2J"), nil},
		"ours, whose name and address differ":       {ours, published(gpu, standard, "0000:62:00.0"), []string{"n1/0000:62:00.0"}},
		"another driver's, by its older attribute":  {theirs, published("gpu-0", "pciBusID", "0000:3b:00.0"), []string{"n1/0000:3b:00.0"}},
	} {
		t.Run(name, func(t *testing.T) {
			c := listed(t, slice(tt.driver, "n1", "p", 1, tt.device))
			var got []string
			for _, at := range c.Places() {
				got = append(got, at.String())
				if d := c.At(at); len(d) != 1 || d[0].ID.Name != tt.device.Name {
					t.Errorf("got %v at %s, want %s", d, at, tt.device.Name)
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("places (-want +got):\n%s", diff)
			}
		})
	}
}

// TestDeviceOfNoNodeHasNoPlace: several nodes can reach it.
func TestDeviceOfNoNodeHasNoPlace(t *testing.T) {
	s := slice(theirs, "", "net", 1, published("gpu-0", "pciBusID", "0000:3b:00.0"))
	s.Spec.NodeName = nil
	if got := listed(t, s).Places(); len(got) != 0 {
		t.Errorf("got %v, want no place", got)
	}
}

// TestNewestSliceSaysWhatADeviceIs, in whichever order the API server lists them.
func TestNewestSliceSaysWhatADeviceIs(t *testing.T) {
	older, newer := slice(ours, "n1", "n1", 1, published(gpu, "model", "old"), published("gone", "", "")), slice(ours, "n1", "n1", 2, published(gpu, "model", "new"))
	for _, objects := range [][]any{{older, newer}, {newer, older}} {
		c := listed(t, objects...)
		if got := c.Device(cluster.ID{Driver: ours, Pool: "n1", Name: gpu}).Details.Model; got != "new" {
			t.Errorf("got the model %q, want that of the newer slice", got)
		}
		pools := c.Pools()
		if len(pools) != 1 || len(pools[0].Devices) != 1 {
			t.Fatalf("got %v, want one pool with one device", pools)
		}
		if got := len(c.On("n1")); got != 3 {
			t.Errorf("got %d devices on the node, want all three: claims may have those of the older slice", got)
		}
	}
}

// TestPartitionSaysItsNVLinks, and what a node leaves out is left out of the JSON.
func TestPartitionSaysItsNVLinks(t *testing.T) {
	d := published("gpu-x2-0000-86-87", "fabricVersion", "570.172.08")
	d.Attributes["fabricSize"], d.Attributes["fabricLinks"] = resourceapi.DeviceAttribute{IntValue: new(int64(2))}, resourceapi.DeviceAttribute{IntValue: new(int64(18))}
	c := listed(t, slice(ours, "n1", "n1", 1, d, published(gpu, "type", "gpu")))
	for name, want := range map[string]string{
		"gpu-x2-0000-86-87": `"fabricSize":2,"fabricLinks":18,"fabricVersion":"570.172.08"`,
		gpu:                 `"kind":"gpu"}`,
	} {
		text, err := json.Marshal(c.Device(cluster.ID{Driver: ours, Pool: "n1", Name: name}).Details.Attributes)
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s: %s, %v; want %s in it", name, text, err, want)
		}
	}
}

// TestDeviceClassIsOurs by the rule of the chart's policy tenant-classes.
func TestDeviceClassIsOurs(t *testing.T) {
	for name, tt := range map[string]struct {
		class resourceapi.DeviceClass
		want  bool
	}{
		"by its domain":             {resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpu.kata-vfio.dev"}}, true},
		"by a domain like ours":     {resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpuXkata-vfio.dev"}}, false},
		"by the annotation":         {resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "fast", Annotations: map[string]string{v1alpha1.AnnotationNamespaces: ""}}}, true},
		"by its parameters":         {configured("fast", ours), true},
		"another driver's settings": {configured("fast", theirs), false},
		"by its selectors":          {selecting("fast", `device.driver == "kata-vfio.dev"`), true},
		"another driver's devices":  {selecting("fast", `device.driver == "gpu.example.com"`), false},
		"a class that says nothing": {resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "fast"}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			claim := waiting(tt.class.Name)
			for _, c := range []*cluster.Cluster{listed(t, &tt.class, claim), listed(t, claim, &tt.class)} {
				if got := c.IsOurClass(tt.class.Name); got != tt.want {
					t.Errorf("got %v, want %v", got, tt.want)
				}
				if got := len(c.OurClasses()) == 1; got != tt.want {
					t.Errorf("got %v among the classes of ours, want %v", got, tt.want)
				}
				if got := c.IsOurs(c.Claims()[0]); got != tt.want {
					t.Errorf("got %v for a claim that waits by it, want %v", got, tt.want)
				}
			}
		})
	}
}

func configured(name, driver string) resourceapi.DeviceClass {
	return resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourceapi.DeviceClassSpec{Config: []resourceapi.DeviceClassConfiguration{
		{DeviceConfiguration: resourceapi.DeviceConfiguration{Opaque: &resourceapi.OpaqueDeviceConfiguration{Driver: driver}}},
	}}}
}

func selecting(name, expression string) resourceapi.DeviceClass {
	return resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourceapi.DeviceClassSpec{Selectors: []resourceapi.DeviceSelector{
		{CEL: &resourceapi.CELDeviceSelector{Expression: expression}},
	}}}
}

// TestClassThatIsNotListedGoesByItsName: a tenant may not list DeviceClasses, and a class can be deleted.
func TestClassThatIsNotListedGoesByItsName(t *testing.T) {
	for class, want := range map[string]bool{"gpu.kata-vfio.dev": true, "fast": false, "": false} {
		c := listed(t, waiting(class))
		if got := c.IsOurs(c.Claims()[0]); got != want {
			t.Errorf("got %v for a claim by class %q, want %v", got, class, want)
		}
	}
}

// TestAllocatedClaimIsOursByItsDevices, whatever class it names: a class may select several drivers' devices.
func TestAllocatedClaimIsOursByItsDevices(t *testing.T) {
	mixed := configured("any", ours)
	foreign := allocated("c", cluster.ID{Driver: theirs, Pool: "n1", Name: "gpu-0"})
	foreign.Spec = waiting("any").Spec
	own := allocated("c", cluster.ID{Driver: ours, Pool: "n1", Name: gpu})
	lost := allocated("c")
	lost.Status.Devices = []resourceapi.AllocatedDeviceStatus{{Driver: ours, Pool: "n1", Device: gpu}}
	for name, tt := range map[string]struct {
		claim *resourceapi.ResourceClaim
		want  bool
	}{"ours": {own, true}, "another driver's": {foreign, false}, "one that is still prepared": {lost, true}} {
		c := listed(t, &mixed, tt.claim)
		if got := c.IsOurs(c.Claims()[0]); got != tt.want {
			t.Errorf("%s: got %v, want %v", name, got, tt.want)
		}
	}
}

// TestHolderIsTheClaimThatHasADeviceToItself.
func TestHolderIsTheClaimThatHasADeviceToItself(t *testing.T) {
	id := cluster.ID{Driver: ours, Pool: "n1", Name: gpu}
	monitor := allocated("monitor", id)
	monitor.Status.Allocation.Devices.Results[0].AdminAccess = new(true)
	c := listed(t, allocated("train", id), monitor)
	if got := c.Holder(id); got == nil || got.Name() != "t1/train" {
		t.Errorf("got %v, want t1/train", got)
	}
	if got := c.Holder(cluster.ID{Driver: theirs, Pool: "n1", Name: gpu}); got != nil {
		t.Errorf("got %s for another driver's device of the name, want none", got.Name())
	}
}

// TestPodsAndTheirClaimsFindEachOther, by the names that the pod has now.
func TestPodsAndTheirClaimsFindEachOther(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "t1", Name: "p"}, Status: corev1.PodStatus{ResourceClaimStatuses: []corev1.PodResourceClaimStatus{
		{Name: "b", ResourceClaimName: new("b")}, {Name: "a", ResourceClaimName: new("a")}, {Name: "gone", ResourceClaimName: new("gone")},
	}}}
	other := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "t2", Name: "p"}, Status: pod.Status}
	c := listed(t, other, pod, allocated("a"), allocated("b"), allocated("c"))
	var got []string
	for _, claim := range c.PodClaims(c.Pod("t1", "p")) {
		got = append(got, claim.Name())
	}
	if diff := cmp.Diff([]string{"t1/a", "t1/b"}, got); diff != "" {
		t.Errorf("claims of the pod (-want +got):\n%s", diff)
	}
	if !c.IsUsed(c.Claim("t1", "a")) || c.IsUsed(c.Claim("t1", "c")) {
		t.Error("got a claim that no pod names as used, or one that a pod names as unused")
	}
	pod.Status.Phase = corev1.PodFailed
	if c.IsUsed(c.Claim("t1", "a")) {
		t.Error("got used for a claim whose pod has ended")
	}
}

// TestClaimSaysWhomItIsFor: pods, a PodGroup, and the pod that it was made for.
func TestClaimSaysWhomItIsFor(t *testing.T) {
	o := allocated("c")
	o.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: "p"}, {APIGroup: "x", Resource: "pods", Name: "q"}, {APIGroup: "scheduling.k8s.io", Resource: "podgroups", Name: "g"}}
	o.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "made"}, {APIVersion: "x/v1", Kind: "Pod", Name: "not"}}
	c := cluster.DecodeClaim(o)
	if !slices.Equal(c.Pods, []string{"p"}) || c.PodGroup != "g" || !slices.Equal(c.Owners, []string{"made"}) {
		t.Errorf("got pods %q, PodGroup %q, owners %q, want p, g, made", c.Pods, c.PodGroup, c.Owners)
	}
}

// TestStatusesAreOfTheNodeThatWroteThem: the pool's name begins with the node's.
func TestStatusesAreOfTheNodeThatWroteThem(t *testing.T) {
	o := allocated("c")
	for _, d := range []cluster.ID{{ours, "n1/kata-vfio.dev", gpu}, {ours, "n2", gpu}, {theirs, "n1", "gpu-0"}} {
		o.Status.Devices = append(o.Status.Devices, resourceapi.AllocatedDeviceStatus{Driver: d.Driver, Pool: d.Pool, Device: d.Name})
	}
	c := listed(t, o)
	if got := c.StatusesOn("n1"); len(got) != 1 || got[0].ID.Pool != "n1/kata-vfio.dev" || got[0].Claim.Name() != "t1/c" {
		t.Errorf("got %v, want that of n1/kata-vfio.dev", got)
	}
}

// TestPolicyDeniesWhereABindingSaysSo.
func TestPolicyDeniesWhereABindingSaysSo(t *testing.T) {
	policy := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
	bound := func(actions ...admissionv1.ValidationAction) *admissionv1.ValidatingAdmissionPolicyBinding {
		return &admissionv1.ValidatingAdmissionPolicyBinding{Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: "p", ValidationActions: actions}}
	}
	for name, tt := range map[string]struct {
		objects []any
		want    bool
	}{
		"bound":            {[]any{policy, bound(admissionv1.Audit), bound(admissionv1.Deny)}, true},
		"bound first":      {[]any{bound(admissionv1.Deny), policy}, true},
		"only audited":     {[]any{policy, bound(admissionv1.Audit)}, false},
		"not bound":        {[]any{policy}, false},
		"a binding of it":  {[]any{bound(admissionv1.Deny)}, false},
		"nothing is there": {nil, false},
	} {
		c := listed(t, tt.objects...)
		if got := c.Denies("p"); got != tt.want {
			t.Errorf("%s: got %v, want %v", name, got, tt.want)
		}
		if got := len(c.Policies()); got > 1 || (got == 1) != (c.Policy("p") != nil) {
			t.Errorf("%s: got %d policies", name, got)
		}
	}
}

// TestRuntimeClassSaysItsHandler.
func TestRuntimeClassSaysItsHandler(t *testing.T) {
	c := listed(t, &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "kata-gpu"}, Handler: "kata-vm"})
	if got, ok := c.Handler("kata-gpu"); got != "kata-vm" || !ok {
		t.Errorf("got %q, %v, want kata-vm", got, ok)
	}
	if got, ok := c.Handler("runc"); got != "" || ok {
		t.Errorf("got %q, %v for a class that is not there", got, ok)
	}
}

// TestObjectOfAnotherKindIsNotKept.
func TestObjectOfAnotherKindIsNotKept(t *testing.T) {
	if (&cluster.Cluster{}).Add(&corev1.Node{}) {
		t.Error("got true for a Node, which the model has not")
	}
}
