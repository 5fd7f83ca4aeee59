package fleet_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/audit/fleet"
	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
)

// served lists objects by the type of the list.
type served []runtime.Object

func (s served) List(_ context.Context, _ string, list runtime.Object, _ metav1.ListOptions) error {
	of := reflect.TypeOf(list).Elem().Name()
	var items []runtime.Object
	for _, o := range s {
		if reflect.TypeOf(o).Elem().Name()+"List" == of {
			items = append(items, o.DeepCopyObject())
		}
	}
	return meta.SetList(list, items)
}

// masked returns the files of a masked bundle, one after the other.
func masked(t *testing.T, objects ...runtime.Object) string {
	t.Helper()
	var b output.Bundle
	mask := output.NewMask()
	if _, err := (&fleet.Dump{Namespace: "kata-vfio-system", Mask: mask}).Add(t.Context(), served(objects), &b); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := b.Write(&out, output.BundleManifest{}, mask); err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewReader(&out)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// tenantsClaim is a claim for a device of ours, and reserved for the pod "trainer" of its namespace.
func tenantsClaim() *resourceapi.ResourceClaim {
	return &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "acme", Name: "weights"},
		Status: resourceapi.ResourceClaimStatus{
			Allocation: &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{
				Results: []resourceapi.DeviceRequestAllocationResult{{Driver: v1alpha1.DriverName, Device: "gpu-0000-3b-00-0"}},
			}},
			ReservedFor: []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: "trainer"}},
		},
	}
}

// tenantsPod is the pod of [tenantsClaim], with containers of the images.
func tenantsPod(images ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "acme", Name: "trainer"}}
	for i, image := range images {
		name := fmt.Sprintf("c%d", i)
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: name, Image: image})
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{Name: name, Image: image})
	}
	return p
}

func tenantsEvent(message string) *corev1.Event {
	return &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: "acme", Name: "e"},
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "acme", Name: "trainer"}, Message: message,
	}
}

// TestMaskCutsEachWordOnce: a tenant's words, which it chooses, neither multiply nor cut a longer word in half.
func TestMaskCutsEachWordOnce(t *testing.T) {
	for name, c := range map[string]struct {
		images         []string
		ips            []corev1.PodIP
		message, wants string
	}{
		"an image that is in its replacement": {[]string{"t", "t", "t", "t", "t"}, nil, "a t b", "a (left out) b"},
		"an image that starts another one":    {[]string{"reg/acme2", "reg/acme2-payroll:3"}, nil, "pull reg/acme2-payroll:3.", "pull (left out)."},
		"an address that starts another one":  {[]string{"x/y"}, []corev1.PodIP{{IP: "10.9.0.7"}, {IP: "10.9.0.77"}}, "from 10.9.0.77.", "from (left out)."},
	} {
		t.Run(name, func(t *testing.T) {
			pod := tenantsPod(c.images...)
			pod.Status.PodIPs = c.ips
			pod.Status.ContainerStatuses[0].State.Waiting = &corev1.ContainerStateWaiting{Message: c.message}
			text := masked(t, tenantsClaim(), pod, tenantsEvent(c.message))
			if got := strings.Count(text, fmt.Sprintf("%q: %q", "message", c.wants)); got != 2 {
				t.Errorf("the bundle has %q in %d messages, want 2: those of the container and the Event:\n%s", c.wants, got, text)
			}
		})
	}
}

// TestMaskedClaimHasNoWordOfItsTenant: neither its addresses, which its parameters have, too, nor what its pod calls it.
func TestMaskedClaimHasNoWordOfItsTenant(t *testing.T) {
	parameters := func(text string) resourceapi.DeviceConfiguration {
		return resourceapi.DeviceConfiguration{Opaque: &resourceapi.OpaqueDeviceConfiguration{
			Driver: v1alpha1.DriverName, Parameters: runtime.RawExtension{Raw: fmt.Appendf(nil, `{"kind": "VFConfig", %s}`, text)},
		}}
	}
	ofClaim := parameters(`"mac": "02:00:5e:10:00:01", "network": {"addresses": ["192.0.2.10/24"], "routes": [{"to": "10.77.0.0/16", "via": "192.0.2.1"}]}`)
	claim := tenantsClaim()
	claim.Spec.Devices.Config = []resourceapi.DeviceClaimConfiguration{{DeviceConfiguration: *ofClaim.DeepCopy()}}
	claim.Status.Allocation.Devices.Config = []resourceapi.DeviceAllocationConfiguration{
		{Source: resourceapi.AllocationConfigSourceClass, DeviceConfiguration: parameters(`"vlan": 4711`)},
		{Source: resourceapi.AllocationConfigSourceClaim, DeviceConfiguration: ofClaim},
	}
	claim.Status.Devices = []resourceapi.AllocatedDeviceStatus{
		{Driver: v1alpha1.DriverName, Data: &runtime.RawExtension{Raw: []byte(`{"address": "0000:3b:00.0"}`)}},
		{Driver: "net.example", Data: &runtime.RawExtension{Raw: []byte(`{"ip": "192.0.2.11"}`)}},
	}
	pod := tenantsPod("x/y")
	pod.Spec.ResourceClaims = []corev1.PodResourceClaim{
		{Name: "globex-gpu", ResourceClaimTemplateName: new("globex-template")}, {Name: "other", ResourceClaimName: new("globex-net")},
	}
	pod.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "globex-gpu"}}
	pod.Status = corev1.PodStatus{
		PodIP: "10.9.0.7", Message: "x/y is out", Conditions: []corev1.PodCondition{{Message: "10.9.0.7 does not answer"}},
		ResourceClaimStatuses:                []corev1.PodResourceClaimStatus{{Name: "globex-gpu", ResourceClaimName: new("globex-made")}},
		ExtendedResourceClaimStatus:          &corev1.PodExtendedResourceClaimStatus{ResourceClaimName: "globex-extended"},
		NodeAllocatableResourceClaimStatuses: []corev1.NodeAllocatableResourceClaimStatus{{ResourceClaimName: "globex-memory"}},
		EphemeralContainerStatuses:           []corev1.ContainerStatus{{Name: "globex-debugger"}},
		VolumeHealth:                         []corev1.PodVolumeHealth{{Name: "globex-data"}},
	}
	text := masked(t, claim, pod)
	for _, word := range []string{"acme", "weights", "trainer", "02:00:5e:10:00:01", "192.0.2.1", "10.77.0.0", "10.9.0.7", "x/y", "globex"} {
		if strings.Contains(text, word) {
			t.Errorf("the bundle has %q", word)
		}
	}
	for _, want := range []string{`"vlan": 4711`, `"leftOut": true`, `"address": "0000:3b:00.0"`} {
		if !strings.Contains(text, want) {
			t.Errorf("the bundle lacks %q", want)
		}
	}
	if t.Failed() {
		t.Log(text)
	}
}
