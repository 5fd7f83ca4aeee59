// Package guestnet configures the interfaces of a pod's VFs inside the pod's
// VM. Kata gives a VF to the guest as a bare PCI function: its driver there
// makes an interface of it that is down, has a name of the kernel's choice and
// no address. The command kata-vfio-guestnet, an init container with NET_ADMIN,
// finds that interface and does what the claim asks; all containers of the pod
// share the guest's network namespace, so that the others find it ready.
//
//	devices, err := guestnet.ReadMetadata("")
//	report, err := guestnet.Configure(ctx, devices, guestnet.Options{Wait: 30 * time.Second, Log: log})
//
// # What is asked
//
// [ReadMetadata] reads the device metadata files that DRA mounts into every
// container that names the claim (KEP-5304): of the devices of driver
// kata-vfio.dev, those that have networkData.hardwareAddress or the attribute
// guestNetwork. That attribute is a v1alpha1.GuestNetwork in JSON, read
// strictly. Without it, networkData.interfaceName and networkData.ips hold.
// [ReadConfig] takes the same from a file.
//
// # Which interface it is
//
// The one whose permanent or current MAC is the device's, which its PF has
// imposed. An InfiniBand VF has no such address: its interface is the one of
// IPoIB whose address ends with the port's GUID, the attribute portGUID of the
// metadata. Two interfaces that could be it, and one interface for two devices,
// are errors, and so is a device of which neither is known.
//
// A PCI address of the guest counts only in a config file, where a person says
// it. The plugin knows the host's alone, and no variable of the container tells
// the guest's: kata-agent 4.1.0 rewrites PCIDEVICE_* variables for a container in
// a copy that it drops (add_devices in src/agent/src/device/mod.rs: to_vec), and
// in earnest only for processes that are executed later (do_exec_process in
// src/agent/src/rpc.rs), and then for the functions of one device alone. What an
// init container has is the host's address, at which the guest may have another
// function.
//
// # What is done
//
// In this order, and nothing where it is so already: name, MTU, up, addresses,
// routes, rules; then it waits for the link and for the end of IPv6's duplicate
// address detection (RFC 4862), which needs the link. An interface that is up
// is taken down to rename it where the kernel is older than 6.2, and loses its
// IPv6 addresses and routes by that. Two devices may exchange their names.
//
// With a table of its own the interface's routes go there, with those to the
// networks of its addresses, since a neighbour is no further away because
// another table was asked. A rule of priority [RulePriority] sends there what
// comes from one of the addresses; link-local ones need none.
//
// Nothing is removed. Addresses and routes of the interface beyond what is
// asked are reported as unmanaged, without those that the kernel makes by
// itself. The one exception is an asked address whose detection failed: it is
// taken away and added again, which is how the detection is repeated.
//
// A crash leaves a part of the steps done; the next run does the rest.
package guestnet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"syscall"
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

// InputError says that what is asked can't be done as it is written: the
// metadata, the config file, or what they ask for. Another run ends the same.
type InputError struct{ Err error }

func (e *InputError) Error() string { return e.Err.Error() }
func (e *InputError) Unwrap() error { return e.Err }

// inputErrorf returns an [InputError].
func inputErrorf(format string, args ...any) error {
	return &InputError{fmt.Errorf(format, args...)}
}

// aboutPFLink names a cause that only the node sees: VF drivers give the VF a random MAC
// address where the PF does not answer, as while its interface is down.
const aboutPFLink = "If the PF's link was down when the VM booted, the VF may have a random MAC address: see the claim's condition LinkUp"

// NotFoundError says that devices had no interface in time. Nothing was
// changed.
type NotFoundError struct {
	// Missing names the devices and what was searched for.
	Missing []string
	// Seen are the interfaces that the guest had in the end, with their MACs.
	Seen []string
	Wait time.Duration
}

func (e *NotFoundError) Error() string {
	return fmt.Sprintf("no interface for %s after %v; the guest has %s. Is the VF's driver in the guest's kernel, and did Kata plug the VF? %s",
		strings.Join(e.Missing, "; "), e.Wait, strings.Join(e.Seen, ", "), aboutPFLink)
}

// NoLinkError says that interfaces had no link in time. Everything else is
// configured, and IPv6 addresses wait for the link too.
type NoLinkError struct {
	Interfaces []string
	Wait       time.Duration
}

func (e *NoLinkError) Error() string {
	return fmt.Sprintf("no link on %s after %v; everything else is configured. See the claim's condition LinkUp for the PF's link and the VF's linkState, or wait longer",
		strings.Join(e.Interfaces, ", "), e.Wait)
}

// explain adds to a kernel's error what to do about it.
func explain(err error) error {
	switch {
	case errors.Is(err, syscall.EPERM):
		return fmt.Errorf("%w; the container needs the capability NET_ADMIN", err)
	case errors.Is(err, syscall.ENODEV):
		return fmt.Errorf("%w; the interface no longer exists", err)
	}
	return err
}

const (
	pollInterval  = 50 * time.Millisecond
	progressEvery = 5 * time.Second
)

// poll calls check until it has no more to wait for or fails, and reports
// false when wait is over before that. check returns what it waits for, which
// is logged at first and every few seconds.
func poll(ctx context.Context, wait time.Duration, log *slog.Logger, check func() (pending string, err error)) (bool, error) {
	start := time.Now()
	deadline := time.NewTimer(wait)
	defer deadline.Stop()
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	next := start
	for {
		pending, err := check()
		if err != nil || pending == "" {
			return err == nil, err
		}
		if now := time.Now(); !now.Before(next) {
			log.InfoContext(ctx, "waiting", slog.String("for", pending), slog.Duration("most", wait), slog.Duration("waited", now.Sub(start).Round(time.Second)))
			next = now.Add(progressEvery)
		}
		select {
		case <-ctx.Done():
			return false, context.Cause(ctx)
		case <-deadline.C:
			return false, nil
		case <-ticker.C:
		}
	}
}
