//go:build e2e

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/test/e2e/controlplane"
)

// claimWith is a claim for one device with parameters.
func claimWith(t *testing.T, kind string, parameters map[string]any) *resourcev1.ResourceClaim {
	t.Helper()
	return &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "attack"},
		Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{
			Requests: []resourcev1.DeviceRequest{
				{Name: "one", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "vf.kata-vfio.dev"}},
			},
			Config: []resourcev1.DeviceClaimConfiguration{{DeviceConfiguration: resourcev1.DeviceConfiguration{
				Opaque: &resourcev1.OpaqueDeviceConfiguration{Driver: driver, Parameters: runtime.RawExtension{Raw: opaque(t, kind, parameters)}},
			}}},
		}},
	}
}

func opaque(t *testing.T, kind string, parameters map[string]any) []byte {
	t.Helper()
	all := map[string]any{"apiVersion": v1alpha1.APIVersion, "kind": kind}
	maps.Copy(all, parameters)
	text, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// The policy refuses what the plugin refuses, and a MAC address, and nothing else: every value of every parameter, in claims and templates.
func TestAPIServerRefusesWeakeningParametersAsThePluginDoes(t *testing.T) {
	p := installed(t)
	ns := tenantNamespace(t, p)
	resources := client(t, p, controlplane.Admin()).ResourceV1()
	refused := 0
	for _, kind := range []string{v1alpha1.KindVFIOConfig, v1alpha1.KindVFConfig} {
		for field, property := range valuesSchema(t).Defs[kind].Properties {
			for _, value := range valuesOf(t, property) {
				claim := claimWith(t, kind, map[string]any{field: value})
				want := ""
				// The chart's default; the plugin has no way to tell whose address it is.
				if weakens(t, claim) || field == "mac" {
					want = kind + ":"
					refused++
				}
				t.Run(fmt.Sprintf("%s %s %v", kind, field, value), func(t *testing.T) {
					_, err := resources.ResourceClaims(ns).Create(t.Context(), claim, dryRunCreate())
					wantForbidden(t, err, want)
					_, err = resources.ResourceClaimTemplates(ns).Create(t.Context(), templateOf(claim), dryRunCreate())
					wantForbidden(t, err, want)
				})
			}
		}
	}
	if refused == 0 {
		t.Error("nothing weakens")
	}
}

// valuesOf are values that a property may have: all, or the ends of a range.
func valuesOf(t *testing.T, property schema) []any {
	t.Helper()
	var values []any
	for _, value := range property.Enum {
		values = append(values, value)
	}
	switch {
	case values != nil:
	case property.Type == "boolean":
		values = []any{true, false}
	case property.Type == "integer":
		values = []any{*property.Minimum, *property.Maximum}
	case property.Ref == "#/$defs/GuestNetwork":
		values = []any{
			map[string]any{"interface": "net1", "addresses": []string{"192.0.2.10/24"}}, map[string]any{"addressPool": "tenants"},
		}
	case property.Type == "string":
		for _, address := range []string{"02:00:5e:10:00:01", "02:00:5e:10:00:00:00:01"} { // a MAC address or a GUID
			if regexp.MustCompile(property.Pattern).MatchString(address) {
				values = append(values, address)
			}
		}
	default:
		t.Fatalf("no values are known for %+v", property)
	}
	return values
}

// weakens asks the plugin's code.
func weakens(t *testing.T, claim *resourcev1.ResourceClaim) bool {
	t.Helper()
	p, err := v1alpha1.DecodeParameters(claim.Spec.Devices.Config[0].Opaque.Parameters.Raw)
	if err != nil {
		t.Fatal(err)
	}
	_, is := errors.AsType[*v1alpha1.WeakensIsolationError](p.Weakens())
	return is
}

func templateOf(claim *resourcev1.ResourceClaim) *resourcev1.ResourceClaimTemplate {
	return &resourcev1.ResourceClaimTemplate{
		ObjectMeta: claim.ObjectMeta, Spec: resourcev1.ResourceClaimTemplateSpec{Spec: claim.Spec},
	}
}

func TestTenantsClaim(t *testing.T) {
	p := installed(t)
	ns := tenantNamespace(t, p)
	resources := client(t, p, controlplane.Admin()).ResourceV1()
	create := func(ns string, claim *resourcev1.ResourceClaim) error {
		_, errClaim := resources.ResourceClaims(ns).Create(t.Context(), claim, dryRunCreate())
		_, errTemplate := resources.ResourceClaimTemplates(ns).Create(t.Context(), templateOf(claim), dryRunCreate())
		if (errClaim == nil) != (errTemplate == nil) {
			t.Errorf("a claim gets %v, a template %v", errClaim, errTemplate)
		}
		return errClaim
	}
	trusted := claimWith(t, "VFConfig", map[string]any{"trust": true})
	t.Run("may hide nothing among other parameters", func(t *testing.T) {
		hidden := claimWith(t, "VFConfig", map[string]any{"maxTxRate": 10})
		hidden.Spec.Devices.Config = append(hidden.Spec.Devices.Config, trusted.Spec.Devices.Config...)
		wantForbidden(t, create(ns, hidden), "VFConfig:")
	})
	t.Run("may say what it likes to another driver", func(t *testing.T) {
		other := trusted.DeepCopy()
		other.Spec.Devices.Config[0].Opaque.Driver = "other.example.com"
		wantForbidden(t, create(ns, other), "")
	})
	t.Run("may have no parameters", func(t *testing.T) {
		plain := trusted.DeepCopy()
		plain.Spec.Devices.Config = nil
		wantForbidden(t, create(ns, plain), "")
	})
	t.Run("is the admin's business elsewhere", func(t *testing.T) { wantForbidden(t, create(namespace(t, p), trusted), "") })
	t.Run("asks for as many devices as a claim may have", func(t *testing.T) {
		for count, want := range map[int64]string{1: "", 32: "", 33: "a request has a count above 32", math.MaxInt64: "a request has a count above 32"} {
			for _, alternative := range []bool{false, true} {
				many := claimOf("gpu.kata-vfio.dev", alternative)
				if alternative {
					many.Spec.Devices.Requests[1].FirstAvailable[1].Count = count
				} else {
					many.Spec.Devices.Requests[1].Exactly.Count = count
				}
				wantForbidden(t, create(ns, many), want)
			}
		}
	})
	t.Run("has few constraints", func(t *testing.T) {
		for constraints, want := range map[int]string{0: "", 3: "", 4: "a claim may have 3 constraints", 32: "a claim may have 3 constraints"} {
			near := claimOf("gpu.kata-vfio.dev", false)
			for range constraints {
				near.Spec.Devices.Constraints = append(near.Spec.Devices.Constraints, resourcev1.DeviceConstraint{MatchAttribute: new(resourcev1.FullyQualifiedName("resource.kubernetes.io/pcieRoot"))})
			}
			wantForbidden(t, create(ns, near), want)
			wantForbidden(t, create(namespace(t, p), near), "")
		}
	})
	t.Run("reaches no device in use", func(t *testing.T) {
		access := trusted.DeepCopy()
		access.Spec.Devices.Config = nil
		access.Spec.Devices.Requests[0].Exactly.AdminAccess = new(true)
		// The API server's own check comes before policies, with another message.
		if create(ns, access) == nil {
			t.Error("it does")
		}
		open := labeledNamespace(t, p, map[string]string{"kata-vfio.dev/tenant": "team-a", resourcev1.DRAAdminNamespaceLabelKey: "true"})
		wantForbidden(t, create(open, access), "")
	})
}
