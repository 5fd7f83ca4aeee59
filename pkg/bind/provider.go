package bind

import (
	"context"

	"github.com/kata-vfio/kata-vfio/pkg/fabric"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
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

// UnsettableError says that a provider can't set a value of a function: a claim that needs the value is refused.
type UnsettableError struct{ Text, Fix string }

func (e *UnsettableError) Error() string { return e.Text }

// ResetFirstError says that a value may come into force after a reset of the claim's functions, and not before.
type ResetFirstError struct{ Err error }

func (e *ResetFirstError) Error() string { return e.Err.Error() }

func (e *ResetFirstError) Unwrap() error { return e.Err }

// Providers returns the providers of a node by name. m asks its Fabric Manager.
func Providers(fs *sysfs.FS, kernel *control.Control, m fabric.Manager) map[string]Provider {
	return map[string]Provider{
		plan.ProviderXe:     &Xe{fs: fs, kernel: kernel},
		plan.ProviderVGPU:   &VGPU{fs: fs, kernel: kernel},
		plan.ProviderFabric: &Fabric{manager: m},
	}
}
