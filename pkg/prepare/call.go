package prepare

import (
	"context"

	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
)

// CallKind is the kind of a call for a claim.
type CallKind string

// Kinds of calls: of [Preparer.Prepare], [Preparer.UnprepareIf], [Preparer.HandOver] and [Preparer.Renew].
const (
	CallPrepare   CallKind = "prepare"
	CallUnprepare CallKind = "unprepare"
	CallHandOver  CallKind = "sandbox"
	CallRenew     CallKind = "renew"
)

// Tracer follows the calls for claims.
type Tracer interface {
	// Call is called when a call begins. The call's work gets the context that it returns, and end is called with the result.
	Call(ctx context.Context, c Call) (traced context.Context, end func(Result))
}

// Call is one call for a claim.
type Call struct {
	Kind CallKind
	// Claim has only its UID, except in a Prepare.
	Claim plan.Ref
	// Sandbox is the sandbox of a HandOver or Renew.
	Sandbox string
}

// Result is how a [Call] ended.
type Result struct {
	// Record is the record of a Prepare that succeeded.
	Record *journal.Record
	// Proofs are of the resets of an Unprepare.
	Proofs []isolation.Proof
	Err    error
}

// begun reports a call that begins.
func (c *Config) begun(ctx context.Context, call Call) (traced context.Context, end func(Result)) {
	if c.Tracer == nil {
		return ctx, func(Result) {}
	}
	return c.Tracer.Call(ctx, call)
}
