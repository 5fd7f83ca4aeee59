// Package validation tests that the oldest and the newest supported Kubernetes accept what the plugin publishes: it validates
// the golden files of package publish as their API servers do. This checks limits and names, which neither the types of the API
// nor the allocators know.
//
// The module proxy has no k8s.io/kubernetes v1.36.6, so go.mod has v1.36.5. The types of the API (k8s.io/api/resource) are the
// same in both.
package validation
