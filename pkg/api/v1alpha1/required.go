package v1alpha1

import (
	"slices"

	"sigs.k8s.io/yaml"
)

// AnnotationRequiredPlugins is the annotation by which a pod names NRI plugins without which its containers must not start. NRI's
// default validator refuses them while one is not connected. The chart's policy require-plugin sets it.
const AnnotationRequiredPlugins = "required-plugins.noderesource.dev"

// requiredName is the name under which the plugin connects to NRI.
const requiredName = "kata-vfio"

// RequiresPlugin reports whether NRI refuses a pod's container while the plugin is not connected. The annotation of a
// container is used instead of the pod's (NRI: pkg/plugin GetEffectiveAnnotation). A value that is not a list of names
// counts as not requiring it: NRI then refuses the container even if all plugins are connected.
func RequiresPlugin(annotations map[string]string, container string) bool {
	for _, key := range []string{AnnotationRequiredPlugins + "/container." + container, AnnotationRequiredPlugins + "/pod", AnnotationRequiredPlugins} {
		if value, ok := annotations[key]; ok {
			var names []string
			return yaml.Unmarshal([]byte(value), &names) == nil && slices.Contains(names, requiredName)
		}
	}
	return false
}
