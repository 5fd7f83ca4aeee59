package cluster

import (
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
)

// class is a DeviceClass, and whether it is ours.
type class struct {
	object *resourceapi.DeviceClass
	ours   bool
}

// isOurs reports whether a DeviceClass asks for kata-vfio's driver: the class has kata-vfio's domain or annotation, or its parameters or
// selectors name the driver. The chart's policy tenant-classes uses the same rule.
func isOurs(c *resourceapi.DeviceClass) bool {
	_, annotated := c.Annotations[v1alpha1.AnnotationNamespaces]
	if annotated || hasOurDomain(c.Name) {
		return true
	}
	if slices.ContainsFunc(c.Spec.Config, func(config resourceapi.DeviceClassConfiguration) bool {
		return config.Opaque != nil && config.Opaque.Driver == v1alpha1.DriverName
	}) {
		return true
	}
	return slices.ContainsFunc(c.Spec.Selectors, func(sel resourceapi.DeviceSelector) bool {
		// An expression that excludes our driver also names it, and makes the class ours. That errs on the strict side.
		return sel.CEL != nil && strings.Contains(sel.CEL.Expression, v1alpha1.DriverName)
	})
}

func hasOurDomain(class string) bool { return strings.HasSuffix(class, "."+v1alpha1.DriverName) }

// OurClasses returns the DeviceClasses of ours, by name.
func (c *Cluster) OurClasses() []*resourceapi.DeviceClass {
	var ours []*resourceapi.DeviceClass
	for _, k := range inOrder(c.classes) {
		if k.ours {
			ours = append(ours, k.object)
		}
	}
	return ours
}

// IsOurClass reports whether the DeviceClass with the name is one of kata-vfio. A class that was not added, because it was deleted or the
// caller may not list DeviceClasses, is judged by its name.
func (c *Cluster) IsOurClass(name string) bool {
	if k, known := c.classes[name]; known {
		return k.ours
	}
	return hasOurDomain(name)
}

// IsOurs reports whether a claim has devices of kata-vfio, or waits for some: it names a DeviceClass of kata-vfio, or has parameters for
// the driver.
func (c *Cluster) IsOurs(claim *Claim) bool {
	if claim.HasOurs() || len(claim.Statuses) > 0 {
		return true
	}
	if claim.Object.Status.Allocation != nil {
		return false
	}
	spec := &claim.Object.Spec.Devices
	return slices.ContainsFunc(spec.Requests, c.asksForOurs) || slices.ContainsFunc(spec.Config, func(p resourceapi.DeviceClaimConfiguration) bool {
		return p.Opaque != nil && p.Opaque.Driver == v1alpha1.DriverName
	})
}

func (c *Cluster) asksForOurs(r resourceapi.DeviceRequest) bool {
	return r.Exactly != nil && c.IsOurClass(r.Exactly.DeviceClassName) ||
		slices.ContainsFunc(r.FirstAvailable, func(sub resourceapi.DeviceSubRequest) bool { return c.IsOurClass(sub.DeviceClassName) })
}
