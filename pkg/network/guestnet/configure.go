package guestnet

import (
	"context"
	"errors"
	"log/slog"
	"time"
)

// Options of [Configure].
type Options struct {
	// Wait is how long to wait for the interfaces, and then as long for their
	// link, and as long for the end of duplicate address detection.
	Wait time.Duration
	// NoWaitLink doesn't wait for the link; addresses of an interface without one
	// stay tentative.
	NoWaitLink bool
	// DryRun finds the interfaces and reports what would change.
	DryRun bool
	// SysRoot is where sysfs is, /sys when empty.
	SysRoot string
	// Log gets the progress: what is waited for, what was changed. It must not be
	// nil.
	Log *slog.Logger
}

// Configure makes the devices' interfaces in the calling thread's network
// namespace what is asked. It may be repeated: what is so already stays
// untouched. Of two runs at a time one may fail at what the other has just done.
// The report is nil when the interfaces were not found; with any other error it
// says what was done.
//
// Errors that a caller may tell apart are [InputError], [NotFoundError] and
// [NoLinkError].
func Configure(ctx context.Context, devices []Device, opts Options) (*Report, error) {
	targets, err := newTargets(devices)
	if err != nil {
		return nil, err
	}
	k, err := openKernel()
	if err != nil {
		return nil, err
	}
	defer k.close()
	if opts.SysRoot == "" {
		opts.SysRoot = "/sys"
	}
	r := &run{Options: opts, kernel: k, targets: targets}
	if err := r.find(ctx); err != nil {
		return nil, err
	}
	err = r.configure(ctx)
	if err == nil && !r.DryRun {
		err = r.await(ctx)
	}
	err = errors.Join(err, r.observe(ctx))
	return newReport(targets, r.DryRun), err
}

// run is one call of Configure.
type run struct {
	Options
	kernel  *kernel
	targets []*target
}

// configure makes the changes. A target that fails doesn't keep the others
// from being configured.
func (r *run) configure(ctx context.Context) error {
	if err := r.rename(ctx); err != nil {
		return err
	}
	var errs []error
	for _, t := range r.targets {
		errs = append(errs, r.configureOne(ctx, t))
	}
	return errors.Join(errs...)
}

func (r *run) configureOne(ctx context.Context, t *target) error {
	for _, step := range []func(context.Context, *target) error{r.setMTU, r.setUp, r.addAddresses, r.addRoutes, r.addRules} {
		if err := step(ctx, t); err != nil {
			return err
		}
	}
	return nil
}

// change makes one change unless this is a dry run. Errors say of which
// device, of which interface and what.
func (r *run) change(ctx context.Context, t *target, what string, do func() error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if r.DryRun {
		return nil
	}
	if err := do(); err != nil {
		return t.errorf("%s: %w", what, explain(err))
	}
	r.Log.InfoContext(ctx, "changed", slog.String("interface", t.result.Name.Value), slog.String("what", what))
	return nil
}
