package prepare

import (
	"context"

	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
)

// CallKind is the kind of a call for a claim.
type CallKind string

// Kinds of calls: one for each of [Preparer.Prepare], [Preparer.UnprepareIf], [Preparer.HandOver] and [Preparer.Renew].
const (
	CallPrepare   CallKind = "prepare"
	CallUnprepare CallKind = "unprepare"
	CallHandOver  CallKind = "sandbox"
	CallRenew     CallKind = "renew"
)

// Tracer follows the calls for claims.
type Tracer interface {
	// Call is called when a call begins. The work of the call runs with the returned context. At the end of the call,
	// end is called with its result.
	Call(ctx context.Context, c Call) (traced context.Context, end func(Result))
}

// Call is one call for a claim.
type Call struct {
	Kind CallKind
	// Claim is the claim of the call. In all calls but Prepare, only its UID is set.
	Claim plan.Ref
	// Sandbox is the sandbox of a HandOver or Renew.
	Sandbox string
}

// Result is how a [Call] ended.
type Result struct {
	// Record is the record of a Prepare that succeeded.
	Record *journal.Record
	// Proofs are the proofs of the resets that an Unprepare made.
	Proofs []isolation.Proof
	Err    error
}

// begun reports to the tracer that a call begins. Without a tracer, it does nothing.
func (c *Config) begun(ctx context.Context, call Call) (traced context.Context, end func(Result)) {
	if c.Tracer == nil {
		return ctx, func(Result) {}
	}
	return c.Tracer.Call(ctx, call)
}
