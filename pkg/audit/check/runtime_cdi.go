package check

import (
	"fmt"
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/facts/runtimes"
)

// containerdServesCheck is about the two switches without which no device of a claim reaches a VM.
func containerdServesCheck() Check {
	return Check{ID: "RT-037", Judge: containerdServes}
}

func containerdServes(n *facts.Node) Answer {
	r := runtimes.Of(n)
	if found := damagedRuntimes(r); len(found) > 0 {
		return found
	}
	if !slices.ContainsFunc(r.Kata(), func(h runtimes.Handler) bool { return h.Engine == runtimes.Containerd }) {
		return notApplicable("containerd has no Kata handler", r.Files...)
	}
	var found Answer
	if r.CRIOff.IsSet() {
		found = fail(fmt.Sprintf("disabled_plugins of %s disables the CRI plugin: the kubelet can't use containerd", r.CRIOff.File), r.CRIOff.Fact())
	}
	if r.CDI.IsSet() && !r.CDI.On() {
		found = append(found, fail(fmt.Sprintf("enable_cdi is false in %s: no claim's device reaches a VM", r.CDI.File), r.CDI.Fact())...)
	}
	return found.or(pass("CRI and CDI are on", says(r.CRIOff, r.CDI)...))
}
