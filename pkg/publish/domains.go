package publish

import (
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/kata-vfio/kata-vfio/pkg/isolation"
)

// domains returns the exclusive domains around the functions of a device, for [AttrExclusiveDomains]; empty if there are none.
func domains(n *Node, e *entry) string {
	if n.made == nil {
		return "" // the usual node: nothing is computed for each function
	}
	var keys []string
	for _, p := range e.parts() {
		if p.f == nil { // the function of an allocated device is gone, and its domains can't be known
			return string(isolation.NodeDomain)
		}
		around, _ := n.made.Around(p.f)
		for _, d := range around {
			if key := d.Key(); !slices.Contains(keys, key) {
				keys = append(keys, key)
			}
		}
	}
	text := strings.Join(keys, ",")
	// The whole node contains every domain. A domain that is too large can only refuse a claim; a list that is cut off would admit one.
	if len(text) > resourceapi.DeviceAttributeMaxValueLength {
		return string(isolation.NodeDomain)
	}
	return text
}

// waitsForDomains reports whether a pod with the device must wait until the domains around the device are reserved for the pod's tenant.
func waitsForDomains(n *Node, e *entry) bool {
	return slices.ContainsFunc(e.parts(), func(p part) bool {
		if p.f == nil {
			return false
		}
		_, reserve := n.made.Around(p.f)
		return reserve
	})
}
