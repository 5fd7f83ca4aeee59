package cluster

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/cli/terminal"
)

func requiredChecks() []Check {
	return []Check{{
		Rule: finding.Rule{
			ID: "K8S-032", Title: "Ensure that containerd starts no pod in a VM without the plugin's check", Severity: high,
			Why:     "A pod without the annotation starts unchecked while the NRI plugin is not connected, whether or not it has a claim: a mount of a device node is not refused then.",
			Fix:     "install the chart with admission.requirePlugin.enabled (needs MutatingAdmissionPolicy), and create the pod again; without such policies, set the annotation `" + v1alpha1.AnnotationRequiredPlugins + ": \"[ kata-vfio ]\"` in the pod's template",
			Verify:  `kubectl get pods -A -o custom-columns='NS:.metadata.namespace,POD:.metadata.name,CLASS:.spec.runtimeClassName,NRI:.metadata.annotations.required-plugins\.noderesource\.dev'`,
			Sources: []string{"nri v0.12: plugins/default-validator", "containerd 2.4: docs/NRI.md"},
		}, needs: []string{"pods", "runtimeclasses"}, judge: pluginRequired,
	}}
}

// pluginRequired looks at each pod that runs or will run in a VM of our handlers, in any namespace.
func pluginRequired(s *State) []finding.Finding {
	var found []finding.Finding
	inVM := 0
	for i := range s.Pods {
		p := &s.Pods[i]
		if !s.runsInOurVM(p) || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
			continue
		}
		inVM++
		name := p.Namespace + "/" + p.Name
		for _, container := range containersOf(&p.Spec) {
			if !v1alpha1.RequiresPlugin(p.Annotations, container) {
				text := fmt.Sprintf("pod %s with RuntimeClass %s starts container %s also while the plugin is not connected", name, *p.Spec.RuntimeClassName, container)
				found = append(found, of(p.Namespace, fail("pod "+name, text, saw("Pod "+name+" "+v1alpha1.AnnotationRequiredPlugins, p.Annotations[v1alpha1.AnnotationRequiredPlugins]))))
				break
			}
		}
	}
	if inVM == 0 {
		return notApplicable("no pod runs in a VM that may have devices")
	}
	return orPass(found, terminal.Count(inVM, "pod"))
}

// runsInOurVM reports whether the pod's RuntimeClass is one that may have devices, or leads to the handler of one.
func (s *State) runsInOurVM(p *corev1.Pod) bool {
	if p.Spec.RuntimeClassName == nil {
		return false
	}
	name := *p.Spec.RuntimeClassName
	return slices.Contains(s.Options.RuntimeClasses, name) || slices.Contains(s.ourHandlers(), s.handlerOf(name))
}

// ourHandlers returns the handlers of the RuntimeClasses that may have devices.
func (s *State) ourHandlers() []string {
	var handlers []string
	for _, name := range s.Options.RuntimeClasses {
		if handler := s.handlerOf(name); handler != "" {
			handlers = append(handlers, handler)
		}
	}
	return handlers
}

// handlerOf returns the handler of a RuntimeClass, or "" if there is no such class.
func (s *State) handlerOf(class string) string {
	for i := range s.RuntimeClasses {
		if s.RuntimeClasses[i].Name == class {
			return s.RuntimeClasses[i].Handler
		}
	}
	return ""
}

// containersOf returns the names of all containers of a pod.
func containersOf(spec *corev1.PodSpec) []string {
	var names []string
	for _, c := range slices.Concat(spec.InitContainers, spec.Containers) {
		names = append(names, c.Name)
	}
	for i := range spec.EphemeralContainers {
		names = append(names, spec.EphemeralContainers[i].Name)
	}
	return names
}
