package audit

import (
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// isLeftOut reports whether the node config does not select the function, or does not permit slices of its GPU.
func (d *Device) isLeftOut() bool { return d.has(rule.NotOurs) || d.has(rule.GPUNotSliced) }

// LeftOut says why claims can't get a function although nothing is wrong with it: the node config does not select it, or does not
// permit slices of its GPU. It is empty for other functions, and for a companion that is assigned with its GPU.
func (d *Device) LeftOut() string {
	switch {
	case d.IsBridge(), d.serves != nil, d.InUse(), len(d.Against()) > 0:
		return ""
	case d.has(rule.GPUNotSliced):
		return "not sliced"
	case d.has(rule.NotOurs):
		return "not selected"
	}
	return ""
}

// leaving is the verdict behind [Device.LeftOut]; nil if there is none.
func (d *Device) leaving() *rule.Verdict {
	i := slices.IndexFunc(d.Refusals, func(r rule.Verdict) bool { return r.Code == rule.NotOurs || r.Code == rule.GPUNotSliced })
	if i < 0 || d.LeftOut() == "" {
		return nil
	}
	return &d.Refusals[i]
}
