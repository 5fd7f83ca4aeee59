// Package effects has the primitives of a claim's life on its node: locks, the search for processes that use a device,
// journal and ledger, bindings, resets, CDI specs, settings of VFs and addresses. Each effect verifies its result and
// may be repeated, and each but module loads and resets has an inverse. Packages prepare and maintain decide the order
// of effects and what follows from an error.
package effects

import (
	"context"
	"time"

	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/bind"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/network/podnet"
	"github.com/kata-vfio/kata-vfio/pkg/network/vf"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
	"github.com/kata-vfio/kata-vfio/pkg/vfio"
)

// Inventory knows the node's functions.
type Inventory interface {
	// Snapshot returns the latest snapshot, which may be a little old.
	Snapshot(ctx context.Context) (*device.Snapshot, error)
	// Refresh returns a snapshot in which the functions at addrs, and their
	// groups, are as they are now.
	Refresh(ctx context.Context, addrs []pci.Address) (*device.Snapshot, error)
	// RefreshFunctions is Refresh, but does not read the facts of the host again, on which only decisions about new
	// claims depend.
	RefreshFunctions(ctx context.Context, addrs []pci.Address) (*device.Snapshot, error)
}

// Journal keeps the records; see package journal.
type Journal interface {
	Save(r *journal.Record) error
	// Replace saves a record without waiting for the disk: after a power failure, the record may have its former state.
	Replace(r *journal.Record) error
	Delete(id string) error
	Load(id string) (*journal.Record, error)
	List() ([]*journal.Record, []error)
	// Writable returns why no record can be written now.
	Writable() error
	// Leftovers returns the IDs of records whose writing was interrupted. Delete removes the files that such a write
	// left.
	Leftovers() ([]string, error)
	// MarkNeedsReset and MarkClean set and remove the marks of functions that are not proven clean since their last
	// tenant, independent of records. NeedsReset returns them.
	MarkNeedsReset(ctx context.Context, all ...journal.ResetMark) error
	MarkClean(ctx context.Context, a pci.Address, id device.Identity) error
	// MarkFatalErrors writes how many fatal errors of a function are accounted for, and FatalErrors returns these
	// counts. They are independent of records.
	MarkFatalErrors(ctx context.Context, m journal.FatalErrors) error
	FatalErrors() ([]journal.FatalErrors, error)
	NeedsReset() ([]journal.ResetMark, error)
	// MarkUnsanitized and MarkSanitized set and remove the marks of functions that must pass a sanitizing stage, which are
	// independent of records; Unsanitized returns them. Sanitized returns the proofs of stages, and SpoilSanitized ends one.
	MarkUnsanitized(ctx context.Context, m journal.SanitizeMark) error
	MarkSanitized(ctx context.Context, p journal.SanitizeProof) error
	AcceptFirmware(ctx context.Context, p journal.SanitizeProof) error
	Unsanitized() ([]journal.SanitizeMark, error)
	Sanitized() ([]journal.SanitizeProof, error)
	SpoilSanitized(ctx context.Context, a pci.Address, id device.Identity) error
	// MarkDrained, LiftDrain and Drains set, remove and return the marks of drained functions, which are independent of
	// records.
	MarkDrained(ctx context.Context, d journal.Drain) error
	LiftDrain(ctx context.Context, d journal.Drain) error
	Drains() ([]journal.Drain, error)
}

// Locks are named locks that all instances on the node share.
type Locks interface {
	Acquire(ctx context.Context, locks ...journal.Lock) (release func(), err error)
}

// Lock is one of the Locks.
type Lock = journal.Lock

// Specs is the directory of CDI specs; see package cdi.
type Specs interface {
	Write(claimUID string, spec *specs.Spec) error
	Remove(claimUID string) error
	Claims() ([]string, error)
	// Writable returns why no spec can be written now.
	Writable() error
}

// Holders finds the processes that have a device node open.
type Holders interface {
	// Find returns the processes that have any of the nodes ("/dev/vfio/15") open. If some processes can't be
	// inspected, it returns an error together with the holders among the others.
	Find(ctx context.Context, nodes []string) ([]vfio.Holder, error)
	// Family returns the process with the PID that started at the given time, in clock ticks since boot, and its
	// descendants. It returns none if all have ended.
	Family(ctx context.Context, pid int, start uint64) ([]vfio.Holder, error)
	// Shims returns the shims of the sandbox and the processes that descend from them.
	Shims(ctx context.Context, sandboxID string) ([]vfio.Holder, error)
	// Abandoned returns the sandboxes of those holders that are VMMs without a shim, by the holder's PID.
	Abandoned(ctx context.Context, holders []vfio.Holder) (map[int]string, error)
	// Claimed returns the device node of a disk of f that is in exclusive use; empty if there is none.
	Claimed(ctx context.Context, f *device.Function) (node string, err error)
	// Opened returns the VFIO node of f that the kernel reports as open, or [vfio.ErrCannotAsk] if the kernel can't be
	// asked.
	Opened(ctx context.Context, f *device.Function) (node string, err error)
	// Ending returns the process with the PID that started at the given time, if it is ending but some of its threads
	// are left.
	Ending(ctx context.Context, pid int, start uint64) ([]vfio.Holder, error)
	// Wait returns when one of the holders has ended, or with ctx's error.
	Wait(ctx context.Context, holders []vfio.Holder) error
}

// VFs make the PFs apply settings to their VFs; see package vf.
type VFs interface {
	// Read returns the settings that the PF applies to its VF with the index, and the addresses of the PF's other VFs.
	Read(ctx context.Context, pf pci.Address, index int) (*vf.State, []string, error)
	// Look returns the VF for questions about it.
	Look(ctx context.Context, pf pci.Address, index int) (*vf.Seen, error)
	// Apply sets those settings for which want has values, and reads them back.
	Apply(ctx context.Context, pf pci.Address, index int, want *device.VFSettings) error
}

// Interfaces put VFs' network interfaces into pods' namespaces; see package
// podnet.
type Interfaces interface {
	// Await returns when a VF that is on its kernel driver has its network interface.
	Await(ctx context.Context, addr pci.Address) error
	// Place puts a VF's interface, configured, into the network namespace at a path
	// of the node. It may be repeated.
	Place(ctx context.Context, what podnet.Interface, at string) error
}

// Addresses takes addresses from pools and returns them; see package podnet.
type Addresses interface {
	// Find returns an error unless the lease's plugin is installed.
	Find(l *plan.Lease) error
	// Add takes addresses. If it returns an error, addresses may be allocated nevertheless, unless the error is a
	// [podnet.PluginError] with Nothing set.
	Add(ctx context.Context, l *plan.Lease) (*podnet.Result, error)
	// Delete returns them. It may be repeated.
	Delete(ctx context.Context, l *plan.Lease) error
}

// Ledger keeps the node's history; see package ledger/writer.
type Ledger interface {
	// Append writes events durably and as a unit, and returns the signed checkpoint after them.
	Append(ctx context.Context, events ...ledger.Event) (signed string, err error)
	// AppendSoon is Append without the wait for the disk. A later Append or Sync waits for it.
	AppendSoon(ctx context.Context, events ...ledger.Event) error
	Sync(ctx context.Context) error
	// Ready returns why no event can be written now.
	Ready(ctx context.Context) error
	// Tenancy returns the events of a claim since its last Prepare.
	Tenancy(ctx context.Context, uid string) ([]ledger.Event, error)
	// Recall reads the tenancies of claims in one pass, so that Tenancy need not read them
	// again until forget is called.
	Recall(ctx context.Context, uids []string) (forget func(), err error)
	// Remember reads the last events of the given types that concern the functions in one pass, so that Last need not
	// read the ledger for each function.
	Remember(ctx context.Context, addrs []pci.Address, types ...ledger.Type) error
	// Last returns the last event of this boot, of one of the types, that concerns a function, or nil.
	Last(ctx context.Context, a pci.Address, types ...ledger.Type) (*ledger.Event, error)
}

// Room is disk space that is reserved for claims that end; see [journal.Reserves].
type Room interface {
	// Fill reserves the space, or returns a [journal.FullError] if the disk has none.
	Fill() error
	// Spend frees the space if the disk is nearly full.
	Spend() error
}

// Phase names a part of the work, for metrics.
type Phase string

// Phases.
const (
	PhaseWait    Phase = "wait" // for locks, holders and resets of earlier calls
	PhaseUnbind  Phase = "unbind"
	PhaseBind    Phase = "bind"
	PhaseReset   Phase = "reset"
	PhaseNode    Phase = "node"
	PhaseJournal Phase = "journal"
	PhaseCDI     Phase = "cdi"
	PhaseScan    Phase = "scan"
	PhaseVF      Phase = "vf"
	PhaseSetting Phase = "setting"
	PhaseAddress Phase = "address"
	PhaseLedger  Phase = "ledger"
)

// Event is one piece of work that has ended.
type Event struct {
	Claim plan.Ref
	Phase Phase
	// Step is set if the work was a step of a plan.
	Step *plan.Step
	// Proof is set for a reset that succeeded.
	Proof *isolation.Proof
	Took  time.Duration
	Err   error
}

// Observer gets each piece of work when it ends. It is called from several
// goroutines and must not block.
type Observer func(Event)

// Timed runs work and reports it to the observer.
func (o Observer) Timed(claim plan.Ref, phase Phase, work func() error) error {
	start := time.Now()
	err := work()
	o(Event{Claim: claim, Phase: phase, Took: time.Since(start), Err: err})
	return err
}

// Parts are what the effects work with. All but Ledger and Room are required.
type Parts struct {
	FS        *sysfs.FS
	Inventory Inventory
	Executor  *bind.Executor
	Journal   Journal
	Locks     Locks
	Specs     Specs
	Holders   Holders
	VFs       VFs
	// Providers set the values of claims that are neither bindings nor settings of VFs, by name; see [plan.Setting].
	Providers map[string]bind.Provider
	// Interfaces serves VFs that are physical endpoints.
	Interfaces Interfaces
	Addresses  Addresses
	// Ledger is nil if no history is kept; package node always has one.
	Ledger Ledger
	// Room is nil if none is kept; package node always keeps some.
	Room Room
	// Observe gets each step and phase; nil if nobody observes.
	Observe Observer
	// Ticks returns the clock ticks since boot; nil means [journal.Ticks].
	Ticks func() uint64
}

// A Set executes the effects on one node. It is safe for concurrent use if the caller holds the locks of the functions
// that it works on.
type Set struct {
	Parts
	// Node says which functions are ours; it may be nil.
	Node *v1alpha1.NodeConfig
}

// New returns effects that work with the parts, on a node with the config, which may be nil.
func New(p Parts, node *v1alpha1.NodeConfig) *Set {
	if p.Observe == nil {
		p.Observe = func(Event) {}
	}
	if p.Ticks == nil {
		p.Ticks = journal.Ticks
	}
	return &Set{Parts: p, Node: node}
}
