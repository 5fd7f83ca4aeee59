// Package journal keeps the state that must survive a crash. Each claim has one file, which is written before the first
// change to the node and removed after the last.
//
// A record is a JSON file <id>.json with a version and a checksum, replaced
// atomically (write to a temporary file, fsync, rename, fsync of the
// directory), so that a reader (the audit, the next plugin of a rolling
// update) sees the old record or the new one and never a mixture.
package journal

import (
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
)

// DefaultDir is where a node's journal is unless the plugin is configured otherwise, below the node's root.
const DefaultDir = "var/lib/kata-vfio/journal"

// State is the progress of a claim. A state is written before the work that it announces begins.
type State string

// States of a record.
const (
	// Preparing: some or all steps of the plan may have been taken. After a crash, the functions return to their
	// original bindings.
	Preparing State = "preparing"
	// Prepared: all steps are verified and the CDI spec is written. A crash does not affect the claim.
	Prepared State = "prepared"
	// Releasing: the release has begun. The functions are still on their VFIO drivers and may be reset. After a crash,
	// it begins again.
	Releasing State = "releasing"
	// Cleaned: the resets are done and proven. The functions return to their original bindings and must not be reset
	// again, because the node may use some of them already. Recovery after a crash continues there.
	Cleaned State = "cleaned"
	// Quarantined: a function could not be proven clean. It stays on its VFIO
	// driver, with no CDI spec, until a later reset succeeds, also over a reboot.
	Quarantined State = "quarantined"
)

// Kind is the kind of a record.
type Kind string

// Kinds of records.
const (
	// Claim is the record of a ResourceClaim.
	Claim Kind = "claim"
	// Bound is the record of functions that are bound without a claim: at start by policy "bound", or to keep a device
	// warm.
	Bound Kind = "standing"
	// Orphan is the record of a function that had no record, while the function returns to its driver.
	Orphan Kind = "orphan"
)

// orphanPrefix is the prefix of orphans' IDs. No claim's UID has it.
const orphanPrefix = "stray-"

// OrphanID is the ID of the record of an orphaned function.
func OrphanID(a pci.Address) string { return orphanPrefix + a.Label() }

// IsOrphan reports whether this is the record of an orphaned function.
func (r *Record) IsOrphan() bool { return r.Kind == Orphan }

// Record is one claim's entry.
type Record struct {
	Kind  Kind  `json:"kind"`
	State State `json:"state"`
	// BootID is the boot in which the record was begun. In another boot, the record's group numbers, bindings and
	// device nodes mean nothing.
	BootID string `json:"bootID"`
	// Plan holds the claim, the devices, and each function's original binding.
	Plan plan.Plan `json:"plan"`
	// Baseline are the fingerprints of the functions at the hand-over, against which the next reset is proven. In state
	// preparing, they are the fingerprints from before the resets of Prepare, and show that these resets have begun.
	Baseline []isolation.Fingerprint `json:"baseline,omitempty"`
	// Sandbox is the last sandbox that got the functions; nil before the first. The functions are not clean for another
	// sandbox until it is nil again.
	Sandbox *Sandbox `json:"sandbox,omitempty"`
	// Proofs are the proofs of the last resets: those of Prepare, of the hand-over to the current sandbox, or of
	// Unprepare.
	Proofs []isolation.Proof `json:"proofs,omitempty"`
	// Reason is the reason why the record is quarantined, or why the last attempt did not finish.
	Reason string `json:"reason,omitempty"`
	// Since is the time at which the state was entered, RFC 3339 in UTC.
	Since string `json:"since,omitempty"`
}

// ID returns the record's identity and file name: the claim's UID.
func (r *Record) ID() string { return r.Plan.Claim.UID }

// Clone returns a copy of the record for work on it. A store shares the records that it has read with all its callers, so
// that a record must not be changed. The work changes the plan's functions, their settings and the devices in place, and
// adds proofs. Everything else is shared with the record: it is only ever replaced as a whole.
func (r *Record) Clone() *Record {
	own := *r
	own.Plan.Devices, own.Plan.Functions = slices.Clone(r.Plan.Devices), slices.Clone(r.Plan.Functions)
	for i := range own.Plan.Functions {
		fn := &own.Plan.Functions[i]
		fn.Settings = slices.Clone(fn.Settings)
	}
	own.Plan.Modules, own.Proofs = slices.Clip(r.Plan.Modules), slices.Clip(r.Proofs)
	return &own
}

// WithoutLeases is [Record.Clone], but the copy has no leases, so that its end returns no addresses to their pools.
func (r *Record) WithoutLeases() *Record {
	own := r.Clone()
	for i := range own.Plan.Devices {
		own.Plan.Devices[i].Lease = nil
	}
	return own
}

// IsWarm reports whether this is the record of a device that is kept ready for claims, although its policy is onDemand.
func (r *Record) IsWarm() bool {
	return r.Kind == Bound && slices.ContainsFunc(r.Plan.Devices, func(d plan.Device) bool { return d.Policy == v1alpha1.PolicyOnDemand })
}

// Sandbox is the pod's VM that has a claim's functions.
type Sandbox struct {
	// ID is the runtime's id of the pod sandbox.
	ID string `json:"id"`
	// PodUID is the UID of the sandbox's pod, if the caller knows it. It is not stored: the record has the claim's
	// pods.
	PodUID string `json:"-"`
	// VMM is the process that the runtime names for the sandbox: the monitor of a VM. It is zero while unknown.
	VMM Process `json:"vmm,omitzero"`
	// Shim is the runtime's process that requested the functions and starts the VM with them. It is zero if no process
	// requested them. Then the shim is found by the sandbox's ID.
	Shim Process `json:"shim,omitzero"`
	// NetNS is the path of the pod's network namespace on the node, if the runtime has named it. Physical endpoints
	// move there.
	NetNS string `json:"netns,omitempty"`
	// Since is when the sandbox got the functions, RFC 3339 in UTC. It is only for people, because the clock may have
	// been set since.
	Since string `json:"since"`
	// Ticks is the same time in clock ticks since the record's boot, see [Ticks].
	Ticks uint64 `json:"ticks,omitempty"`
}

// Process identifies a process of the node, even after its PID is reused.
type Process struct {
	PID int `json:"pid"`
	// StartTime is in clock ticks after boot (field 22 of proc_pid_stat(5)).
	StartTime uint64 `json:"startTime"`
}

// Holdings returns the record that holds each function, by address. Records of the snapshot's boot count, and
// quarantined records of any boot. If several records hold a function, a claim's record has precedence over a record of
// policy "bound".
func Holdings(records []*Record, snap *device.Snapshot) map[pci.Address]plan.Owner {
	held := map[pci.Address]plan.Owner{}
	for _, rec := range records {
		if rec.BootID != snap.Host.BootID && rec.State != Quarantined {
			continue
		}
		h := plan.Owner{Claim: rec.Plan.Claim, Bound: rec.Kind == Bound}
		if rec.State == Quarantined {
			h.Quarantined = rec.Reason
		}
		for _, a := range rec.Held(snap) {
			if have, ok := held[a]; !ok || have.Bound {
				held[a] = h
			}
		}
	}
	return held
}

// Held returns the addresses, in a snapshot, of the functions that the record holds.
func (r *Record) Held(snap *device.Snapshot) []pci.Address {
	var addrs []pci.Address
	for i := range r.Plan.Functions {
		if a, held := holds(&r.Plan.Functions[i], snap); held {
			addrs = append(addrs, a)
		}
	}
	return addrs
}

// holds returns the address, in a snapshot, of the function that a record holds as fn, and whether the record holds it.
// A function that was removed and found again is held until the record ends, because it is the same hardware. Other
// hardware at the address is not held.
func holds(fn *plan.Function, snap *device.Snapshot) (pci.Address, bool) {
	if _, ok := fn.In(snap); ok || fn.Identity == (device.Identity{}) {
		return fn.Address, true
	}
	if f := snap.Find(fn.Identity).Function; f != nil {
		return f.Address, true
	}
	f, taken := snap.Function(fn.Address)
	return fn.Address, !taken || fn.Identity.Match(snap.Identify(f)) != device.Differs
}

// Ahead returns the phases that end the record's claim on the node, from the record's state on. If bootID is not the
// record's boot, the node was restarted since. Package prepare executes these phases, also after a crash. A dry run
// prints them.
func (r *Record) Ahead(bootID string) []plan.Phase {
	switch {
	case r.State == Quarantined:
		return slices.Concat(plan.Retest(), plan.Cleaning(), plan.GivingBack())
	case r.BootID != bootID:
		return plan.AfterReboot()
	case r.State == Preparing:
		return plan.Undo()
	case r.State == Cleaned: // functions that are still on VFIO may have been used since the proof
		return slices.Concat([]plan.Phase{plan.ResetAfter}, plan.GivingBack())
	}
	return slices.Concat(plan.Cleaning(), plan.GivingBack())
}

// AheadWithoutProof returns the phases that end a quarantine without a proof.
func (r *Record) AheadWithoutProof(bootID string) []plan.Phase {
	switch {
	case r.BootID != bootID:
		return plan.AfterReboot()
	case r.Plan.ReturnsToHost():
		return slices.Concat([]plan.Phase{plan.RemoveSpec}, plan.ForHost(), plan.GivingBack())
	}
	return slices.Concat([]plan.Phase{plan.RemoveSpec, plan.Deactivate}, plan.GivingBack())
}

// StepsFor returns the steps of phases, from the present bindings of the record's functions.
func (r *Record) StepsFor(bootID string, phases []plan.Phase) []plan.Step {
	return r.Plan.StepsFor(r.place(bootID), phases...)
}

// place returns the place of the record's functions.
func (r *Record) place(bootID string) plan.Place {
	switch {
	case r.BootID != bootID:
		return plan.AtOriginal
	case r.State == Quarantined, r.State == Cleaned:
		return plan.AtTarget
	}
	return plan.AtPrepared
}
