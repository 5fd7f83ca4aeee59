//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	resourceclient "k8s.io/client-go/kubernetes/typed/resource/v1"

	"github.com/kata-vfio/kata-vfio/pkg/publish"
	"github.com/kata-vfio/kata-vfio/test/e2e/controlplane"
)

// What the policy for slices says.
const (
	onlyPlugin = "only the plugin (system:serviceaccount:kata-vfio-system:kata-vfio-plugin) may publish devices of kata-vfio.dev"
	onlyDriver = "the kata-vfio plugin may write ResourceSlices of driver kata-vfio.dev only"
	namesNode  = "the kata-vfio plugin's token names no node"
	onlyNode   = "a kata-vfio plugin may write ResourceSlices of its own node only"
	onlyPools  = "a kata-vfio plugin may write ResourceSlices of its own node's pools only"
)

// slice is a ResourceSlice of a driver, a node and a pool. Its one device says nothing of itself unless others are given.
func slice(of, node, pool string, devices ...resourcev1.Device) *resourcev1.ResourceSlice {
	if devices == nil {
		devices = []resourcev1.Device{{Name: "bare"}}
	}
	return &resourcev1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "e2e-"},
		Spec: resourcev1.ResourceSliceSpec{
			Driver: of, NodeName: &node, Pool: resourcev1.ResourcePool{Name: pool, Generation: 1, ResourceSliceCount: 1}, Devices: devices,
		},
	}
}

// everywhere is a slice of ours whose devices are not node's.
func everywhere(pool string) *resourcev1.ResourceSlice {
	s := slice(driver, "", pool)
	s.Spec.NodeName, s.Spec.AllNodes = nil, new(true)
	return s
}

// published creates a slice for the time of the test.
func published(
	t *testing.T, p *controlplane.ControlPlane, by resourceclient.ResourceSliceInterface, s *resourcev1.ResourceSlice,
) *resourcev1.ResourceSlice {
	t.Helper()
	made, err := by.Create(t.Context(), s, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	admin := client(t, p, controlplane.Admin()).ResourceV1().ResourceSlices()
	t.Cleanup(func() {
		// The test's own context is over by now.
		if err := admin.Delete(context.Background(), made.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	})
	return made
}

func TestPluginPublishesDevicesOfItsNodeOnly(t *testing.T) {
	const a, b = "e2e-slices-a", "e2e-slices-b"
	p := installed(t)
	addFitNode(t, p, a)
	addFitNode(t, p, b)
	onA := pluginOn(t, p, a).ResourceV1().ResourceSlices()
	onB := pluginOn(t, p, b).ResourceV1().ResourceSlices()
	for name, attack := range map[string]struct {
		slice *resourcev1.ResourceSlice
		want  string
	}{
		"its own":                            {slice(driver, a, a), ""},
		"a pool below its node's":            {slice(driver, a, a+"/pf-0000-5e-00-0"), ""},
		"a pool with the driver's name":      {slice(driver, a, a+"/kata-vfio.dev/pf-0000-5e-00-0"), ""},
		"another node's":                     {slice(driver, b, b), onlyNode},
		"another node's, in its own pool":    {slice(driver, b, a), onlyNode},
		"no node's":                          {everywhere(a), onlyNode},
		"its own, in another node's pool":    {slice(driver, a, b), onlyPools},
		"its own, below another node's pool": {slice(driver, a, b+"/"+a), onlyPools},
		"its own, in a pool like its node's": {slice(driver, a, a+"-b"), onlyPools},
		"below a pool like its node's":       {slice(driver, a, a+"-b/kata-vfio.dev"), onlyPools},
		"another driver's":                   {slice("other.example.com", a, a), onlyDriver},
	} {
		t.Run("creating "+name, func(t *testing.T) {
			_, err := onA.Create(t.Context(), attack.slice, dryRunCreate())
			wantForbidden(t, err, attack.want)
		})
	}
	t.Run("changing and deleting", func(t *testing.T) {
		mine, theirs := published(t, p, onA, slice(driver, a, a)), published(t, p, onB, slice(driver, b, b))
		wantForbidden(t, relabel(t, onA, mine), "")
		wantForbidden(t, relabel(t, onA, theirs), onlyNode)
		wantForbidden(t, addDevice(t, onA, mine), "")
		wantForbidden(t, addDevice(t, onA, theirs), onlyNode)
		wantForbidden(t, onA.Delete(t.Context(), theirs.Name, metav1.DeleteOptions{}), onlyNode)
		wantForbidden(t, onA.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}), "cannot deletecollection")
		wantForbidden(t, onA.Delete(t.Context(), mine.Name, metav1.DeleteOptions{}), "")
	})
	t.Run("with a token that is bound to nothing", func(t *testing.T) {
		unbound := withToken(t, p, client(t, p, controlplane.Admin()), nil).ResourceV1().ResourceSlices()
		theirs := published(t, p, onB, slice(driver, b, b+"/unbound"))
		_, err := unbound.Create(t.Context(), slice(driver, a, a), dryRunCreate())
		wantForbidden(t, err, namesNode)
		_, err = unbound.Create(t.Context(), everywhere("everywhere"), dryRunCreate())
		wantForbidden(t, err, namesNode)
		wantForbidden(t, addDevice(t, unbound, theirs), namesNode)
		wantForbidden(t, unbound.Delete(t.Context(), theirs.Name, metav1.DeleteOptions{}), namesNode)
	})
}

// testSkippedOperations checks that a captured node's plugin can't have the kubelet use devices unprepared or without a reset.
func testSkippedOperations(t *testing.T, p *controlplane.ControlPlane) {
	const node = "e2e-slices-e"
	addFitNode(t, p, node)
	slices := pluginOn(t, p, node).ResourceV1().ResourceSlices()
	for _, skipped := range [][]resourcev1.SkipNodeOperation{nil, {"*"}, {"NodeUnprepareResources"}, {"NodePrepareResources", "NodeUnprepareResources"}} {
		s, want := slice(driver, node, node), ""
		if s.Spec.SkipNodeOperations = skipped; skipped != nil {
			want = "skipNodeOperations would have the kubelet use devices of kata-vfio.dev without preparing or resetting them"
		}
		_, err := slices.Create(t.Context(), s, dryRunCreate())
		wantForbidden(t, err, want)
	}
}

// A selector that meets a value of another type errs, and an error on one device stops the scheduling of the pod on all nodes.
func TestPluginPublishesItsOwnAttributesOnly(t *testing.T) {
	const node = "e2e-slices-d"
	const odd = "the kata-vfio plugin does not publish this, or with a value of another type: odd "
	p := installed(t)
	addFitNode(t, p, node)
	slices := pluginOn(t, p, node).ResourceV1().ResourceSlices()
	with := func(name resourcev1.QualifiedName, value resourcev1.DeviceAttribute) resourcev1.Device {
		d := full("odd", "gpu")
		d.Attributes[name] = value
		return d
	}
	text := resourcev1.DeviceAttribute{StringValue: new("yes")}
	many := make([]resourcev1.Device, publish.MaxDevices+1)
	for i := range many {
		many[i] = resourcev1.Device{Name: fmt.Sprintf("device-%d", i)}
	}
	for name, attack := range map[string]struct {
		devices []resourcev1.Device
		want    string
	}{
		"what it publishes":               {[]resourcev1.Device{full("even", "gpu"), placed("near", "vf")}, ""},
		"a string for a flag":             {[]resourcev1.Device{full("even", "gpu"), with("isolated", text)}, odd + "isolated"},
		"a number for a string":           {[]resourcev1.Device{with("type", resourcev1.DeviceAttribute{IntValue: new(int64(1))})}, odd + "type"},
		"a string for a version":          {[]resourcev1.Device{with("kataVersion", text)}, odd + "kataVersion"},
		"its name with the driver before": {[]resourcev1.Device{with(driver+"/isolated", text)}, odd + driver + "/isolated"},
		"an attribute of its own":         {[]resourcev1.Device{with("new", text)}, odd + "new"},
		"an attribute of another domain":  {[]resourcev1.Device{with("example.com/type", text)}, odd + "example.com/type"},
		"too many devices":                {many, "a slice of the kata-vfio plugin has at most 64 devices"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := slices.Create(t.Context(), slice(driver, node, node, attack.devices...), dryRunCreate())
			wantForbidden(t, err, attack.want)
		})
	}
	t.Run("another capacity", func(t *testing.T) {
		d := full("odd", "gpu")
		d.Capacity = map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{"memory": {Value: resource.MustParse("80Gi")}}
		_, err := slices.Create(t.Context(), slice(driver, node, node, d), dryRunCreate())
		wantForbidden(t, err, "")
		d.Capacity["cores"] = resourcev1.DeviceCapacity{Value: resource.MustParse("1")}
		_, err = slices.Create(t.Context(), slice(driver, node, node, d), dryRunCreate())
		wantForbidden(t, err, "publishes the capacities memory, gpus and bar0 to bar5 only")
	})
}

// Whatever RBAC gives them.
func TestPolicyRefusesSlicesOfOtherPublishers(t *testing.T) {
	const node = "e2e-slices-c"
	p := installed(t)
	addFitNode(t, p, node)
	real := published(t, p, pluginOn(t, p, node).ResourceV1().ResourceSlices(), slice(driver, node, node))
	for name, one := range map[string]struct {
		user controlplane.User
		want string
	}{
		"an admin":                {controlplane.User{Name: "somebody", Groups: []string{"system:masters"}}, onlyPlugin},
		"a namesake":              {controlplane.User{Name: "system:serviceaccount:team-a:" + plugin, Groups: []string{"system:masters"}}, onlyPlugin},
		"the plugin, of no node":  {pluginOfNoNode(), namesNode},
		"the kubelet of the node": {controlplane.NodeIdentity(node), onlyPlugin},
	} {
		t.Run(name, func(t *testing.T) {
			slices := client(t, p, one.user).ResourceV1().ResourceSlices()
			_, err := slices.Create(t.Context(), slice(driver, node, node), dryRunCreate())
			wantForbidden(t, err, one.want)
			if one.user.Groups[0] != "system:nodes" { // a kubelet may not update at all
				wantForbidden(t, addDevice(t, slices, real), one.want)
			}
		})
	}
	t.Run("and others mind their own", func(t *testing.T) {
		admin := client(t, p, controlplane.Admin()).ResourceV1().ResourceSlices()
		_, err := admin.Create(t.Context(), slice("other.example.com", node, node), dryRunCreate())
		wantForbidden(t, err, "")
		// The garbage collector and the kubelet clean up, and an admin may.
		wantForbidden(t, relabel(t, admin, real), "")
		dry := metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}
		wantForbidden(t, admin.Delete(t.Context(), real.Name, dry), "")
		wantForbidden(t, client(t, p, controlplane.NodeIdentity(node)).ResourceV1().ResourceSlices().Delete(t.Context(), real.Name, dry), "")
	})
}

// relabel and addDevice change a slice, in its metadata and in what it says, as a dry run.
func relabel(t *testing.T, by resourceclient.ResourceSliceInterface, s *resourcev1.ResourceSlice) error {
	t.Helper()
	changed := s.DeepCopy()
	changed.Labels = map[string]string{"e2e.example.com/changed": "yes"}
	_, err := by.Update(t.Context(), changed, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

func addDevice(t *testing.T, by resourceclient.ResourceSliceInterface, s *resourcev1.ResourceSlice) error {
	t.Helper()
	changed := s.DeepCopy()
	changed.Spec.Pool.Generation++
	changed.Spec.Devices = append(changed.Spec.Devices, resourcev1.Device{Name: "more"})
	_, err := by.Update(t.Context(), changed, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}
