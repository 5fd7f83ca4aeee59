package effects

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/network/podnet"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// A physical endpoint is a VF that Kata takes from the pod's network namespace. Like any other function it is first
// bound to VFIO, reset and proven clean. Then it waits on its kernel driver. After the hand-over Kata binds it, and may
// leave it on any driver, so Unprepare binds it to VFIO again before the reset.

// ResolveEndpoints finds the kernel drivers that are still unknown in the plan.
func (set *Set) ResolveEndpoints(snap *device.Snapshot, rec *journal.Record) error {
	for i := range rec.Plan.Functions {
		fn := &rec.Plan.Functions[i]
		if fn.Endpoint == nil || fn.Endpoint.Driver != plan.FindDriver {
			continue
		}
		module, err := set.endpointModule(snap, fn)
		if err != nil {
			return fmt.Errorf("claim %s: find the kernel driver of VF %s: %w", rec.Plan.Claim, fn.Address, err)
		}
		if module == "" {
			return plan.RefuseClaim(rec.Plan.Claim, rule.Verdict{
				Code: rule.UnsupportedSetting, Device: plannedDevice(&rec.Plan, fn).Name, Address: fn.Address,
				Text: fmt.Sprintf("VF %s has no kernel driver, and no module of this kernel is for it, so it can't be a physical endpoint", fn.Address),
				Fix:  "install its driver's module on the node, or leave `attachment: PhysicalEndpoint` out",
			})
		}
		driver, loaded := snap.Host.Driver(module)
		if !loaded && !slices.Contains(rec.Plan.Modules, module) {
			rec.Plan.Modules = append(rec.Plan.Modules, module)
		}
		fn.Endpoint = &plan.Binding{Driver: driver, Override: driver}
	}
	return nil
}

// endpointModule returns the module for a function by the running kernel's modules.alias; empty if there is none.
func (set *Set) endpointModule(snap *device.Snapshot, fn *plan.Function) (string, error) {
	f, ok := snap.Function(fn.Address)
	if !ok {
		return "", nil
	}
	data, err := set.FS.ReadFile(path.Join("lib/modules", snap.Host.Kernel, "modules.alias"))
	if err != nil {
		return "", err
	}
	return device.ModuleFor(bytes.NewReader(data), f.Modalias)
}

// BindEndpoints binds the record's endpoints to their kernel drivers, where they wait for a sandbox with the address
// that their PF has set.
func (set *Set) BindEndpoints(ctx context.Context, rec *journal.Record) error {
	for i := range rec.Plan.Functions {
		fn := &rec.Plan.Functions[i]
		if fn.Endpoint == nil {
			continue
		}
		if err := set.Drive(ctx, rec, fn, *fn.Endpoint); err != nil {
			return err
		}
		err := set.Observe.Timed(rec.Plan.Claim, PhaseNode, func() error { return set.Interfaces.Await(ctx, fn.Address) })
		if err != nil {
			return fmt.Errorf("claim %s: %w", rec.Plan.Claim, err)
		}
	}
	return nil
}

// RebindEndpoints binds the record's endpoints to VFIO again, wherever they are: in the network namespace of the node
// or of a pod, on VFIO, or on no driver. It skips endpoints that no longer exist.
func (set *Set) RebindEndpoints(ctx context.Context, rec *journal.Record) error {
	return set.driveEndpoints(ctx, rec, func(fn *plan.Function) plan.Binding { return fn.Target })
}

// UnbindEndpoints unbinds the record's endpoints from their drivers. When an endpoint is bound again, it gets the
// address that its PF has set for it by then.
func (set *Set) UnbindEndpoints(ctx context.Context, rec *journal.Record) error {
	return set.driveEndpoints(ctx, rec, func(*plan.Function) plan.Binding { return plan.Binding{} })
}

func (set *Set) driveEndpoints(ctx context.Context, rec *journal.Record, to func(*plan.Function) plan.Binding) error {
	var errs []error
	for i := range rec.Plan.Functions {
		fn := &rec.Plan.Functions[i]
		if fn.Endpoint == nil {
			continue
		}
		if err := set.Drive(ctx, rec, fn, to(fn)); err != nil && !set.isGone(fn) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// PlaceEndpoints moves the interfaces of the record's endpoints into the network namespace of the record's sandbox. It
// may be repeated, because it skips interfaces that Kata has already taken out of that namespace.
func (set *Set) PlaceEndpoints(ctx context.Context, rec *journal.Record) error {
	for i := range rec.Plan.Devices {
		fn, ok := rec.Plan.Function(rec.Plan.Devices[i].Address)
		if !ok || fn.Endpoint == nil {
			continue
		}
		now, err := set.now(ctx, fn)
		if err != nil {
			return err
		}
		// Kata binds an endpoint to VFIO when it takes it from the namespace. There is no interface to move then.
		if device.IsVFIO(now.Driver) {
			continue
		}
		what := podnet.Interface{VF: fn.Address, MAC: fn.VF.Want.MAC, Network: rec.Plan.Devices[i].Network}
		err = set.Observe.Timed(rec.Plan.Claim, PhaseVF, func() error { return set.Interfaces.Place(ctx, what, rec.Sandbox.NetNS) })
		if err != nil {
			return fmt.Errorf("claim %s: %w", rec.Plan.Claim, err)
		}
	}
	return nil
}

// FindBinding returns the binding that a function of a prepared record must have, and false if Kata chooses it.
func FindBinding(rec *journal.Record, fn *plan.Function) (plan.Binding, bool) {
	switch {
	case fn.Endpoint == nil:
		return fn.Target, true
	case rec.Sandbox == nil:
		return *fn.Endpoint, true
	}
	return plan.Binding{}, false
}
