package cluster

import (
	"fmt"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
)

func accessChecks() []Check {
	rbac := []string{"clusterroles", "roles", "clusterrolebindings", "rolebindings", "namespaces"}
	return []Check{
		{
			Rule: finding.Rule{
				ID: "K8S-004", Title: "Ensure that only admins decide which namespaces have admin access", Severity: high,
				Why:     "A namespace label allows adminAccess, which reaches devices in use.",
				Fix:     "remove update and patch of namespaces from the named subjects; remove unneeded labels",
				Verify:  "kubectl get namespaces -l resource.kubernetes.io/admin-access=true",
				Sources: []string{"KEP-5018"},
			}, needs: rbac, judge: adminNamespaces,
		},
		{
			Rule: finding.Rule{
				ID: "K8S-005", Title: "Ensure that no tenant's claim has admin access", Severity: critical,
				Why:    "Such a claim gets devices of other tenants.",
				Fix:    "delete the claim",
				Verify: "kubectl get resourceclaims -A -o json | jq '.items[] | select(.spec.devices.requests[]?.exactly.adminAccess)'",
			}, needs: []string{"resourceclaims", "namespaces"}, judge: adminClaims,
		},
		{
			Rule: finding.Rule{
				ID: "K8S-006", Title: "Ensure that only admins change DeviceClasses", Severity: high,
				Why:    "A DeviceClass may weaken isolation and selects the devices.",
				Fix:    "remove these verbs on deviceclasses from the named subjects",
				Verify: "kubectl auth can-i update deviceclasses --as=SUBJECT",
			}, needs: rbac, judge: func(s *State) []finding.Finding {
				return s.nobodyBroad("", action{verb: "create", group: "resource.k8s.io", resource: "deviceclasses"},
					action{verb: "update", group: "resource.k8s.io", resource: "deviceclasses"}, action{verb: "patch", group: "resource.k8s.io", resource: "deviceclasses"})
			},
		},
	}
}

const adminLabel = "resource.kubernetes.io/admin-access"

func adminNamespaces(s *State) []finding.Finding {
	found := s.failing("", action{verb: "update", resource: "namespaces"}, action{verb: "patch", resource: "namespaces"})
	var labelled []string
	for i := range s.Namespaces {
		n := &s.Namespaces[i]
		if n.Labels[adminLabel] != "true" {
			continue
		}
		labelled = append(labelled, n.Name)
		if s.IsTenant(n.Name) {
			found = append(found, of(n.Name, fail("namespace "+n.Name, "namespace "+n.Name+" is a tenant's and has admin access", saw("Namespace "+n.Name+" "+adminLabel, "true"))))
		}
	}
	return orPass(found, fmt.Sprintf("%s with the label", count(len(labelled), "namespace")), saw("namespaces with "+adminLabel, strings.Join(labelled, " ")))
}

func adminClaims(s *State) []finding.Finding {
	var found []finding.Finding
	for i := range s.Claims {
		c := &s.Claims[i]
		asks := slices.ContainsFunc(c.Spec.Devices.Requests, func(r resourceapi.DeviceRequest) bool {
			return r.Exactly != nil && r.Exactly.AdminAccess != nil && *r.Exactly.AdminAccess
		})
		if asks && s.IsTenant(c.Namespace) {
			name := c.Namespace + "/" + c.Name
			found = append(found, of(c.Namespace, fail("claim "+name, "claim "+name+" has admin access")))
		}
	}
	return orPass(found, count(len(s.Claims), "claim"))
}

// nobodyBroad fails for each who may do one of the actions and is everybody, or a
// tenant's; who else may is evidence.
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
	return orPass(s.failing(namespace, actions...), count(len(others), "subject")+" may", saw("RBAC: who may "+actions[0].String(), strings.Join(others, "; ")))
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
