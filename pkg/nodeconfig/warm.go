package nodeconfig

import (
	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/device"
)

// Warm is what a rule says about devices that are kept ready for claims.
type Warm struct {
	// Rule names the rule as [Choice.Rule] does.
	Rule string
	// Want is how many free devices are to be ready.
	Want int
	// Functions are all functions that the rule selects, by address. They are part of the snapshot: don't change them.
	Functions []*device.Function
}

// Warm returns the rules that keep devices ready, in their order.
func (sel *Selection) Warm() []Warm { return sel.warm }

// keepWarm adds the rules that keep devices ready to the selection.
func (sel *Selection) keepWarm(set *rules) {
	for i := range set.list {
		r := &set.list[i]
		if r.Warm == (v1alpha1.Share{}) {
			continue
		}
		w := Warm{Rule: r.label}
		for j := range sel.functions {
			if sel.choices[j].Ours && sel.choices[j].Rule == r.label {
				w.Functions = append(w.Functions, &sel.functions[j])
			}
		}
		w.Want = r.Warm.Of(len(w.Functions))
		sel.warm = append(sel.warm, w)
	}
}
