package cluster

import (
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
)

// action is a request as RBAC sees it.
type action struct {
	verb, group, resource string
	// namespaced is set for resources of namespaces, which a RoleBinding gives, too.
	namespaced bool
}

func (a action) String() string {
	if a.group == "" {
		return a.verb + " " + a.resource
	}
	return a.verb + " " + a.resource + "." + a.group
}

// whoCan returns the grants that allow the action, anywhere or in the namespace.
// Those of the control plane itself are left out: who is it needs no grant.
func (s *State) whoCan(a action, namespace string) []Grant {
	var can []Grant
	for _, g := range s.Grants {
		inReach := g.Namespace == "" || a.namespaced && g.Namespace == namespace
		if inReach && !isControlPlane(&g.Subject) && s.allows(&g, a) {
			can = append(can, g)
		}
	}
	return can
}

func (s *State) allows(g *Grant, a action) bool {
	for i := range s.Roles {
		r := &s.Roles[i]
		home := ""
		if g.RoleKind == "Role" {
			home = g.Namespace
		}
		if r.Name == g.Role && r.Namespace == home {
			return slices.ContainsFunc(r.Rules, func(rule rbacv1.PolicyRule) bool { return covers(&rule, a) })
		}
	}
	return false
}

// covers reports whether a rule allows the action on objects of any name, or of
// some: what it can do to one it can often do to the one that matters.
func covers(rule *rbacv1.PolicyRule, a action) bool {
	return has(rule.Verbs, a.verb) && has(rule.APIGroups, a.group) && coversResource(rule.Resources, a.resource)
}

func has(list []string, word string) bool {
	return slices.Contains(list, "*") || slices.Contains(list, word)
}

// coversResource knows "*", "pods/exec", "pods/*" and "*/exec".
func coversResource(list []string, resource string) bool {
	parent, sub, isSub := strings.Cut(resource, "/")
	return has(list, resource) || isSub && (slices.Contains(list, parent+"/*") || slices.Contains(list, "*/"+sub))
}

// isControlPlane reports whether a subject is the control plane or an admin by
// certificate, about whom RBAC has no say.
func isControlPlane(sub *rbacv1.Subject) bool {
	switch sub.Kind {
	case rbacv1.GroupKind:
		return sub.Name == "system:masters" || sub.Name == "system:nodes"
	case rbacv1.UserKind:
		return strings.HasPrefix(sub.Name, "system:kube-") || sub.Name == "system:apiserver"
	case rbacv1.ServiceAccountKind:
		return sub.Namespace == "kube-system"
	}
	return false
}

// isBroad reports whether a subject is everybody, or everybody of a tenant.
func (s *State) isBroad(sub *rbacv1.Subject) bool {
	switch sub.Kind {
	case rbacv1.ServiceAccountKind:
		return s.IsTenant(sub.Namespace)
	case rbacv1.UserKind:
		return sub.Name == "system:anonymous"
	}
	if slices.Contains([]string{"system:authenticated", "system:unauthenticated", "system:serviceaccounts"}, sub.Name) {
		return true
	}
	namespace, ok := strings.CutPrefix(sub.Name, "system:serviceaccounts:")
	return ok && s.IsTenant(namespace)
}

// String names the subject and how it comes by it.
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
