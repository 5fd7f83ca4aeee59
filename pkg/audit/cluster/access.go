package cluster

import (
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
)

// action is a request as RBAC sees it.
type action struct {
	verb, group, resource string
	// namespaced is set for namespaced resources, to which a RoleBinding can give access, too.
	namespaced bool
}

func (a action) String() string {
	if a.group == "" {
		return a.verb + " " + a.resource
	}
	return a.verb + " " + a.resource + "." + a.group
}

// whoCan returns the grants that allow the action, anywhere or in the namespace. It leaves out those of the
// control plane itself, which needs no grant.
func (s *State) whoCan(a action, namespace string) []Grant {
	var can []Grant
	for _, g := range s.Grants {
		if g.reaches(a, namespace) && !isControlPlane(&g.Subject) && s.allows(&g, a) {
			can = append(can, g)
		}
	}
	return can
}

// reaches reports whether a grant applies to the objects of an action, anywhere or in the namespace. For RBAC, a Namespace is an object
// in itself, so a RoleBinding in any namespace can permit changes of that namespace's labels.
func (g *Grant) reaches(a action, namespace string) bool {
	isNamespace := a.group == "" && a.resource == "namespaces"
	return g.Namespace == "" || isNamespace || a.namespaced && g.Namespace == namespace
}

func (s *State) allows(g *Grant, a action) bool {
	for i := range s.Roles {
		r := &s.Roles[i]
		home := ""
		// A RoleBinding may also name a ClusterRole. The ClusterRole then applies only in the binding's namespace.
		if g.RoleKind == "Role" {
			home = g.Namespace
		}
		if r.Name == g.Role && r.Namespace == home {
			return slices.ContainsFunc(r.Rules, func(rule rbacv1.PolicyRule) bool { return covers(&rule, a) })
		}
	}
	return false
}

// covers reports whether a rule allows the action on objects of any name, or only of some names. It ignores the names, because the
// object that matters is often among them.
func covers(rule *rbacv1.PolicyRule, a action) bool {
	return has(rule.Verbs, a.verb) && has(rule.APIGroups, a.group) && coversResource(rule.Resources, a.resource)
}

func has(list []string, word string) bool {
	return slices.Contains(list, "*") || slices.Contains(list, word)
}

// coversResource matches "*", "pods/exec", "pods/*" and "*/exec".
func coversResource(list []string, resource string) bool {
	parent, sub, isSub := strings.Cut(resource, "/")
	return has(list, resource) || isSub && (slices.Contains(list, parent+"/*") || slices.Contains(list, "*/"+sub))
}

// isControlPlane reports whether a subject is the control plane or an admin by certificate, which RBAC does not
// restrict.
func isControlPlane(sub *rbacv1.Subject) bool {
	switch sub.Kind {
	case rbacv1.GroupKind:
		return sub.Name == "system:masters" || sub.Name == "system:nodes"
	case rbacv1.UserKind:
		// kube-scheduler, kube-controller-manager and kube-proxy.
		return strings.HasPrefix(sub.Name, "system:kube-") || sub.Name == "system:apiserver"
	case rbacv1.ServiceAccountKind:
		return sub.Namespace == "kube-system"
	}
	return false
}

// isBroad reports whether a subject is all users, or all users of a tenant.
func (s *State) isBroad(sub *rbacv1.Subject) bool {
	switch sub.Kind {
	case rbacv1.ServiceAccountKind:
		return s.isTenant(sub.Namespace)
	case rbacv1.UserKind:
		return sub.Name == "system:anonymous"
	}
	if slices.Contains([]string{"system:authenticated", "system:unauthenticated", "system:serviceaccounts"}, sub.Name) {
		return true
	}
	namespace, ok := strings.CutPrefix(sub.Name, "system:serviceaccounts:")
	return ok && s.isTenant(namespace)
}

// String names the subject and the binding that includes it.
func (g *Grant) String() string {
	who := strings.ToLower(g.Subject.Kind) + " " + g.Subject.Name
	if g.Subject.Kind == rbacv1.ServiceAccountKind {
		who = "service account " + g.Subject.Namespace + "/" + g.Subject.Name
	}
	where := ""
	if g.Namespace != "" {
		where = " in " + g.Namespace
	}
	return fmt.Sprintf("%s by %s%s", who, g.Binding, where)
}

func accessChecks() []Check {
	rbac := []string{"clusterroles", "roles", "clusterrolebindings", "rolebindings", "namespaces"}
	return []Check{
		{ID: "K8S-004", Needs: rbac, Judge: adminNamespaces},
		{ID: "K8S-005", Needs: []string{"resourceclaims", "namespaces"}, Judge: adminClaims},
		{ID: "K8S-006", Needs: rbac, Judge: func(s *State) []finding.Finding {
			return s.nobodyBroad("", action{verb: "create", group: "resource.k8s.io", resource: "deviceclasses"},
				action{verb: "update", group: "resource.k8s.io", resource: "deviceclasses"}, action{verb: "patch", group: "resource.k8s.io", resource: "deviceclasses"})
		}},
	}
}

const adminLabel = "resource.kubernetes.io/admin-access"

func adminNamespaces(s *State) []finding.Finding {
	found := s.failing("", action{verb: "update", resource: "namespaces"}, action{verb: "patch", resource: "namespaces"})
	var labeled []string
	for i := range s.Namespaces {
		n := &s.Namespaces[i]
		if n.Labels[adminLabel] != "true" {
			continue
		}
		labeled = append(labeled, n.Name)
		if s.isTenant(n.Name) {
			found = append(found, of(n.Name, fail("namespace "+n.Name, "namespace "+n.Name+" is a tenant's and has admin access", saw("Namespace "+n.Name+" "+adminLabel, "true"))))
		}
	}
	return orPass(found, fmt.Sprintf("%s with the label", output.Count(len(labeled), "namespace")), saw("namespaces with "+adminLabel, strings.Join(labeled, " ")))
}

func adminClaims(s *State) []finding.Finding {
	var found []finding.Finding
	for _, one := range s.Cluster.Claims() {
		c := one.Object
		asks := slices.ContainsFunc(c.Spec.Devices.Requests, func(r resourceapi.DeviceRequest) bool {
			return r.Exactly != nil && r.Exactly.AdminAccess != nil && *r.Exactly.AdminAccess
		})
		if asks && s.isTenant(c.Namespace) {
			found = append(found, of(c.Namespace, fail("claim "+one.Name(), "claim "+one.Name()+" has admin access")))
		}
	}
	return orPass(found, output.Count(len(s.Cluster.Claims()), "claim"))
}

// nobodyBroad fails for each subject that may do one of the actions and includes all users, or those of a tenant;
// other subjects are evidence.
func (s *State) nobodyBroad(namespace string, actions ...action) []finding.Finding {
	var others []string
	for _, a := range actions {
		for _, g := range s.whoCan(a, namespace) {
			if who := g.String(); !s.isBroad(&g.Subject) && !slices.Contains(others, who) {
				others = append(others, who)
			}
		}
	}
	slices.Sort(others)
	return orPass(s.failing(namespace, actions...), output.Count(len(others), "subject")+" may", saw("RBAC: who may "+actions[0].String(), strings.Join(others, "; ")))
}

func (s *State) failing(namespace string, actions ...action) []finding.Finding {
	var found []finding.Finding
	for _, a := range actions {
		for _, g := range s.whoCan(a, namespace) {
			if s.isBroad(&g.Subject) {
				found = append(found, fail(g.String(), fmt.Sprintf("%s may %s", g.String(), a), saw("RBAC: binding "+g.Binding, g.RoleKind+" "+g.Role)))
			}
		}
	}
	return found
}
