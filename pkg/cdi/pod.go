package cdi

import (
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// What a pod must not request besides its claims: annotations that name devices or change its VM, and mounts that show VFIO nodes of
// the node. The same rules apply three times: in the chart's admission policies when a pod is created, in package dra when its claim is
// prepared, before its VM boots, and in package nri when the runtime starts it. Later checks know more, and refuse what earlier ones
// miss.

// Prefixes of annotations, in lower case.
const (
	cdiAnnotations  = "cdi.k8s.io/"
	kataAnnotations = "io.katacontainers."
)

// CheckAnnotations returns the first annotation, by key, that a pod must not have; nil if it may have all. inVM is true if
// the pod's handler gives it its own VM with devices of kata-vfio. The rules for a container's annotations are the same.
func CheckAnnotations(annotations map[string]string, inVM bool) *rule.Verdict {
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		if why := refused(strings.ToLower(key), annotations[key], inVM); why != "" {
			return &rule.Verdict{
				Code: rule.AnnotationNotAllowed, Object: key, Text: "the annotation " + key + " " + why,
				Fix: "remove it from the pod; devices come by ResourceClaims, and the VM's settings from the RuntimeClass",
			}
		}
	}
	return nil
}

// refused says why an annotation is refused, or returns "". In a VM it refuses all of Kata's: Kata's enable_annotations
// restricts those of the hypervisor, but not those of the runtime and the agent.
func refused(key, value string, inVM bool) string {
	switch {
	case strings.HasPrefix(key, cdiAnnotations) && (inVM || namesOurs(value)):
		return "could give it devices that it has no claim for"
	case strings.HasPrefix(key, kataAnnotations) && inVM:
		return "could change its VM"
	}
	return ""
}

// namesOurs reports whether the value of a CDI annotation names a device of our kind.
func namesOurs(value string) bool { return strings.Contains(strings.ToLower(value), Kind+"=") }

// CheckHostPath returns why a path of the node must not be mounted into a container, or nil. It allows the node's root,
// although that shows /dev, because agents mount it to read. The admission policies refuse it for tenants.
func CheckHostPath(source string) *rule.Verdict {
	if source = path.Clean(source); source != "/dev" && !IsVFIO(source) {
		return nil
	}
	return &rule.Verdict{
		Code: rule.MountNotAllowed, Object: source, Text: "its mount of " + source + " shows the host's VFIO nodes",
		Fix: "remove the mount from the pod; devices come by ResourceClaims",
	}
}

// IsVFIO reports whether Kata or the kernel treats a path as a VFIO node or the directory of such nodes. Kata compares
// the beginning of the unresolved path.
func IsVFIO(p string) bool {
	return p == "/dev/vfio" || strings.HasPrefix(p, "/dev/vfio/") || p == "/dev/iommu"
}
