package claim

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	kjson "sigs.k8s.io/json"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
)

// The versions of a ResourceClaim that Parse reads. v1beta2 has the same fields as v1. v1beta1 has other requests in
// its spec.
const (
	apiV1      = "resource.k8s.io/v1"
	apiV1beta2 = "resource.k8s.io/v1beta2"
)

// Parse reads one allocated ResourceClaim from YAML or JSON, as "kubectl get resourceclaim -o yaml" prints it, so that
// an operator can plan a claim without a cluster. It is strict: an unknown or repeated field, another kind or a second
// document is an error. A claim that is not allocated is [ErrNotAllocated].
func Parse(text []byte) (*resourceapi.ResourceClaim, error) {
	raw, err := v1alpha1.YAMLToJSON(text)
	if err != nil {
		return nil, fmt.Errorf("parse ResourceClaim: %w", err)
	}
	c, err := parse(raw)
	if err != nil {
		return nil, fmt.Errorf("parse ResourceClaim: %w", err)
	}
	if c.Status.Allocation == nil {
		return nil, fmt.Errorf("claim %s/%s: %w: it is not allocated, or this is not what the API server has; "+
			"once its pod is scheduled, get it with: kubectl get resourceclaim -n %s %s -o yaml",
			c.Namespace, c.Name, ErrNotAllocated, cmp.Or(c.Namespace, "NAMESPACE"), cmp.Or(c.Name, "NAME"))
	}
	return c, nil
}

// parse reads a claim from JSON.
func parse(raw []byte) (*resourceapi.ResourceClaim, error) {
	if err := checkMeta(raw); err != nil {
		return nil, err
	}
	c := &resourceapi.ResourceClaim{}
	strict, err := kjson.UnmarshalStrict(raw, c)
	if err != nil {
		return nil, err
	}
	if len(strict) > 0 {
		return nil, oneLine(strict)
	}
	c.APIVersion = apiV1
	return c, nil
}

// checkMeta checks that raw is a ResourceClaim of a supported version.
func checkMeta(raw []byte) error {
	var m struct{ APIVersion, Kind string }
	if err := json.Unmarshal(raw, &m); err != nil {
		return errors.New("it is not an object with apiVersion and kind")
	}
	if m.Kind != "ResourceClaim" {
		return fmt.Errorf("kind is %.80q, want one ResourceClaim%s", m.Kind, hint(m.Kind))
	}
	if m.APIVersion != apiV1 && m.APIVersion != apiV1beta2 {
		return fmt.Errorf("apiVersion is %.80q, want %s; get it with: kubectl get resourceclaims.v1.resource.k8s.io -o yaml NAME",
			m.APIVersion, apiV1)
	}
	return nil
}

// hint returns the way to get a claim from the given object.
func hint(kind string) string {
	switch kind {
	case "List", "ResourceClaimList":
		return "; name the claim: kubectl get resourceclaim NAME -o yaml"
	case "ResourceClaimTemplate", "Pod":
		return "; the claim made for the pod is named in the pod's status.resourceClaimStatuses"
	}
	return ""
}

// oneLine joins the errors of the strict reader, which returns up to 100.
func oneLine(errs []error) error {
	const most = 10
	var texts []string
	for _, err := range errs[:min(len(errs), most)] {
		texts = append(texts, err.Error())
	}
	return errors.New(strings.Join(texts, "; "))
}
