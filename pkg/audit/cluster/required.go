package cluster

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
	"github.com/kata-vfio/kata-vfio/pkg/cluster"
)

func requiredChecks() []Check {
	return []Check{{ID: "K8S-032", Needs: []string{"pods", "runtimeclasses"}, Judge: pluginRequired}}
}

// pluginRequired judges each pod that runs or will run in a VM of our handlers, in any namespace.
func pluginRequired(s *State) []finding.Finding {
	var found []finding.Finding
	inVM := 0
	handlers := s.ourHandlers()
	for _, one := range s.Cluster.Pods() {
		p := one.Object
		if one.Ended() || !s.runsInOurVM(p, handlers) {
			continue
		}
		inVM++
		name := one.Name()
		for _, c := range cluster.Containers(&p.Spec) {
			if !v1alpha1.RequiresPlugin(p.Annotations, c.Name) {
				text := fmt.Sprintf("pod %s with RuntimeClass %s starts container %s also while the plugin is not connected", name, *p.Spec.RuntimeClassName, c.Name)
				found = append(found, of(p.Namespace, fail("pod "+name, text, saw("Pod "+name+" "+v1alpha1.AnnotationRequiredPlugins, p.Annotations[v1alpha1.AnnotationRequiredPlugins]))))
				break
			}
		}
	}
	if inVM == 0 {
		return notApplicable("no pod runs in a VM that may have devices")
	}
	return orPass(found, output.Count(inVM, "pod"))
}

// runsInOurVM reports whether the pod's RuntimeClass is one that may have devices, or leads to the handler of one.
func (s *State) runsInOurVM(p *corev1.Pod, ourHandlers []string) bool {
	if p.Spec.RuntimeClassName == nil {
		return false
	}
	name := *p.Spec.RuntimeClassName
	handler, _ := s.Cluster.Handler(name)
	return slices.Contains(s.Options.RuntimeClasses, name) || slices.Contains(ourHandlers, handler)
}

// ourHandlers returns the handlers of the RuntimeClasses that may have devices.
func (s *State) ourHandlers() []string {
	var handlers []string
	for _, name := range s.Options.RuntimeClasses {
		if handler, _ := s.Cluster.Handler(name); handler != "" {
			handlers = append(handlers, handler)
		}
	}
	return handlers
}
