// Package podpolicy says what a pod must not ask for beside its claims: annotations that name devices or change its VM, and mounts
// that show VFIO nodes of the node.
//
// The same rule holds three times, each time earlier and with less knowledge: package nri applies it to what the runtime is about
// to start, package dra to a pod whose claim is prepared, before its VM boots, and the chart's admission policies to a pod that is
// created. What an earlier one lets pass, a later one refuses.
package podpolicy

import (
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/cdi"
)

// Prefixes of annotations, in lower case.
const (
	cdiAnnotations  = "cdi.k8s.io/"
	kataAnnotations = "io.katacontainers."
)

// Refusal is an annotation or a mount that the pod must not have.
type Refusal struct {
	// Subject is the annotation's key, or the path on the node.
	Subject string
	// Text is the problem, and Fix the remedy. Both are complete phrases.
	Text, Fix string
}

// Annotations returns the first annotation, by key, that a pod must not have; nil if it may have all. inVM is true if
// the pod's handler gives it its own VM with devices of kata-vfio. The rules for a container's annotations are the same.
func Annotations(annotations map[string]string, inVM bool) *Refusal {
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		if why := refused(strings.ToLower(key), annotations[key], inVM); why != "" {
			return &Refusal{
				Subject: key, Text: "the annotation " + key + " " + why,
				Fix: "remove it from the pod; devices come by ResourceClaims, and the VM's settings from the RuntimeClass",
			}
		}
	}
	return nil
}

// refused says why an annotation is refused; empty when it is not. None of Kata's is let through: Kata's enable_annotations holds those of
// the hypervisor back, but not those of the runtime and the agent.
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
func namesOurs(value string) bool { return strings.Contains(strings.ToLower(value), cdi.Kind+"=") }

// HostPath returns why a path of the node must not be mounted into a container; nil when it may be. A mount of the node's whole root,
// which shows /dev too, is for the admission policies of tenants: agents that only read mount it as well.
func HostPath(source string) *Refusal {
	if source = path.Clean(source); source != "/dev" && !IsVFIO(source) {
		return nil
	}
	return &Refusal{
		Subject: source, Text: "its mount of " + source + " shows the host's VFIO nodes",
		Fix: "remove the mount from the pod; devices come by ResourceClaims",
	}
}

// IsVFIO reports whether Kata or the kernel takes a path for a VFIO node or the directory of such nodes. Kata looks at the beginning of
// the path as it is written.
func IsVFIO(p string) bool {
	return p == "/dev/vfio" || strings.HasPrefix(p, "/dev/vfio/") || p == "/dev/iommu"
}
