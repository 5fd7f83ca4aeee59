package cluster

import (
	"fmt"
	"path"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
	"github.com/kata-vfio/kata-vfio/pkg/cluster"
)

func podChecks() []Check {
	return []Check{
		{ID: "K8S-002", Needs: []string{"pods", "resourceclaims", "runtimeclasses"}, Judge: podsInVMs},
		{ID: "K8S-003", Needs: []string{"runtimeclasses"}, Judge: runtimeClasses},
		{ID: "K8S-012", Needs: []string{"namespaces"}, Judge: podSecurity},
		{ID: "K8S-013", Needs: []string{"pods", "namespaces"}, Judge: escapes},
		{ID: "K8S-016", Needs: []string{"resourceclaims"}, Judge: sharedClaims},
	}
}

func podsInVMs(s *State) []finding.Finding {
	var found []finding.Finding
	holding := 0
	for _, one := range s.Cluster.Pods() {
		p, claims := one.Object, s.deviceClaims(one)
		if len(claims) == 0 || p.Spec.NodeName == "" || one.Ended() {
			continue
		}
		holding++
		class := ""
		if p.Spec.RuntimeClassName != nil {
			class = *p.Spec.RuntimeClassName
		}
		if slices.Contains(s.Options.RuntimeClasses, class) {
			continue
		}
		name := one.Name()
		how := "RuntimeClass " + class
		if class == "" {
			how = "no RuntimeClass"
		}
		found = append(found, of(p.Namespace, fail("pod "+name, fmt.Sprintf("pod %s on %s holds claim %s and has %s", name, p.Spec.NodeName, claims[0].Object.Name, how),
			saw("Pod "+name+" spec.runtimeClassName", class))))
	}
	if holding == 0 {
		return notApplicable("no pod has a device of kata-vfio")
	}
	return orPass(found, output.Count(holding, "pod"))
}

func runtimeClasses(s *State) []finding.Finding {
	var found []finding.Finding
	for _, name := range s.Options.RuntimeClasses {
		handler, ok := s.Cluster.Handler(name)
		switch {
		case !ok:
			found = append(found, fail("RuntimeClass "+name, "RuntimeClass "+name+" is not there"))
		case !strings.HasPrefix(handler, "kata"):
			found = append(found, fail("RuntimeClass "+name, fmt.Sprintf("RuntimeClass %s leads to handler %s, which has no Kata runtime's name", name, handler),
				saw("RuntimeClass "+name+" handler", handler)))
		}
	}
	return orPass(found, strings.Join(s.Options.RuntimeClasses, ", ")+"; what runtime the handler is, each node's audit says (RT-025)")
}

const enforceLabel = "pod-security.kubernetes.io/enforce"

func podSecurity(s *State) []finding.Finding {
	var found []finding.Finding
	tenants := 0
	for i := range s.Namespaces {
		n := &s.Namespaces[i]
		if !s.isTenant(n.Name) || n.Name == s.Options.ProbeNamespace {
			continue
		}
		tenants++
		// Baseline is enough: it forbids host paths, host namespaces and privileged containers.
		if level := n.Labels[enforceLabel]; level != "restricted" && level != "baseline" {
			found = append(found, of(n.Name, fail("namespace "+n.Name, "namespace "+n.Name+" enforces no Pod Security Standard", saw("Namespace "+n.Name+" "+enforceLabel, level))))
		}
	}
	if tenants == 0 {
		return notApplicable("no namespace has the label " + s.Options.TenantLabel)
	}
	return orPass(found, output.Count(tenants, "tenant's namespace"))
}

func escapes(s *State) []finding.Finding {
	var found []finding.Finding
	pods := 0
	for _, one := range s.Cluster.Pods() {
		p := one.Object
		if !s.isTenant(p.Namespace) {
			continue
		}
		pods++
		if how := reachesOut(&p.Spec); how != "" {
			found = append(found, of(p.Namespace, fail("pod "+one.Name(), fmt.Sprintf("pod %s %s", one.Name(), how))))
		}
	}
	return orPass(found, output.Count(pods, "tenants' pod"))
}

// reachesOut names a setting that gives a pod access to its node; empty if there is none.
func reachesOut(spec *corev1.PodSpec) string {
	switch {
	case spec.HostPID:
		return "is in the node's PID namespace"
	case spec.HostNetwork:
		return "is in the node's network namespace"
	}
	for _, v := range spec.Volumes {
		if v.HostPath != nil && isDangerous(v.HostPath.Path) {
			return "mounts the node's " + v.HostPath.Path
		}
	}
	for _, c := range cluster.Containers(spec) {
		if c.SecurityContext != nil && c.SecurityContext.Privileged != nil && *c.SecurityContext.Privileged {
			return "has the privileged container " + c.Name
		}
	}
	return ""
}

// isDangerous reports whether a path of the node is, contains, or is within a path that gives access to devices.
func isDangerous(name string) bool {
	name = path.Clean("/" + name)
	for _, d := range []string{"/dev", "/sys", "/proc", "/run", "/var/run", "/etc/cdi", "/etc/containerd", "/etc/kata-containers", "/var/lib/kubelet", "/var/lib/kata-vfio", "/opt/kata"} {
		if name == "/" || name == d || strings.HasPrefix(name, d+"/") || strings.HasPrefix(d, name+"/") {
			return true
		}
	}
	return false
}

func sharedClaims(s *State) []finding.Finding {
	var found []finding.Finding
	held := 0
	for _, c := range s.Cluster.Claims() {
		if !c.HasOurs() {
			continue
		}
		held++
		if text := s.sharing(c); text != "" {
			found = append(found, of(c.Object.Namespace, fail("claim "+c.Name(), "claim "+c.Name()+" "+text)))
		}
	}
	if held == 0 {
		return notApplicable("no claim has a device of kata-vfio")
	}
	return orPass(found, output.Count(held, "claim"))
}

// sharing says why a claim belongs to several pods or to a PodGroup; empty if it does not. A claim of a PodGroup is never prepared
// by the plugin, and stays allocated after the group's pods have ended.
func (s *State) sharing(c *cluster.Claim) string {
	n := len(c.Object.Status.ReservedFor)
	switch {
	// Without the list of pods, every claim would look unused.
	case c.PodGroup != "" && s.Missing["pods"] == "" && !s.Cluster.IsUsed(c):
		return fmt.Sprintf("holds its devices for PodGroup %q, and no pod uses it", c.PodGroup)
	case c.PodGroup != "":
		return fmt.Sprintf("is reserved for PodGroup %q, whose pods would share its devices", c.PodGroup)
	case n > 1:
		return fmt.Sprintf("is reserved for %d pods", n)
	}
	return ""
}

func pluginChecks() []Check {
	return []Check{
		versionCheck(),
		{ID: "K8S-019", Needs: []string{"clusterroles", "roles", "clusterrolebindings", "rolebindings", "namespaces"}, Judge: pluginPods},
		{ID: "K8S-023", Needs: []string{"daemonsets"}, Judge: pinned},
		{ID: "K8S-034", Needs: []string{"daemonsets", "nodes"}, Judge: onePlugin},
	}
}

func pluginPods(s *State) []finding.Finding {
	namespaced := func(verb, group, resource string) action {
		return action{verb: verb, group: group, resource: resource, namespaced: true}
	}
	return s.nobodyBroad(s.Options.Namespace, namespaced("create", "", "pods/exec"), namespaced("create", "", "pods"),
		namespaced("patch", "apps", "daemonsets"), namespaced("create", "", "serviceaccounts/token"))
}

func pinned(s *State) []finding.Finding {
	var found []finding.Finding
	ours := 0
	for i := range s.DaemonSets {
		d := &s.DaemonSets[i]
		if d.Labels["app.kubernetes.io/name"] != "kata-vfio" {
			continue
		}
		ours++
		if image := unpinned(d); image != "" {
			found = append(found, fail("DaemonSet "+d.Namespace+"/"+d.Name, "DaemonSet "+d.Name+" runs "+image, saw("DaemonSet "+d.Name+" image", image)))
		}
	}
	if ours == 0 {
		return unknown("no DaemonSet of kata-vfio is in namespace " + s.Options.Namespace + " (--namespace)")
	}
	return orPass(found, output.Count(ours, "DaemonSet"))
}

// unpinned returns an image that is named by a tag; empty if there is none.
func unpinned(d *appsv1.DaemonSet) string {
	for _, c := range d.Spec.Template.Spec.Containers {
		if !strings.Contains(c.Image, "@sha256:") {
			return c.Image
		}
	}
	return ""
}
