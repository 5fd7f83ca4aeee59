package dra_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/dra"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
	"github.com/kata-vfio/kata-vfio/pkg/rule/ruletest"
)

const tenantID = "0123456789abcdef"

// tenantIDs is the ConfigMap of the controller.
func tenantIDs(data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kata-vfio", Name: v1alpha1.TenantsConfigMap}, Data: data}
}

// TestTenantOfAClaim: only the entry of the claim's namespace counts, and without a good one the claim is refused.
func TestTenantOfAClaim(t *testing.T) {
	for name, tt := range map[string]struct {
		objects   []runtime.Object
		namespace string
		want      string
		says      string // of a refusal
	}{
		"registered":             {[]runtime.Object{tenantIDs(map[string]string{"namespace.team-a": tenantID})}, "team-a", tenantID, ""},
		"not registered":         {[]runtime.Object{tenantIDs(map[string]string{"namespace.team-b": tenantID})}, "team-a", "", "no tenant ID for namespace team-a"},
		"an ID that is none":     {[]runtime.Object{tenantIDs(map[string]string{"namespace.team-a": "unknown"})}, "team-a", "", "no tenant ID for namespace team-a"},
		"of a label of the name": {[]runtime.Object{tenantIDs(map[string]string{"label.team-a": tenantID})}, "team-a", "", "no tenant ID for namespace team-a"},
		"no ConfigMap":           {nil, "team-a", "", "kata-vfio-tenants does not exist"},
		"a sanitizing stage":     {nil, "stages", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			tenants := dra.Tenants{ConfigMaps: fake.NewClientset(tt.objects...).CoreV1().ConfigMaps("kata-vfio"), Stages: "stages"}
			req := request()
			req.Namespace = tt.namespace
			got, err := tenants.Tenant(t.Context(), req)
			if tt.says != "" {
				ruletest.ErrorAt(t, rule.AtPrepare, err, rule.TenantUnknown)
			}
			if got != tt.want || (err != nil) != (tt.says != "") || err != nil && !strings.Contains(err.Error(), tt.says) {
				t.Errorf("Tenant = %q, %v; want %q, and an error that says %q", got, err, tt.want, tt.says)
			}
		})
	}
}

// TestTenantThatIsUnknown: an API server that does not answer, or that refuses, does not refuse the claim.
func TestTenantThatIsUnknown(t *testing.T) {
	client := fake.NewClientset()
	client.PrependReactor("get", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(corev1.Resource("configmaps"), v1alpha1.TenantsConfigMap, errors.New("no right"))
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	tenants := dra.Tenants{ConfigMaps: client.CoreV1().ConfigMaps("kata-vfio")}
	_, err := tenants.Tenant(ctx, request())
	if _, refused := errors.AsType[*rule.RefusedError](err); refused || err == nil || !strings.Contains(err.Error(), "look up the tenant of its namespace") {
		t.Errorf("Tenant = %v, want an error that is no refusal", err)
	}
}
