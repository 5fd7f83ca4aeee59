package cluster

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	nodev1 "k8s.io/api/node/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/audit/fleet"
	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
)

func classChecks() []Check {
	return []Check{{ID: "K8S-028", Needs: []string{"deviceclasses", "namespaces"}, Judge: weakeningClasses}}
}

func weakeningClasses(s *State) []finding.Finding {
	var found []finding.Finding
	ours := s.Cluster.OurClasses()
	for _, c := range ours {
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
	if len(ours) == 0 {
		return notApplicable("no DeviceClass belongs to kata-vfio")
	}
	return orPass(found, output.Count(len(ours), "DeviceClass of kata-vfio"))
}

// mayWeaken judges the grants of a class with the settings. A class may be granted to a tenant for its VLAN or
// address. A device that is not reset, or not isolated, is a risk for all tenants even if only one may ask for it.
func (s *State) mayWeaken(c *resourceapi.DeviceClass, settings []string) []finding.Finding {
	object := "DeviceClass " + c.Name
	seen := saw(object+" metadata.annotations["+v1alpha1.AnnotationNamespaces+"]", c.Annotations[v1alpha1.AnnotationNamespaces])
	if len(settings) > 0 && v1alpha1.Grants(c.Annotations, v1alpha1.AllNamespaces) {
		return []finding.Finding{fail(object, fmt.Sprintf("every namespace may name DeviceClass %s, which says %s", c.Name, strings.Join(settings, ", ")), seen)}
	}
	settings = slices.DeleteFunc(settings, func(setting string) bool { return !isHazard(setting) })
	var tenants []string
	for i := range s.Namespaces {
		if n := s.Namespaces[i].Name; s.isTenant(n) && v1alpha1.Grants(c.Annotations, n) {
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

// isHazard reports whether a setting endangers others than the tenant that uses it.
func isHazard(setting string) bool {
	field, _, _ := strings.Cut(setting, ":")
	return slices.Contains([]string{"reset", "allowUnisolated", "controlNode", "trust", "spoofCheck", "rssQuery", "allowUntagged"}, field)
}

// weakeningSettings returns the settings of a class that are not accepted from a claim, or by default not from a
// tenant's: "trust: true".
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

// vmmMiB is the least memory of a VM on the node besides the guest's RAM: with Kata 4.1.0, QEMU 10.0 and an idle
// guest, QEMU has some 140 MiB resident, the shim 45 and virtiofsd 10 (case PodGetsGPUInItsVMAndReturnsIt of make
// kata).
const vmmMiB = 200

// promiseChecks compare a RuntimeClass with the settings of the nodes' Kata.
func promiseChecks() []Check {
	return []Check{{ID: "K8S-029", Needs: []string{"runtimeclasses", "resourceslices"}, Judge: promisesKept}}
}

func promisesKept(s *State) []finding.Finding {
	if len(s.reports()) == 0 {
		return noReports()
	}
	var found []finding.Finding
	compared := 0
	reports := s.reports()
	for i := range reports {
		r := &reports[i]
		if !s.Cluster.Publishes(r.Node) {
			continue
		}
		for _, class := range s.Cluster.RuntimeClasses() {
			if slices.Contains(s.Options.RuntimeClasses, class.Name) {
				found = append(found, promiseKept(r, class)...)
				compared++
			}
		}
	}
	if compared == 0 {
		return notApplicable("no node with devices has a report, or no RuntimeClass that may have devices exists")
	}
	return orPass(found, output.Count(compared, "RuntimeClass and node"))
}

func promiseKept(r *fleet.NodeReport, class *nodev1.RuntimeClass) []finding.Finding {
	if r.Report.Kata == nil {
		f := onNode(r.Node, "has a report of an older version, without its handlers")
		f.State = finding.Unknown
		return []finding.Finding{f}
	}
	i := slices.IndexFunc(r.Report.Kata.Handlers, func(h finding.KataHandler) bool { return h.Name == class.Handler })
	if i < 0 && len(r.Report.Kata.Damaged) > 0 {
		f := onNode(r.Node, fmt.Sprintf("has a container runtime whose configuration is not understood, so it is unknown whether it has the handler %s: %s", class.Handler, r.Report.Kata.Damaged[0]))
		f.State = finding.Unknown
		return []finding.Finding{f}
	}
	if i < 0 {
		return []finding.Finding{onNode(r.Node, fmt.Sprintf("has no handler %s that runs Kata, to which RuntimeClass %s leads", class.Handler, class.Name))}
	}
	h := &r.Report.Kata.Handlers[i]
	if h.Damaged != "" {
		f := onNode(r.Node, fmt.Sprintf("has settings of handler %s that are not understood: %s", h.Name, h.Damaged))
		f.State = finding.Unknown
		return []finding.Finding{f}
	}
	return overheadCovers(r, h, class)
}

// overheadCovers compares the overhead's memory with what the VM needs besides its limits, if the VM is charged to the pod.
func overheadCovers(r *fleet.NodeReport, h *finding.KataHandler, class *nodev1.RuntimeClass) []finding.Finding {
	if !h.InPodsCgroup {
		return nil
	}
	var overhead resource.Quantity
	if class.Overhead != nil {
		overhead = class.Overhead.PodFixed["memory"]
	}
	// The kubelet adds the overhead to the limits of the pod's cgroup (KEP-688). The overhead must cover the memory that belongs to no
	// container.
	least := h.LimitedMiB + vmmMiB
	if overhead.Value() >= least<<20 {
		return nil
	}
	return []finding.Finding{onNode(r.Node, fmt.Sprintf("gives each VM of handler %s %d MiB beside its containers' limits, and some %d MiB go to the VMM; the overhead of RuntimeClass %s is %s: "+
		"the kernel kills a VM that uses its memory", h.Name, h.LimitedMiB, vmmMiB, class.Name, overhead.String()),
		saw("RuntimeClass "+class.Name+" overhead.podFixed.memory", overhead.String()), saw("node "+r.Node+" memory beside limits, MiB", fmt.Sprint(h.LimitedMiB)))}
}
