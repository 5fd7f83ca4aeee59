package isolation

import (
	"cmp"

	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// IdleUnsafeInterrupts is the severity of [rule.UnsafeInterruptsAllowed] while interrupts are remapped, so that it has no effect.
const IdleUnsafeInterrupts = rule.Medium

// weighed returns the verdict with the severity of its code, unless it has one of its own.
func weighed(v rule.Verdict) rule.Verdict {
	v.Severity = cmp.Or(v.Severity, v.Code.Severity())
	return v
}
