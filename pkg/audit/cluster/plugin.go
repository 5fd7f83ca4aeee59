package cluster

import (
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
)

func pluginChecks() []Check {
	return []Check{
		{
			Rule: finding.Rule{
				ID: "K8S-009", Title: "Ensure that the API server has no known hole in DRA's authorization", Severity: low,
				Why:     "In 1.32.0 to 1.32.5 and 1.33.0 to 1.33.1, mirror pods bypass the authorization of claims.",
				Fix:     "upgrade the API server",
				Verify:  "kubectl version",
				Sources: []string{"CVE-2025-4563"},
			}, judge: serverVersion,
		},
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

func serverVersion(s *State) []finding.Finding {
	var minor, patch int
	if _, err := fmt.Sscanf(s.Version, "v1.%d.%d", &minor, &patch); err != nil {
		return unknown("the version " + s.Version + " is none that is known")
	}
	if minor == 32 && patch <= 5 || minor == 33 && patch <= 1 {
		return []finding.Finding{fail("", "the API server is "+s.Version, saw("/version", s.Version))}
	}
	return pass(s.Version)
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
	return orPass(found, count(ours, "DaemonSet"))
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
