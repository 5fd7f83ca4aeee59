package bind

import (
	"cmp"
	"context"

	"github.com/kata-vfio/kata-vfio/pkg/fabric"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/control"
)

// Provider sets values of one kind for functions: each value has a name and a text, as in [plan.Setting]. A provider knows one
// vendor's way. When a value is set, what follows from an error, journal and ledger are the same for all. Its methods are called with
// the function's locks held.
type Provider interface {
	// Resolve completes a setting before the first effect: Found, and Want in the words of Read. It writes nothing.
	Resolve(ctx context.Context, fn *plan.Function, s *plan.Setting) error
	// Read returns the value that is in force.
	Read(ctx context.Context, fn *plan.Function, name string) (string, error)
	// Set has the kernel, or another program, put the value in force. The caller reads it back.
	Set(ctx context.Context, fn *plan.Function, name, value string) error
	// Accepts reports whether a value that Read returned right after Set is what the device makes of the wanted one: it may round.
	Accepts(name, want, now string) bool
}

// Stopper is a Provider that can end what a function executes, before the reset after a tenant.
type Stopper interface {
	// Stop ends what the function executes. The reset allows it to execute again.
	Stop(ctx context.Context, fn *plan.Function) error
}

// Alone is a Provider that sets the values of the VFs of one PF one at a time, because what one can have depends on the others.
type Alone interface {
	// SetsAlone has no effect.
	SetsAlone()
}

// LossNamer is a Provider of values that another program may end while a claim has them.
type LossNamer interface {
	// Lost returns an error that says that a device lost such a value, with the code that conditions and Events show. device is its name
	// in ResourceSlices.
	Lost(device string, err error) error
}

// UnsettableError says that a provider can't set a value of a function: a claim that needs the value is refused.
type UnsettableError struct {
	Text, Fix string
	// Reason is that of the refusal; empty for [rule.UnsupportedSetting].
	Reason rule.Code
}

func (e *UnsettableError) Error() string { return e.Text }

// ResetFirstError says that a value may come into force after a reset of the claim's functions, and not before.
type ResetFirstError struct{ Err error }

func (e *ResetFirstError) Error() string { return e.Err.Error() }

func (e *ResetFirstError) Unwrap() error { return e.Err }

// NotActivatedError says that an activation of a device can't be made, and that the next claim that gets the device fails alike; or that a
// prepared claim's activation is not in force any more.
type NotActivatedError struct {
	// Device is the device's name in ResourceSlices.
	Device string
	// Reason is the provider's code for it.
	Reason rule.Code
	Err    error
}

func (e *NotActivatedError) Error() string { return e.Err.Error() }

func (e *NotActivatedError) Unwrap() error { return e.Err }

// Code is that of conditions, Events and taints.
func (e *NotActivatedError) Code() rule.Code { return cmp.Or(e.Reason, rule.NotPrepared) }

// AwayError says that what puts a value in force can't do so now, and changes nothing before it can: the call may be repeated.
type AwayError struct {
	Err error
	// Last is the value that was in force when it could be read last; empty if that is unknown, and after an attempt to change it.
	Last string
	// Reason is the provider's code for it.
	Reason rule.Code
}

func (e *AwayError) Error() string { return e.Err.Error() }

func (e *AwayError) Unwrap() error { return e.Err }

// Code is that of conditions and Events.
func (e *AwayError) Code() rule.Code { return cmp.Or(e.Reason, rule.NotPrepared) }

// Providers returns the providers of a node by name. m asks its Fabric Manager.
func Providers(fs *sysfs.FS, kernel *control.Control, m fabric.Manager) map[string]Provider {
	return map[string]Provider{
		plan.ProviderXe:     &Xe{fs: fs, kernel: kernel},
		plan.ProviderVGPU:   &VGPU{door: &sysfsVGPU{fs: fs, kernel: kernel}},
		plan.ProviderFabric: &Fabric{fs: fs, manager: m},
	}
}
