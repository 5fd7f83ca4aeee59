package twin

import (
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/cluster"
)

// addRule adds a rule to its GPU. The name says which device it is for, whatever its selector was changed to.
func (b *builder) addRule(r *resourceapi.DeviceTaintRule) {
	at, ok := b.locate(r)
	g := b.gpus[at]
	if !ok || g == nil {
		return
	}
	target, damaged := ruleTarget(r), true
	for _, d := range append(g.devices(), target) {
		if v1alpha1.TwinRuleName(d.Driver, d.Pool, d.Name) == r.Name {
			target, damaged = d, !intact(r, d)
			break
		}
	}
	g.Rules = append(g.Rules, Rule{
		Name: r.Name, UID: string(r.UID), ResourceVersion: r.ResourceVersion, Target: target,
		Mark: r.Annotations[v1alpha1.AnnotationTwinClaim], Damaged: damaged, Since: b.view.Since(r),
	})
}

// devices returns the published devices of the GPU.
func (g *GPU) devices() []cluster.ID {
	all := append([]cluster.ID{}, g.Twins...)
	if g.Ours != nil {
		all = append(all, g.Ours.Device)
	}
	return all
}

// locate returns where the GPU of a rule is: by the annotation, else by the device that the rule names.
func (b *builder) locate(r *resourceapi.DeviceTaintRule) (cluster.Place, bool) {
	target := ruleTarget(r)
	if at, ok := rulePlace(r, target); ok {
		return at, true
	}
	if d := b.theirs[target]; d != nil {
		return located(d)
	}
	return cluster.Place{}, false
}

// rulePlace returns where the GPU of a rule is if that needs no slices: by the annotation, or by the names of our device.
func rulePlace(r *resourceapi.DeviceTaintRule, target cluster.ID) (cluster.Place, bool) {
	if at, ok := cluster.ParsePlace(r.Annotations[v1alpha1.AnnotationTwinPCI]); ok {
		return at, true
	}
	if target.IsOurs() {
		return ourPlace(target)
	}
	return cluster.Place{}, false
}

// ruleTarget returns the device that a rule's selector names.
func ruleTarget(r *resourceapi.DeviceTaintRule) cluster.ID {
	s := r.Spec.DeviceSelector
	if s == nil {
		return cluster.ID{}
	}
	return cluster.ID{Driver: deref(s.Driver), Pool: deref(s.Pool), Name: deref(s.Device)}
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// sharedWith returns the other driver that a rule is about: that of its target or, if the target is ours, of the
// annotation.
func sharedWith(r *resourceapi.DeviceTaintRule) string {
	if target := ruleTarget(r); target.Driver != "" && !target.IsOurs() {
		return target.Driver
	}
	other, _, _ := strings.Cut(r.Annotations[v1alpha1.AnnotationTwinOf], "/")
	if other == v1alpha1.DriverName {
		return ""
	}
	return other
}

// Side returns the taint's value of a device's rule: the side that has the GPU while the device is tainted.
func Side(target cluster.ID) string {
	if target.IsOurs() {
		return v1alpha1.TwinTheirs
	}
	return v1alpha1.TwinOurs
}

// intact reports whether a rule has the selector and the taint that the controller writes for the device.
func intact(r *resourceapi.DeviceTaintRule, d cluster.ID) bool {
	t := &r.Spec.Taint
	return ruleTarget(r) == d && d.Driver != "" && d.Pool != "" && d.Name != "" &&
		t.Key == v1alpha1.TaintTwin && t.Value == Side(d) && t.Effect == resourceapi.DeviceTaintEffectNoSchedule
}

// Owners returns the owner of the rules for GPUs of a node: the Node, as the node's slices name it, so that the rules of
// a node that is deleted go with it. It is nil while the node has no slice.
func (v *View) Owners(node string) []metav1.OwnerReference {
	if o, ok := v.Cluster.Owner(node); ok {
		return []metav1.OwnerReference{o}
	}
	return nil
}
