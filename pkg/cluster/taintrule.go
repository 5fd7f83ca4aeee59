package cluster

import resourceapi "k8s.io/api/resource/v1"

// KeepsAway reports whether a taint keeps claims from its device. A taint with another effect only informs.
func KeepsAway(t *resourceapi.DeviceTaint) bool {
	return t.Effect == resourceapi.DeviceTaintEffectNoSchedule || t.Effect == resourceapi.DeviceTaintEffectNoExecute
}

// Selects reports whether a DeviceTaintRule selects a device, so that the scheduler adds the rule's taint to those of the device.
func Selects(r *resourceapi.DeviceTaintRule, id ID) bool {
	// A rule without a selector selects no device, one with an empty selector selects all (resource.k8s.io, DeviceTaintRuleSpec).
	of := r.Spec.DeviceSelector
	return of != nil && isOrUnset(of.Driver, id.Driver) && isOrUnset(of.Pool, id.Pool) && isOrUnset(of.Device, id.Name)
}

// isOrUnset reports whether a field of a rule's selector selects a name. A field that is not set selects all names.
func isOrUnset(field *string, name string) bool { return field == nil || *field == name }
