//go:build e2e

package e2e

import (
	"context"
	"errors"
	"strings"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/kata-vfio/kata-vfio/test/e2e/controlplane"
)

// classesOfTheSite are DeviceClasses that the chart does not make. NAMESPACE is a tenant's.
const classesOfTheSite = `
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: e2e-granted.example.com, annotations: {kata-vfio.dev/namespaces: "team-z, NAMESPACE", kata-vfio.dev/allow-all: "true"}}
spec:
  extendedResourceName: e2e.example.com/granted
  config: [{opaque: {driver: kata-vfio.dev, parameters: {apiVersion: resource.kata-vfio.dev/v1alpha1, kind: VFConfig, trust: true}}}]
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: e2e-others.example.com, annotations: {kata-vfio.dev/namespaces: "team-z,NAMESPACE1"}}
spec:
  extendedResourceName: e2e.example.com/others
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: e2e-parameters.example.com}
spec:
  config: [{opaque: {driver: kata-vfio.dev, parameters: {apiVersion: resource.kata-vfio.dev/v1alpha1, kind: VFConfig, trust: true}}}]
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: e2e-selector.example.com}
spec: {selectors: [{cel: {expression: "device.driver == 'kata-vfio.dev'"}}]}
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: e2e-name.kata-vfio.dev}
spec: {}
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: e2e-foreign.example.com}
spec: {extendedResourceName: e2e.example.com/foreign, selectors: [{cel: {expression: "device.driver == 'foreign.example.com'"}}]}
`

// claimOf is a claim by a class: exactly, or as the second of alternatives.
func claimOf(class string, alternative bool) *resourcev1.ResourceClaim {
	request := resourcev1.DeviceRequest{Name: "one", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: class}}
	if alternative {
		request = resourcev1.DeviceRequest{Name: "one", FirstAvailable: []resourcev1.DeviceSubRequest{
			{Name: "a", DeviceClassName: "gpu.kata-vfio.dev"}, {Name: "b", DeviceClassName: class},
		}}
	}
	return &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "attack"},
		Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{
			{Name: "first", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "gpu.kata-vfio.dev"}}, request,
		}}},
	}
}

// allOf is a claim for all devices of a class.
func allOf(class string, alternative bool) *resourcev1.ResourceClaim {
	claim := claimOf(class, alternative)
	if r := &claim.Spec.Devices.Requests[1]; alternative {
		r.FirstAvailable[1].AllocationMode = resourcev1.DeviceAllocationModeAll
	} else {
		r.Exactly.AllocationMode = resourcev1.DeviceAllocationModeAll
	}
	return claim
}

// A class of ours is a right: what names it is refused where it is not granted. Classes of other drivers are their own.
func TestTenantNamesOnlyClassesThatAreGranted(t *testing.T) {
	p := installed(t)
	ns, admin := tenantNamespace(t, p), client(t, p, controlplane.Admin())
	api, pods := admin.ResourceV1(), admin.CoreV1().Pods(ns)
	if _, err := p.KubectlInput(t.Context(), strings.NewReader(strings.ReplaceAll(classesOfTheSite, "NAMESPACE", ns)), "apply", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// The test's own context is over by now.
		if _, err := p.KubectlInput(context.Background(), strings.NewReader(classesOfTheSite), "delete", "-f", "-"); err != nil {
			t.Error(err)
		}
	})
	until(t, "the API server knows the classes", func(ctx context.Context) error {
		for _, class := range []string{"e2e-others.example.com", "e2e-parameters.example.com", "e2e-selector.example.com", "e2e-name.kata-vfio.dev"} {
			if _, err := api.ResourceClaims(ns).Create(ctx, claimOf(class, false), dryRunCreate()); err == nil {
				return errors.New(class + " may be named")
			}
		}
		return nil
	})
	for class, granted := range map[string]bool{
		"gpu.kata-vfio.dev": true, "vf.kata-vfio.dev": true, "pf.kata-vfio.dev": false, "gpu-vf.kata-vfio.dev": true,
		"e2e-granted.example.com": true, "e2e-foreign.example.com": true,
		"e2e-others.example.com": false, "e2e-parameters.example.com": false, "e2e-selector.example.com": false, "e2e-name.kata-vfio.dev": false,
	} {
		want := ""
		if !granted {
			want = "DeviceClass " + class + " is not granted to namespace " + ns
		}
		t.Run(class, func(t *testing.T) {
			for _, alternative := range []bool{false, true} {
				claim := claimOf(class, alternative)
				_, err := api.ResourceClaims(ns).Create(t.Context(), claim, dryRunCreate())
				wantForbidden(t, err, want)
				_, err = api.ResourceClaimTemplates(ns).Create(t.Context(), templateOf(claim), dryRunCreate())
				wantForbidden(t, err, want)
			}
			for _, kind := range []string{"containers", "initContainers"} {
				_, err := pods.Create(t.Context(), pod(t, inVM+containers(kind, "deviceclass.resource.kubernetes.io/"+class), ""), dryRunCreate())
				wantForbidden(t, err, want)
			}
		})
	}
	for class, want := range map[string]string{
		"gpu.kata-vfio.dev":       `DeviceClass gpu.kata-vfio.dev does not allow "allocationMode: All"`,
		"e2e-granted.example.com": "", "e2e-foreign.example.com": "",
	} {
		for _, alternative := range []bool{false, true} {
			_, err := api.ResourceClaims(ns).Create(t.Context(), allOf(class, alternative), dryRunCreate())
			wantForbidden(t, err, want)
		}
	}
	for resource, want := range map[string]string{
		"e2e.example.com/granted": "", "e2e.example.com/foreign": "",
		"e2e.example.com/others": "DeviceClass e2e-others.example.com is not granted to namespace " + ns,
	} {
		_, err := pods.Create(t.Context(), pod(t, inVM+containers("containers", resource), ""), dryRunCreate())
		wantForbidden(t, err, want)
	}
	wantVMs(t, pods)
	_, err := api.ResourceClaims(namespace(t, p)).Create(t.Context(), claimOf("e2e-others.example.com", false), dryRunCreate())
	wantForbidden(t, err, "") // the plugin refuses it all the same
}

// wantVMs checks that a pod with an extended resource runs in a VM and requires the plugin, also where the resource is of a
// DeviceClass that the chart's values don't name.
func wantVMs(t *testing.T, pods typedcorev1.PodInterface) {
	t.Helper()
	for _, resource := range []string{"e2e.example.com/granted", "e2e.example.com/foreign", "deviceclass.resource.kubernetes.io/e2e-foreign.example.com"} {
		for _, kind := range []string{"containers", "initContainers"} {
			_, err := pods.Create(t.Context(), pod(t, containers(kind, resource), ""), dryRunCreate())
			wantForbidden(t, err, "a pod with devices (resourceClaims, or a device resource in limits) must run in a VM")
			made, err := pods.Create(t.Context(), pod(t, inVM+containers(kind, resource), ""), dryRunCreate())
			if err != nil || made.Annotations[requiredPlugins] != "[ kata-vfio ]" {
				t.Errorf("%s in %s: %v, annotations %v; want the plugin required", resource, kind, err, made.Annotations)
			}
		}
	}
	made, err := pods.Create(t.Context(), pod(t, containers("containers", "e2e.example.com/no-class"), ""), dryRunCreate())
	if err != nil || made.Annotations[requiredPlugins] != "" {
		t.Errorf("a resource of no DeviceClass: %v, annotations %v; want neither a refusal nor an annotation", err, made.Annotations)
	}
}
