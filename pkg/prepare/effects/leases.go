package effects

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/network/podnet"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// The addresses of a record are its leases. They are returned after no VM can use them any more, so that no other claim
// gets an address that a VM may use, and before the record is removed. If an address can't be returned, it stays
// allocated, and the record stays and names it.

// ReturnError says that addresses could not be returned to their pool. The functions are clean and on their drivers.
// The record and the addresses stay until a later try succeeds.
type ReturnError struct {
	Claim plan.Ref
	// Device is the device's name, Pool the pool's.
	Device, Pool string
	Err          error
}

func (e *ReturnError) Error() string {
	return fmt.Sprintf("return the addresses of %s to pool %s: %s; fix the cause, and the plugin tries again; if you can't fix it, `kata-vfio-plugin "+
		"unprepare --leave-addresses %s` ends the claim and leaves the addresses allocated",
		e.Device, e.Pool, OneLine(e.Err), e.Claim.UID)
}

// Code returns the code that conditions and Events show.
func (e *ReturnError) Code() rule.Code { return rule.AddressNotReturned }

func (e *ReturnError) Unwrap() error { return e.Err }

// CheckPools refuses a claim before the first effect if the plugin of one of its pools is not installed.
func (set *Set) CheckPools(rec *journal.Record) error {
	for i := range rec.Plan.Devices {
		d := &rec.Plan.Devices[i]
		if d.Lease == nil {
			continue
		}
		if err := set.Addresses.Find(d.Lease); err != nil {
			return plan.RefuseClaim(rec.Plan.Claim, rule.Verdict{
				Code: rule.NoAddressPool, Device: d.Name, Address: d.Address,
				Text: fmt.Sprintf("its addresses come from pool %s: %s", d.Lease.Pool, err), Fix: "fix the cause, then try again",
			})
		}
	}
	return nil
}

// TakeAddresses takes the addresses of a record's devices, in parallel, and adds them to the record, which already has
// the leases on disk.
func (set *Set) TakeAddresses(ctx context.Context, rec *journal.Record) error {
	took, err := set.eachLease(rec, func(d *plan.Device) error { return set.takeAddress(ctx, rec.Plan.Claim, d) })
	if err != nil || !took {
		return err
	}
	return set.Keep(rec)
}

func (set *Set) takeAddress(ctx context.Context, claim plan.Ref, d *plan.Device) error {
	err := set.leaseStep(claim, d, plan.TakeAddress, func() error {
		result, err := set.Addresses.Add(ctx, d.Lease)
		if err == nil {
			d.Network, err = resolved(d.Network, result)
		}
		return err
	})
	if err == nil {
		return nil
	}
	err = fmt.Errorf("take addresses for %s from pool %s: %w", d.Name, d.Lease.Pool, err)
	if failed, ok := errors.AsType[*podnet.PluginError](err); !ok || !failed.Nothing {
		return err
	}
	// No address was taken, but CNI requires a DEL after a failed ADD. The DEL may fail too, for example if the plugin
	// refuses its config. That must not block the claim, so the lease is dropped.
	if delErr := set.returnAddress(context.WithoutCancel(ctx), claim, d); delErr != nil {
		d.Lease = nil
	}
	return err
}

// resolved returns the guest's network configuration with the addresses and routes of the pool.
func resolved(asked *v1alpha1.GuestNetwork, from *podnet.Result) (*v1alpha1.GuestNetwork, error) {
	n := *asked // a copy: asked belongs to the request
	n.AddressPool, n.Addresses, n.Routes = "", from.Addresses, slices.Clone(asked.Routes)
	for _, r := range from.Routes {
		if !slices.ContainsFunc(asked.Routes, r.SameNetwork) {
			n.Routes = append(n.Routes, r)
		}
	}
	if err := n.Validate(); err != nil {
		return asked, err
	}
	return &n, nil
}

// ReturnAddresses returns the addresses of a record's devices to their pools, in parallel. It may be repeated.
func (set *Set) ReturnAddresses(ctx context.Context, rec *journal.Record) error {
	_, err := set.eachLease(rec, func(d *plan.Device) error { return set.returnAddress(ctx, rec.Plan.Claim, d) })
	return err
}

func (set *Set) returnAddress(ctx context.Context, claim plan.Ref, d *plan.Device) error {
	err := set.leaseStep(claim, d, plan.ReturnAddress, func() error { return set.Addresses.Delete(ctx, d.Lease) })
	if err != nil {
		return &ReturnError{Claim: claim, Device: d.Name, Pool: d.Lease.Pool, Err: err}
	}
	return nil
}

// eachLease calls work for each device that has a lease, in parallel, and reports whether there is one.
func (set *Set) eachLease(rec *journal.Record, work func(*plan.Device) error) (any bool, err error) {
	errs := make([]error, len(rec.Plan.Devices))
	var g errgroup.Group
	for i := range rec.Plan.Devices {
		if d := &rec.Plan.Devices[i]; d.Lease != nil {
			any = true
			// Each goroutine writes its own device and its own error only, so no lock is needed.
			g.Go(func() error {
				errs[i] = work(d)
				return nil
			})
		}
	}
	_ = g.Wait() // the goroutines return nil; errs has theirs
	return any, errors.Join(errs...)
}

// leaseStep calls a pool's plugin and reports it to the observer as a step.
func (set *Set) leaseStep(claim plan.Ref, d *plan.Device, op plan.Op, call func() error) error {
	step, start := d.LeaseStep(op), time.Now()
	err := call()
	set.Observe(Event{Claim: claim, Phase: PhaseAddress, Step: &step, Took: time.Since(start), Err: err})
	return err
}
