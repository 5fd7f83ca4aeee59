package claim

import (
	"errors"
	"fmt"
)

// ErrNotOurs says that a claim holds no device of our driver.
var ErrNotOurs = errors.New("no device of our driver is allocated")

// ErrNotAllocated says that a claim has no status.allocation. The scheduler
// writes it once a pod uses the claim.
var ErrNotAllocated = errors.New("status.allocation is missing")

// PodGroupError says that a claim is reserved for a PodGroup instead of a pod.
type PodGroupError struct {
	// Group is the PodGroup's name, in the claim's namespace.
	Group string
}

func (e *PodGroupError) Error() string {
	return fmt.Sprintf("the pods of PodGroup %q share it, and a device goes into the VM of one pod: give each pod a claim of its own "+
		"(resourceClaimTemplateName in the pod's spec.resourceClaims) and remove the claim from the PodGroup's spec.resourceClaims", e.Group)
}
