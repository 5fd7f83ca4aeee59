// Package guestnet configures the interfaces of a pod's VFs inside the pod's VM. Kata gives a VF to the guest as a bare
// PCI function. The guest's driver makes an interface that is down, has a name of the kernel's choice, and no address.
// The command kata-vfio-guestnet, an init container with NET_ADMIN, finds that interface and configures it. All
// containers of the pod share the guest's network namespace, so the others find it ready.
//
//	devices, err := guestnet.ReadMetadata("")
//	report, err := guestnet.Configure(ctx, devices, guestnet.Options{Wait: 30 * time.Second, Log: log})
//
// # Input
//
// [ReadMetadata] reads the device metadata files that DRA mounts into every container that names the claim (KEP-5304).
// It uses the devices of driver kata-vfio.dev that have networkData.hardwareAddress or the attribute guestNetwork: a
// v1alpha1.GuestNetwork in JSON, read strictly. Without that attribute, networkData.interfaceName and networkData.ips
// apply. [ReadConfig] reads the same from a file.
//
// # Finding the interface
//
// The device's interface is the one whose permanent or current MAC is the device's, which its PF imposes. An InfiniBand
// VF has no such address: its interface is the IPoIB interface whose address ends with the port's GUID, the attribute
// portGUID of the metadata. It is an error if two interfaces match, if two devices match one interface, or if a device
// has neither address.
//
// A PCI address of the guest counts only in a config file, which a person writes. The plugin knows only the host's
// address, and no variable of the container has the guest's: kata-agent 4.1.0 rewrites PCIDEVICE_* variables for a
// container in a copy that it drops (add_devices in src/agent/src/device/mod.rs: to_vec), and effectively only for
// processes that are executed later (do_exec_process in src/agent/src/rpc.rs), for the functions of one device. An init
// container has the host's address, at which the guest may have another function.
//
// # Steps
//
// In this order, and only where something differs: name, MTU, up, addresses, routes, rules. Then it waits for the link,
// and for the end of IPv6's duplicate address detection (RFC 4862), which needs the link. On kernels older than 6.2 it
// takes an interface down to rename it, which removes the interface's IPv6 addresses and routes. Two devices may
// exchange their names.
//
// If the network has its own table, the interface's routes go there, together with the routes to the networks of its
// addresses, so that neighbors stay reachable on the link. A rule of priority [RulePriority] directs packets from one
// of the addresses to the table; link-local addresses need none.
//
// Nothing is removed. Other addresses and routes of the interface are reported as unmanaged, except those that the
// kernel makes itself. The only exception is an address whose detection failed: it is removed and added again, which
// repeats the detection.
//
// A crash leaves some of the steps done. The next run does the rest.
package guestnet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
)

// Options of [Configure].
type Options struct {
	// Wait is the time limit for each of three waits: for the interfaces, for their links, and for the end of duplicate
	// address detection.
	Wait time.Duration
	// NoWaitLink does not wait for links. Addresses of an interface without a link stay tentative.
	NoWaitLink bool
	// DryRun finds the interfaces and reports what would change.
	DryRun bool
	// SysRoot is the mount point of sysfs, /sys if empty.
	SysRoot string
	// Turn is that of the caller's other sockets; nil if there are none.
	Turn *Turn
	// Log gets what the run waits for, and what it changed. It must not be nil.
	Log *slog.Logger
}

// Configure configures the devices' interfaces in the network namespace of the calling thread. It can be repeated, and
// changes only what differs. Of two concurrent runs, one may fail at a step that the other has just done. The report is
// nil if the interfaces were not found. With any other error it has the changes so far.
//
// Callers can distinguish the errors [InputError], [NotFoundError] and [NoLinkError].
func Configure(ctx context.Context, devices []Device, opts Options) (*Report, error) {
	targets, err := newTargets(devices)
	if err != nil {
		return nil, err
	}
	k, err := openKernel(cmp.Or(opts.Turn, &Turn{}))
	if err != nil {
		return nil, err
	}
	defer k.close()
	if opts.SysRoot == "" {
		opts.SysRoot = "/sys"
	}
	r := &run{options: opts, kernel: k, targets: targets}
	if err := r.find(ctx); err != nil {
		return nil, err
	}
	err = r.configure(ctx)
	if err == nil && !r.options.DryRun {
		err = r.await(ctx)
	}
	// Also after an error, so that the report has the changes until then.
	err = errors.Join(err, r.observe(ctx))
	return newReport(targets, r.options.DryRun), err
}

// run is one call of Configure.
type run struct {
	options Options
	kernel  *kernel
	targets []*target
}

// configure makes the changes. An error of one target does not prevent the others.
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
	// The order matters: the kernel takes no route on an interface that is down (ENETDOWN), and none whose next hop is in
	// no network of its addresses.
	for _, step := range []func(context.Context, *target) error{r.setMTU, r.setUp, r.addAddresses, r.addRoutes, r.addRules} {
		if err := step(ctx, t); err != nil {
			return err
		}
	}
	return nil
}

// change makes one change, except in a dry run. Errors name the device, the interface and the change.
func (r *run) change(ctx context.Context, t *target, what string, do func(*netlink.Handle) error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if r.options.DryRun {
		return nil
	}
	if err := r.kernel.socket.Do(ctx, do); err != nil {
		return t.errorf("%s: %w", what, explain(err))
	}
	r.options.Log.InfoContext(ctx, "changed", slog.String("interface", t.result.Name.Value), slog.String("what", what))
	return nil
}

// InputError says that the metadata or the config file is invalid or requests something impossible. Another run fails
// in the same way.
type InputError struct{ Err error }

func (e *InputError) Error() string { return e.Err.Error() }
func (e *InputError) Unwrap() error { return e.Err }

// inputErrorf returns an [InputError].
func inputErrorf(format string, args ...any) error {
	return &InputError{fmt.Errorf(format, args...)}
}

// aboutPFLink names a cause that only the node can see: drivers give a VF a random MAC address if the PF does not
// answer, for example because its interface is down.
const aboutPFLink = "If the PF's link was down when the VM booted, the VF may have a random MAC address: see the claim's condition LinkUp"

// NotFoundError says that devices had no interface in time. Nothing was changed.
type NotFoundError struct {
	// Missing has the devices, and the addresses that were searched for.
	Missing []string
	// Seen are the interfaces of the guest at the end of the wait, with their MACs.
	Seen []string
	Wait time.Duration
}

func (e *NotFoundError) Error() string {
	return fmt.Sprintf("no interface for %s after %v; the guest has %s. Is the VF's driver in the guest's kernel, and did Kata plug the VF? %s",
		strings.Join(e.Missing, "; "), e.Wait, strings.Join(e.Seen, ", "), aboutPFLink)
}

// NoLinkError says that interfaces had no link in time. Everything else is configured, except that IPv6 addresses wait
// for the link too.
type NoLinkError struct {
	Interfaces []string
	Wait       time.Duration
}

func (e *NoLinkError) Error() string {
	return fmt.Sprintf("no link on %s after %v; everything else is configured. See the claim's condition LinkUp for the PF's link and the VF's linkState, or wait longer",
		strings.Join(e.Interfaces, ", "), e.Wait)
}

// explain adds the fix to an error of the kernel.
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

// poll calls check until nothing is pending or an error occurs. It returns false if the wait ends first. check returns
// what is pending, which poll logs at first and then every few seconds.
func poll(ctx context.Context, wait time.Duration, log *slog.Logger, check func() (pending string, err error)) (bool, error) {
	start := time.Now()
	deadline := time.NewTimer(wait)
	defer deadline.Stop()
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	next := start
	for {
		// The check precedes the wait, so that a wait of 0 means one check.
		pending, err := check()
		if err != nil {
			return false, err
		}
		if pending == "" {
			return true, nil
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
