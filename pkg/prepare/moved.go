package prepare

import (
	"context"
	"fmt"
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/prepare/effects"
)

// toTargets brings functions of a record back to VFIO before their reset, if somebody bound them to a host driver: a
// device is never reset while a host driver uses it. toTargets returns an [effects.InUseError] while a process uses
// such a function on its host driver, and another error if a function stays there. If another device is at an address,
// it is not touched. The caller holds the functions' locks.
func (o *Order) toTargets(ctx context.Context, snap *device.Snapshot, rec *journal.Record) error {
	own, err := o.moved(ctx, snap, rec)
	if err != nil || len(own.Plan.Functions) == 0 {
		return err
	}
	return o.bringBack(ctx, own)
}

// moved returns a copy of the record with only those functions that somebody bound to a host driver. It returns an
// [effects.InUseError] while a process uses one of them on that driver.
func (o *Order) moved(ctx context.Context, snap *device.Snapshot, rec *journal.Record) (*journal.Record, error) {
	own := rec.Clone()
	own.Plan.Functions = nil
	for _, fn := range rec.Plan.Functions {
		f, there := fn.In(snap)
		if there && fn.Endpoint == nil && f.Driver != "" && !f.OnVFIO() {
			own.Plan.Functions = append(own.Plan.Functions, fn)
		}
	}
	if len(own.Plan.Functions) == 0 {
		return own, nil
	}
	return own, o.Effects.Untaken(ctx, snap, rec.Plan.Claim, own.Plan.Addresses())
}

// bringBack binds moved functions to VFIO again. If all of them leave the bus meanwhile, that is not an error, because
// they need no driver.
func (o *Order) bringBack(ctx context.Context, moved *journal.Record) error {
	err := o.Effects.BindAll(ctx, moved)
	if err == nil || o.Effects.AllGone(moved) {
		return nil
	}
	return fmt.Errorf("claim %s: bring its devices back from the host driver that somebody bound them to: %w; stop what binds them there, and the next try continues from here",
		moved.Plan.Claim, err)
}

// proveAgain repeats those resets of a cleaned record whose functions are still on VFIO, because somebody may have used
// the functions since their proof. It is for records that an earlier call cleaned. The caller holds the functions'
// locks.
func (o *Order) proveAgain(ctx context.Context, snap *device.Snapshot, rec *journal.Record) error {
	var again []isolation.Reset
	there := rec.Plan.AddressesIn(snap)
	for _, r := range rec.Plan.Resets() {
		left := slices.DeleteFunc(slices.Clone(r.Set), func(a pci.Address) bool { return !slices.Contains(there, a) })
		if len(left) > 0 && len(effects.OnVFIO(snap, slices.Clone(left))) == len(left) {
			again = append(again, r)
		}
	}
	if len(again) == 0 {
		return nil
	}
	// ResetAll replaces rec.Proofs. The proofs of functions that are back on host drivers still hold and are added
	// again below.
	older := rec.Proofs
	if err := o.afterResets(ctx, rec, o.Effects.ResetAll(ctx, rec, again)); err != nil {
		return err
	}
	for i := range older {
		if !slices.ContainsFunc(again, func(r isolation.Reset) bool { return slices.Equal(r.Set, older[i].Set) }) {
			rec.Proofs = append(rec.Proofs, older[i])
		}
	}
	return o.Effects.Keep(rec)
}
