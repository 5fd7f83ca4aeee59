package cluster

import (
	"fmt"
	"path"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/cli/terminal"
	"github.com/kata-vfio/kata-vfio/pkg/cluster"
)

func podChecks() []Check {
	return []Check{
		{
			Rule: finding.Rule{
				ID: "K8S-002", Title: "Ensure that every pod with a device runs in a VM", Severity: critical,
				Why:    "A pod may be older than the policy.",
				Fix:    "delete the pod; then find out how it was admitted (`kubectl get events`, the API server's audit log)",
				Verify: "kubectl get pods -A -o custom-columns=NS:.metadata.namespace,POD:.metadata.name,CLASS:.spec.runtimeClassName,CLAIMS:.status.resourceClaimStatuses",
			}, needs: []string{"pods", "resourceclaims", "runtimeclasses"}, judge: podsInVMs,
		},
		{
			Rule: finding.Rule{
				ID: "K8S-003", Title: "Ensure that RuntimeClasses that may have devices use a Kata handler of that name", Severity: critical,
				Why:    "Policies go by the name. Another handler defeats them.",
				Fix:    "install the chart with runtimeClass.enabled=true, or correct the RuntimeClass's handler",
				Verify: "kubectl get runtimeclass -o custom-columns=NAME:.metadata.name,HANDLER:.handler",
			}, needs: []string{"runtimeclasses"}, judge: runtimeClasses,
		},
		{
			Rule: finding.Rule{
				ID: "K8S-012", Title: "Ensure that tenants' namespaces enforce a Pod Security Standard", Severity: high,
				Why:    "A privileged pod reaches every device of its node.",
				Fix:    "`kubectl label namespace NAMESPACE pod-security.kubernetes.io/enforce=restricted`, or `baseline`",
				Verify: "kubectl get namespaces -L pod-security.kubernetes.io/enforce",
			}, needs: []string{"namespaces"}, judge: podSecurity,
		},
		{
			Rule: finding.Rule{
				ID: "K8S-013", Title: "Ensure that no tenant's pod has host access", Severity: critical,
				Why:    "Privileged containers, the host's PID namespace and host paths such as /dev or /run give access to devices.",
				Fix:    "delete the pod; enforce a Pod Security Standard in its namespace (K8S-012)",
				Verify: "kubectl get pod -n NAMESPACE POD -o yaml",
			}, needs: []string{"pods", "namespaces"}, judge: escapes,
		},
		{
			Rule: finding.Rule{
				ID: "K8S-016", Title: "Ensure that a claim is reserved for one pod", Severity: medium,
				Why:    "A device goes into one VM. Other pods of the claim wait or fail.",
				Fix:    "give each pod its own claim by a ResourceClaimTemplate; recreate a PodGroup that holds one without resourceClaims, which can't be changed",
				Verify: "kubectl get resourceclaims -A -o custom-columns=NS:.metadata.namespace,CLAIM:.metadata.name,FOR:.status.reservedFor[*].name",
			}, needs: []string{"resourceclaims"}, judge: sharedClaims,
		},
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
	return orPass(found, terminal.Count(holding, "pod"))
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
		if level := n.Labels[enforceLabel]; level != "restricted" && level != "baseline" {
			found = append(found, of(n.Name, fail("namespace "+n.Name, "namespace "+n.Name+" enforces no Pod Security Standard", saw("Namespace "+n.Name+" "+enforceLabel, level))))
		}
	}
	if tenants == 0 {
		return notApplicable("no namespace has the label " + s.Options.TenantLabel)
	}
	return orPass(found, terminal.Count(tenants, "tenant's namespace"))
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
	return orPass(found, terminal.Count(pods, "tenants' pod"))
}

// reachesOut names what gives a pod access to its node; empty for nothing.
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
	for _, c := range slices.Concat(spec.InitContainers, spec.Containers) {
		if c.SecurityContext != nil && c.SecurityContext.Privileged != nil && *c.SecurityContext.Privileged {
			return "has the privileged container " + c.Name
		}
	}
	return ""
}

// isDangerous reports whether a path of the node is, contains or is within one that gives access to devices.
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
	return orPass(found, terminal.Count(held, "claim"))
}

// sharing says by what a claim is not one pod's; empty if it is. The plugin prepares no claim of a PodGroup, and it stays allocated
// after the group's pods have ended.
func (s *State) sharing(c *cluster.Claim) string {
	n := len(c.Object.Status.ReservedFor)
	switch {
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
		{
			Rule: finding.Rule{
				ID: "K8S-019", Title: "Ensure that only admins can enter the plugin's pods", Severity: high,
				Why:    "The plugin's pods are root on their nodes. Exec into one, or a pod in its namespace, gives access to every device.",
				Fix:    "remove these verbs in the plugin's namespace from the named subjects",
				Verify: "kubectl auth can-i create pods/exec -n NAMESPACE --as=SUBJECT",
			}, needs: []string{"clusterroles", "roles", "clusterrolebindings", "rolebindings", "namespaces"}, judge: pluginPods,
		},
		{
			Rule: finding.Rule{
				ID: "K8S-023", Title: "Ensure that the plugin's image is pinned by digest", Severity: medium,
				Why:    "Whoever can move a tag in the registry is root on every node with devices.",
				Fix:    "set image.digest of the chart",
				Verify: "kubectl get daemonsets -n NAMESPACE -o custom-columns=NAME:.metadata.name,IMAGE:.spec.template.spec.containers[*].image",
			}, needs: []string{"daemonsets"}, judge: pinned,
		},
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
	return orPass(found, terminal.Count(ours, "DaemonSet"))
}

// unpinned returns an image that is named by a tag; empty where there is none.
func unpinned(d *appsv1.DaemonSet) string {
	for _, c := range d.Spec.Template.Spec.Containers {
		if !strings.Contains(c.Image, "@sha256:") {
			return c.Image
		}
	}
	return ""
}
