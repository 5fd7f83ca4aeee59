package dra

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/claim"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// Tenants looks up the tenants of claims. Exclusive domains belong to tenants.
type Tenants struct {
	// ConfigMaps are those of the namespace of kata-vfio-controller.
	ConfigMaps typedcorev1.ConfigMapInterface
	// Stages is the namespace of sanitizing stages, which belong to no tenant; empty if there is none.
	Stages string
}

// Tenant returns the ID of the tenant of the claim's namespace. It returns a [rule.RefusedError] if the namespace has no tenant yet, and
// another error if the tenant is unknown. It asks the API server at each call: an entry in a cache may belong to an earlier namespace with
// the same name.
func (t *Tenants) Tenant(ctx context.Context, req *claim.Request) (string, error) {
	if t.Stages != "" && req.Namespace == t.Stages {
		return "", nil
	}
	var known *corev1.ConfigMap
	err := insist(ctx, func(ctx context.Context) (err error) {
		known, err = t.ConfigMaps.Get(ctx, v1alpha1.TenantsConfigMap, metav1.GetOptions{})
		return err
	})
	switch {
	case apierrors.IsNotFound(err):
		return "", t.unknown(req, fmt.Sprintf("ConfigMap %s does not exist", v1alpha1.TenantsConfigMap))
	case err != nil:
		return "", fmt.Errorf("claim %s/%s: look up the tenant of its namespace: %w", req.Namespace, req.Name, err)
	}
	id := known.Data[v1alpha1.TenantKey(req.Namespace)]
	if !v1alpha1.IsTenantID(id) {
		return "", t.unknown(req, fmt.Sprintf("ConfigMap %s has no tenant ID for namespace %s", v1alpha1.TenantsConfigMap, req.Namespace))
	}
	return id, nil
}

// unknown refuses a claim without a tenant: a device in an exclusive domain must always belong to a tenant.
func (t *Tenants) unknown(req *claim.Request, why string) error {
	return refuse(req, rule.TenantUnknown, "the node has exclusive domains, and "+why,
		"wait a moment: kata-vfio-controller registers each namespace; if it does not, see that it runs (chart value tenancy.enabled)")
}
