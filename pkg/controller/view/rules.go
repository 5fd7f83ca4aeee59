package view

import (
	"cmp"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/controller/twin"
)

// rule adds a rule to its GPU. The name says which device it is for, whatever its selector was changed to.
func (b *builder) rule(r *resourceapi.DeviceTaintRule) {
	at, ok := b.locate(r)
	g := b.gpus[at]
	if !ok || g == nil {
		return
	}
	target, damaged := targetOf(r), true
	for _, d := range append(devicesOf(g), target) {
		if v1alpha1.TwinRuleName(d.Driver, d.Pool, d.Name) == r.Name {
			target, damaged = d, !Intact(r, d)
			break
		}
	}
	g.Rules = append(g.Rules, twin.Rule{
		Name: r.Name, UID: string(r.UID), ResourceVersion: r.ResourceVersion, Target: target,
		Mark: r.Annotations[v1alpha1.AnnotationTwinClaim], Damaged: damaged, Since: b.cluster.Since(r),
	})
}

// devicesOf returns the published devices of a GPU.
func devicesOf(g *twin.GPU) []twin.Device {
	all := append([]twin.Device{}, g.Twins...)
	if g.Ours != nil {
		all = append(all, g.Ours.Device)
	}
	return all
}

// locate returns where the GPU of a rule is: by the annotation, else by the device that the rule names.
func (b *builder) locate(r *resourceapi.DeviceTaintRule) (place, bool) {
	target := targetOf(r)
	if at, ok := placeByName(r, target); ok {
		return at, true
	}
	p, ok := b.theirs[target]
	return p.at, ok && p.located
}

// placeByName returns where the GPU of a rule is if that needs no slices: by the annotation, or by the names of our device.
func placeByName(r *resourceapi.DeviceTaintRule, target twin.Device) (place, bool) {
	if at, ok := parsePlace(r.Annotations[v1alpha1.AnnotationTwinPCI]); ok {
		return at, true
	}
	if target.Driver == v1alpha1.DriverName {
		return ourPlace(target.Pool, target.Name)
	}
	return place{}, false
}

// targetOf returns the device that a rule's selector names.
func targetOf(r *resourceapi.DeviceTaintRule) twin.Device {
	s := r.Spec.DeviceSelector
	if s == nil {
		return twin.Device{}
	}
	return twin.Device{Driver: deref(s.Driver), Pool: deref(s.Pool), Name: deref(s.Device)}
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
	if d := targetOf(r).Driver; d != "" && d != v1alpha1.DriverName {
		return d
	}
	other, _, _ := strings.Cut(r.Annotations[v1alpha1.AnnotationTwinOf], "/")
	if other == v1alpha1.DriverName {
		return ""
	}
	return other
}

// SideOf returns the taint's value of a device's rule: the side that has the GPU while the device is tainted.
func SideOf(target twin.Device) string {
	if target.Driver == v1alpha1.DriverName {
		return v1alpha1.TwinTheirs
	}
	return v1alpha1.TwinOurs
}

// Intact reports whether a rule has the selector and the taint that the controller writes for the device.
func Intact(r *resourceapi.DeviceTaintRule, d twin.Device) bool {
	t := &r.Spec.Taint
	return targetOf(r) == d && d.Driver != "" && d.Pool != "" && d.Name != "" &&
		t.Key == v1alpha1.TaintTwin && t.Value == SideOf(d) && t.Effect == resourceapi.DeviceTaintEffectNoSchedule
}

func compareDevices(a, b twin.Device) int {
	return cmp.Or(cmp.Compare(a.Driver, b.Driver), cmp.Compare(a.Pool, b.Pool), cmp.Compare(a.Name, b.Name))
}

// OwnersOn returns the owner of the rules for GPUs of a node: the Node, as the node's slices name it, so that the rules of
// a node that is deleted go with it. It is nil while the node has no slice.
func (c *Cluster) OwnersOn(node string) []metav1.OwnerReference {
	for _, s := range c.Slices {
		if !slices.Contains(NodesOfSlice(s), node) {
			continue
		}
		for _, o := range s.OwnerReferences {
			if o.Kind == "Node" && o.Name == node {
				return []metav1.OwnerReference{{APIVersion: o.APIVersion, Kind: o.Kind, Name: o.Name, UID: o.UID}}
			}
		}
	}
	return nil
}
