package claim

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// NamesOfPod returns the names of a pod's claims, sorted, made from templates and by extended
// resources included. One that is not made yet is not among them.
func NamesOfPod(p *corev1.Pod) []string {
	var names []string
	for _, ref := range p.Spec.ResourceClaims {
		if ref.ResourceClaimName != nil {
			names = append(names, *ref.ResourceClaimName)
		}
	}
	for _, st := range p.Status.ResourceClaimStatuses {
		if st.ResourceClaimName != nil {
			names = append(names, *st.ResourceClaimName)
		}
	}
	if st := p.Status.ExtendedResourceClaimStatus; st != nil {
		names = append(names, st.ResourceClaimName)
	}
	slices.Sort(names)
	return slices.Compact(names)
}
