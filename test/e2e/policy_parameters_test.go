//go:build e2e

package e2e

import (
	"context"
	"errors"
	"strings"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kata-vfio/kata-vfio/test/e2e/controlplane"
)

// The table of test/chart, one of each kind: the API server evaluates as that test does.
func TestAPIServerRefusesMisspelledParameters(t *testing.T) {
	p := installed(t)
	ns := namespace(t, p)
	api := client(t, p, controlplane.Admin()).ResourceV1()
	create := map[string]func(kind string, parameters map[string]any) error{
		"claim": func(kind string, parameters map[string]any) error {
			_, err := api.ResourceClaims(ns).Create(t.Context(), claimWith(t, kind, parameters), dryRunCreate())
			return err
		},
		"template": func(kind string, parameters map[string]any) error {
			_, err := api.ResourceClaimTemplates(ns).Create(t.Context(), templateOf(claimWith(t, kind, parameters)), dryRunCreate())
			return err
		},
		"class": func(kind string, parameters map[string]any) error {
			_, err := api.DeviceClasses().Create(t.Context(), classWith(t, kind, parameters), dryRunCreate())
			return err
		},
	}
	until(t, "the policy is in force", func(context.Context) error {
		if create["claim"]("VFConfig", map[string]any{"vlann": 1}) == nil {
			return errors.New("a claim may have any field")
		}
		return nil
	})
	for name, create := range create {
		t.Run(name, func(t *testing.T) {
			for _, c := range []struct {
				kind       string
				parameters map[string]any
				want       string
			}{
				{"VFIOConfig", map[string]any{"backend": "IOMMUFD", "reset": nil}, ""},
				{"VFIOConfig", map[string]any{"backnd": "Auto"}, "VFIOConfig: no such field: backnd; the fields are backend,"},
				{"VFIOConfig", map[string]any{"backend": "iommufd"}, "backend is not one of Auto, Group, IOMMUFD"},
				{"VFConfig", map[string]any{"linkState": "Auto", "network": map[string]any{"mtu": 9000}}, ""},
				{"VFConfig", map[string]any{"maxTxRate": "10"}, "minTxRate or maxTxRate is not a whole number"},
				{"VFConfig", map[string]any{"network": map[string]any{"gateway": "192.0.2.1"}}, "network is not an object with the fields interface,"},
			} {
				err := create(c.kind, c.parameters)
				switch {
				case c.want == "" && err != nil:
					t.Errorf("%s %v: %v", c.kind, c.parameters, err)
				case c.want != "" && (!apierrors.IsInvalid(err) || !strings.Contains(err.Error(), c.want)):
					t.Errorf("%s %v: %v, want %q", c.kind, c.parameters, err, c.want)
				}
			}
		})
	}
}

// classWith is a DeviceClass with parameters.
func classWith(t *testing.T, kind string, parameters map[string]any) *resourcev1.DeviceClass {
	t.Helper()
	class := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "site.example.com"}}
	for _, c := range claimWith(t, kind, parameters).Spec.Devices.Config {
		class.Spec.Config = append(class.Spec.Config, resourcev1.DeviceClassConfiguration{DeviceConfiguration: c.DeviceConfiguration})
	}
	return class
}
