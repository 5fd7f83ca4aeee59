package main

import (
	"fmt"
	"io"

	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/prepare"
)

// printReleased prints the result of unprepare.
func printReleased(w io.Writer, format, uid string, r prepare.Release) error {
	if done, err := document(w, format, map[string]any{"uid": uid, "resets": list(r.Proofs)}); done {
		return err
	}
	for _, p := range r.Proofs {
		fmt.Fprintf(w, "%s reset by %s in %d ms, configuration space as before the tenant\n", joined(p.Set), p.Method, p.Milliseconds)
	}
	text := "Claim %s is off this node.\n"
	if !r.Known {
		text = "Claim %s had nothing on this node.\n"
	}
	_, err := fmt.Fprintf(w, text, uid)
	return err
}

// printRecovery prints the findings and actions of recover.
func printRecovery(w io.Writer, format string, r *prepare.Recovery) error {
	if done, err := document(w, format, newRecoveryView(r)); done {
		return err
	}
	for _, part := range []struct {
		what string
		refs []plan.Ref
	}{{"kept prepared", r.Kept}, {"undone", r.Undone}, {"released", r.Released}} {
		for _, ref := range part.refs {
			fmt.Fprintf(w, "%-13s  %s\n", part.what, ref)
		}
	}
	for _, rec := range r.Quarantined {
		fmt.Fprintf(w, "%-13s  %s: %s\n", "quarantined", rec.Plan.Claim, rec.Reason)
	}
	for _, uid := range r.Specs {
		fmt.Fprintf(w, "%-13s  CDI spec of claim %s, which is not prepared\n", "removed", uid)
	}
	for _, a := range r.Orphans {
		fmt.Fprintf(w, "%-13s  %s is on a VFIO driver and no claim has it\n", "stray", a)
	}
	_, err := fmt.Fprintf(w, "%s, %d unfinished\n", output.Count(len(r.Kept)+len(r.Undone)+len(r.Released)+len(r.Quarantined), "record"), len(r.Unfinished))
	return err
}

// recoveryView is a Recovery, with lists that are never null and errors as text. Its JSON names are stable.
type recoveryView struct {
	Kept         []plan.Ref    `json:"kept"`
	Undone       []plan.Ref    `json:"undone"`
	Released     []plan.Ref    `json:"released"`
	Quarantined  []view        `json:"quarantined"`
	RemovedSpecs []string      `json:"removedSpecs"`
	Orphans      []pci.Address `json:"strays"`
	Unfinished   []string      `json:"unfinished"`
}

func newRecoveryView(r *prepare.Recovery) *recoveryView {
	v := &recoveryView{
		Kept: list(r.Kept), Undone: list(r.Undone), Released: list(r.Released), Quarantined: []view{},
		RemovedSpecs: list(r.Specs), Orphans: list(r.Orphans), Unfinished: []string{},
	}
	for _, rec := range r.Quarantined {
		v.Quarantined = append(v.Quarantined, newView(rec))
	}
	for _, err := range r.Unfinished {
		v.Unfinished = append(v.Unfinished, err.Error())
	}
	return v
}
