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

// Provider sets values of one kind for functions. Each value has a name and a text, as in [plan.Setting]. A provider
// knows only how one vendor's values are read and set. When a value is set, what follows from an error, and how values
// are recorded, is the same for all providers. Its methods are called with the function's locks held.
type Provider interface {
	// Resolve completes a setting before the first effect: it sets Found, and puts Want into the words of Read. It
	// writes nothing to the node.
	Resolve(ctx context.Context, fn *plan.Function, s *plan.Setting) error
	// Read returns the value that is in force.
	Read(ctx context.Context, fn *plan.Function, name string) (string, error)
	// Set has the kernel, or another program, put the value in force. The caller reads it back.
	Set(ctx context.Context, fn *plan.Function, name, value string) error
	// Accepts reports whether now, which Read returned right after Set, is what the device makes of the wanted value:
	// the device may round.
	Accepts(name, want, now string) bool
}

// Stopper is a Provider that can end what a function executes, before the reset after a tenant.
type Stopper interface {
	// Stop ends what the function executes. The reset that follows allows the function to execute again.
	Stop(ctx context.Context, fn *plan.Function) error
}

// Alone is a Provider that must set the values of a PF's VFs one at a time, because the values that one VF can have
// depend on the other VFs.
type Alone interface {
	// SetsAlone only marks the type. It does nothing.
	SetsAlone()
}

// LossNamer is a Provider whose values another program may end while a claim has them.
type LossNamer interface {
	// Lost returns an error for a device that lost such a value, with the code that conditions and Events show. device
	// is the device's name in ResourceSlices. err says what was lost.
	Lost(device string, err error) error
}

// UnsettableError says that a provider can't set a value of a function: a claim that needs the value is refused.
type UnsettableError struct {
	Text, Fix string
	// Reason is the code of the refusal; empty for [rule.UnsupportedSetting].
	Reason rule.Code
}

func (e *UnsettableError) Error() string { return e.Text }

// ResetFirstError says that a value could not be put in force, but may be after a reset of the claim's functions.
type ResetFirstError struct{ Err error }

func (e *ResetFirstError) Error() string { return e.Err.Error() }

func (e *ResetFirstError) Unwrap() error { return e.Err }

// NotActivatedError says that an activation of a device can't be made and would also fail for the next claim that gets
// the device, or that a prepared claim's activation is no longer in force.
type NotActivatedError struct {
	// Device is the device's name in ResourceSlices.
	Device string
	// Reason is the provider's code for it.
	Reason rule.Code
	Err    error
}

func (e *NotActivatedError) Error() string { return e.Err.Error() }

func (e *NotActivatedError) Unwrap() error { return e.Err }

// Code returns the code that conditions, Events and taints show.
func (e *NotActivatedError) Code() rule.Code { return cmp.Or(e.Reason, rule.NotPrepared) }

// AwayError says that the program that puts a value in force can't do so now. The program changes nothing until it can,
// so the call may be repeated.
type AwayError struct {
	Err error
	// Last is the value that was in force when the value was last read. It is empty if that is unknown, and after an
	// attempt to change the value.
	Last string
	// Reason is the provider's code for it.
	Reason rule.Code
}

func (e *AwayError) Error() string { return e.Err.Error() }

func (e *AwayError) Unwrap() error { return e.Err }

// Code returns the code that conditions and Events show.
func (e *AwayError) Code() rule.Code { return cmp.Or(e.Reason, rule.NotPrepared) }

// Providers returns the providers of a node by name. m answers for the node's Fabric Manager.
func Providers(fs *sysfs.FS, kernel *control.Control, m fabric.Manager) map[string]Provider {
	return map[string]Provider{
		plan.ProviderXe:     &Xe{fs: fs, kernel: kernel},
		plan.ProviderVGPU:   &VGPU{door: &sysfsVGPU{fs: fs, kernel: kernel}},
		plan.ProviderFabric: &Fabric{fs: fs, manager: m},
	}
}
