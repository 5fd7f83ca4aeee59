package cluster

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
)

func classChecks() []Check {
	return []Check{{
		Rule: finding.Rule{
			ID: "K8S-028", Title: "Ensure that DeviceClasses that weaken isolation name their namespaces", Severity: high,
			Why:    "Such a class can waive resets or isolation, trust a VF, or set another tenant's VLAN or address.",
			Fix:    "name the namespaces that need the class in its annotation kata-vfio.dev/namespaces (chart: deviceClasses.*.namespaces) instead of *; remove the settings from classes for tenants",
			Verify: "kubectl get deviceclasses -o custom-columns='NAME:.metadata.name,FOR:.metadata.annotations.kata-vfio\\.dev/namespaces,SAYS:.spec.config[*].opaque.parameters'",
		}, needs: []string{"deviceclasses", "namespaces"}, judge: weakeningClasses,
	}}
}

func weakeningClasses(s *State) []finding.Finding {
	var found []finding.Finding
	ours := 0
	for i := range s.DeviceClasses {
		c := &s.DeviceClasses[i]
		if !isOurs(c) {
			continue
		}
		ours++
		settings, err := weakeningSettings(c)
		if err != nil {
			found = append(found, finding.Finding{
				State: finding.Unknown, Object: "DeviceClass " + c.Name,
				Text: fmt.Sprintf("the parameters of DeviceClass %s can't be read: %v", c.Name, err),
			})
			continue
		}
		found = append(found, s.mayWeaken(c, settings)...)
	}
	if ours == 0 {
		return notApplicable("no DeviceClass is ours")
	}
	return orPass(found, count(ours, "DeviceClass of ours"))
}

// mayWeaken judges who may name a class with the settings. A VLAN or an address is
// what a class is granted to a tenant for; a device that is not reset, or not
// isolated, is everybody's risk even where one tenant may ask for it.
func (s *State) mayWeaken(c *resourceapi.DeviceClass, settings []string) []finding.Finding {
	object := "DeviceClass " + c.Name
	seen := saw(object+" metadata.annotations["+v1alpha1.AnnotationNamespaces+"]", c.Annotations[v1alpha1.AnnotationNamespaces])
	if len(settings) > 0 && v1alpha1.Grants(c.Annotations, v1alpha1.AllNamespaces) {
		return []finding.Finding{fail(object, fmt.Sprintf("every namespace may name DeviceClass %s, which says %s", c.Name, strings.Join(settings, ", ")), seen)}
	}
	settings = slices.DeleteFunc(settings, func(setting string) bool { return !isHazard(setting) })
	var tenants []string
	for i := range s.Namespaces {
		if n := s.Namespaces[i].Name; s.IsTenant(n) && v1alpha1.Grants(c.Annotations, n) {
			tenants = append(tenants, n)
		}
	}
	if len(settings) == 0 || len(tenants) == 0 {
		return nil
	}
	f := fail(object, fmt.Sprintf("tenants (%s) may name DeviceClass %s, which says %s", strings.Join(tenants, ", "), c.Name, strings.Join(settings, ", ")), seen)
	f.Severity, f.Tenants = medium, tenants
	return []finding.Finding{f}
}

// isHazard reports whether a setting endangers others than the tenant that has it.
func isHazard(setting string) bool {
	field, _, _ := strings.Cut(setting, ":")
	return slices.Contains([]string{"reset", "allowUnisolated", "controlNode", "trust", "spoofCheck", "rssQuery", "allowUntagged"}, field)
}

// weakeningSettings returns what a class says that is not accepted from a claim, or
// not from a tenant's by default: "trust: true".
func weakeningSettings(c *resourceapi.DeviceClass) ([]string, error) {
	var all []string
	for i := range c.Spec.Config {
		o := c.Spec.Config[i].Opaque
		if o == nil || o.Driver != v1alpha1.DriverName {
			continue
		}
		p, err := v1alpha1.DecodeParameters(o.Parameters.Raw)
		if err != nil {
			return nil, err
		}
		if weakens, is := errors.AsType[*v1alpha1.WeakensIsolationError](p.Weakens()); is {
			all = append(all, weakens.Settings...)
		}
		if p.VF != nil && p.VF.MAC != "" {
			all = append(all, "mac: "+p.VF.MAC)
		}
	}
	return all, nil
}
