// Package journal keeps what must survive a crash: one file per claim, written
// before the first change to the node and removed after the last.
//
// A record is a JSON file <id>.json with a version and a checksum, replaced
// atomically (write to a temporary file, fsync, rename, fsync of the
// directory), so that a reader (the audit, the next plugin of a rolling
// update) sees the old record or the new one and never a mixture.
package journal

import (
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
)

// State is how far a claim has come. Each state is written before what it
// announces begins.
type State string

// States of a record.
const (
	// Preparing: steps of the plan may have been taken, in part or all. After a
	// crash the functions go back to their original bindings.
	Preparing State = "preparing"
	// Prepared: all steps are verified and the CDI spec is written. After a
	// crash the claim is as good as before.
	Prepared State = "prepared"
	// Releasing: the way back has begun; the functions are still on their VFIO
	// drivers and may be reset. After a crash it begins again.
	Releasing State = "releasing"
	// Cleaned: the resets are done and proven. The functions go back to their
	// original bindings and must not be reset again: some may be in use by the
	// node already. After a crash that goes on.
	Cleaned State = "cleaned"
	// Quarantined: a function could not be proven clean. It stays on its VFIO
	// driver, with no CDI spec, until a later reset succeeds, also over a reboot.
	Quarantined State = "quarantined"
)

// Kind tells the records of claims from those of standing bindings.
type Kind string

// Kinds of records.
const (
	// Claim is the record of a ResourceClaim.
	Claim Kind = "claim"
	// Bound is the record of a function bound at start-up by policy "bound".
	Bound Kind = "standing"
)

// Record is one claim's entry.
type Record struct {
	Kind  Kind  `json:"kind"`
	State State `json:"state"`
	// BootID is the boot in which the record was begun: in another one, group
	// numbers, bindings and device nodes of the record mean nothing.
	BootID string `json:"bootID"`
	// Plan holds the claim, the devices, and each function's original binding.
	Plan plan.Plan `json:"plan"`
	// Baseline are the fingerprints of the functions when they were handed
	// over, against which the reset is proven. While the state is preparing they are
	// from before the resets on the way in, and say that these have begun.
	Baseline []isolation.Fingerprint `json:"baseline,omitempty"`
	// Sandbox is the last sandbox that got the functions. They are not clean for
	// another one until it is nil again. Nil before the first.
	Sandbox *Sandbox `json:"sandbox,omitempty"`
	// Proofs are the resets done so far on the way back, or before the sandbox
	// that has the functions now.
	Proofs []isolation.Proof `json:"proofs,omitempty"`
	// Reason says why the record is quarantined, or what kept the last attempt
	// from finishing.
	Reason string `json:"reason,omitempty"`
	// Since is when the state was entered, RFC 3339 in UTC.
	Since string `json:"since,omitempty"`
}

// ID returns the record's identity and file name: the claim's UID.
func (r *Record) ID() string { return r.Plan.Claim.UID }
