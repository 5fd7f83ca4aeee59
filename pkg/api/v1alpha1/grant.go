package v1alpha1

import (
	"slices"
	"strings"
)

// AnnotationNamespaces is the annotation of a DeviceClass that names the
// namespaces whose claims may get our devices by it: "team-a,team-b", or
// [AllNamespaces] for all.
const AnnotationNamespaces = DriverName + "/namespaces"

// AllNamespaces grants a DeviceClass to every namespace.
const AllNamespaces = "*"

// Grants reports whether a DeviceClass with the annotations may be used by the
// claims of a namespace. A class without [AnnotationNamespaces] is granted to
// nobody. Names are separated by commas and compared as they are; there are no
// patterns but [AllNamespaces]. The chart's policy tenant-classes says the same
// in CEL.
func Grants(annotations map[string]string, namespace string) bool {
	if namespace == "" {
		return false
	}
	return slices.ContainsFunc(strings.Split(annotations[AnnotationNamespaces], ","), func(name string) bool {
		name = strings.TrimSpace(name)
		return name == AllNamespaces || name == namespace
	})
}
