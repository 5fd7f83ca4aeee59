package prepare

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/bind"
	"github.com/kata-vfio/kata-vfio/pkg/claim"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/prepare/effects"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// refusals writes refused claims to the ledger. The kubelet repeats a refused call every minute or so, but that is only
// one event. So refusals remembers the last refusal of each claim.
type refusals struct {
	effects *effects.Set
	ration  *Ration // of refusals in the ledger

	mu   sync.Mutex // guards last
	last map[string]string
}

// newRefusals returns refusals that write at most about 1,500 events a day for each namespace: a tenant can create
// refused claims at any rate, and they must not fill the ledger.
func newRefusals(set *effects.Set) *refusals {
	return &refusals{effects: set, ration: &Ration{Burst: 20, Pause: time.Minute}}
}

// maxRefusals limits how many claims are remembered, because tenants can create any number.
const maxRefusals = 4096

// recordResult writes the refusal of a claim to the ledger, or forgets the last refusal of a claim that is prepared. It
// returns the result of Prepare, joined with the error of the write.
func (f *refusals) recordResult(ctx context.Context, req *claim.Request, rec *journal.Record, err error) (*journal.Record, error) {
	if err != nil {
		return nil, errors.Join(err, f.recordRefused(ctx, plan.NewRef(req), err))
	}
	f.forget(req.UID)
	return rec, nil
}

// recordRefused writes that a claim does not get its devices, once for each reason. It writes nothing about a fault of
// the node.
func (f *refusals) recordRefused(ctx context.Context, ref plan.Ref, cause error) error {
	e := ledger.Event{Type: ledger.Refusal, Result: ledger.Refused, Reason: effects.OneLine(cause)}
	if refusal, ok := errors.AsType[*rule.RefusedError](cause); ok {
		for i := range refusal.Verdicts {
			r := &refusal.Verdicts[i]
			e.Devices = append(e.Devices, ledger.Device{Address: r.Address, Name: r.Device})
			if !slices.Contains(e.Codes, string(r.Code)) {
				e.Codes = append(e.Codes, string(r.Code))
			}
		}
		return f.record(ctx, ref, e)
	}
	code := rule.Classify(cause)
	failed, isActivation := errors.AsType[*bind.NotActivatedError](cause)
	if isActivation && failed.Code() == code || slices.Contains([]rule.Code{rule.InUse, rule.Locked, rule.Quarantined}, code) {
		e.Codes = []string{string(code)}
		return f.record(ctx, ref, e)
	}
	return nil // a fault of the node, which is in its log
}

// refused is [Preparer.Refused].
func (f *refusals) refused(ctx context.Context, req *claim.Request, cause error) error {
	e := ledger.Event{Type: ledger.Refusal, Result: ledger.Refused, Codes: []string{string(rule.Classify(cause))}, Reason: effects.OneLine(cause)}
	for _, d := range req.Devices {
		e.Devices = append(e.Devices, ledger.Device{Address: d.Address, Name: d.Name})
	}
	return f.record(ctx, plan.NewRef(req), e)
}

// record writes a refusal unless it repeats the last refusal of the claim. Refusals beyond the namespace's rate are
// only counted, and the next refusal of the namespace that is written has their number.
func (f *refusals) record(ctx context.Context, ref plan.Ref, e ledger.Event) error {
	if f.repeats(ref.UID, e.Reason) {
		return nil
	}
	tell, untold := f.ration.Take(ref.Namespace)
	if !tell {
		return nil
	}
	if e.Untold = untold; untold > 0 {
		e.Reason += fmt.Sprintf(" (earlier refusals of this namespace that are not in the ledger, since there were too many at once: %d)", untold)
	}
	err := f.effects.Record(ctx, ref, e)
	if err != nil {
		f.forget(ref.UID)
		f.ration.Return(ref.Namespace, untold)
	}
	return err
}

// repeats remembers a refusal, and reports whether the claim's last one was the same.
func (f *refusals) repeats(uid, reason string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.last[uid] == reason {
		return true
	}
	if f.last == nil || len(f.last) >= maxRefusals {
		// To forget all refusals costs one repeated event for each claim. An eviction order would need more state than
		// it saves.
		f.last = map[string]string{}
	}
	f.last[uid] = reason
	return false
}

// forget removes the memory of a claim that was prepared or has ended.
func (f *refusals) forget(uid string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.last, uid)
}
