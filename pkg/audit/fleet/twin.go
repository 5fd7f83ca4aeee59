package fleet

import (
	"cmp"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// twinWord is the key of the taint of shared GPUs, without the prefix of kata-vfio.
const twinWord = "twin-in-use"

// isOfTwinsClaim reports whether kata-vfio-controller made the rule because a claim has the other driver's device for the same GPU. It also
// makes such a rule, without a claim, if the other driver does not publish the GPU.
func isOfTwinsClaim(r *resourceapi.DeviceTaintRule) bool {
	return r.Spec.Taint.Key == v1alpha1.TaintTwin && r.Annotations[v1alpha1.AnnotationTwinClaim] != ""
}

// lentWords names the driver whose claim has the GPU of a device that is lent.
func (d *Device) lentWords() string {
	return cmp.Or(d.published.Details.SharedWith, "the other driver") + " has the GPU"
}

// aboutTwinRule completes the moment for a rule on a shared GPU. The fix is never to delete the rule, because the rule keeps the GPU
// from two consumers. The use by the other driver is a trouble only for a device that a claim has, too.
func (e *explaining) aboutTwinRule(m Moment, d *Device, r *resourceapi.DeviceTaintRule) Moment {
	code := rule.TwinNotPublished
	if isOfTwinsClaim(r) {
		code, m.Trouble = rule.TwinAllocated, d.Claim != ""
	}
	m.Fix = ""
	if text, ok := rule.Find(e.texts, string(code)); ok {
		m.Text, m.Fix, m.Who = text.Title+", so "+m.Text, text.Fix, text.Who
	}
	return m
}
