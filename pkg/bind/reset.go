package bind

import (
	"context"
	"errors"
	"fmt"

	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/control"
)

// NotCleanError says that a function could not be proven clean: the reset failed, the function does not answer, or its
// registers differ from the baseline.
type NotCleanError struct {
	Reset isolation.Reset
	// Why is the reason as a phrase. Err is the cause; nil if there is none.
	Why string
	Err error
}

func (e *NotCleanError) Error() string {
	return fmt.Sprintf("reset %s by %s: %s", e.Reset.Set[0], e.Reset.Method, e.Why)
}

func (e *NotCleanError) Unwrap() error { return e.Err }

// UnfinishedError says that a reset has no usable result yet: it is still in the kernel, it could not begin, or its
// functions could be used while it ran. It says nothing about the device, and the caller tries again.
type UnfinishedError struct {
	Reset isolation.Reset
	Err   error
}

func (e *UnfinishedError) Error() string {
	return fmt.Sprintf("reset %s by %s has no result yet: %s", e.Reset.Set[0], e.Reset.Method, e.Err)
}

func (e *UnfinishedError) Unwrap() error { return e.Err }

// InKernel reports whether the reset is in the kernel, or another operation that keeps the reset from beginning. Until
// that operation ends, no driver can bind or release the function.
func (e *UnfinishedError) InKernel() bool {
	_, stuck := errors.AsType[*control.StuckError](e.Err)
	return stuck || errors.Is(e.Err, sysfs.ErrLocked)
}

// Reset resets the functions of r.Set and compares each with its baseline fingerprint. The proof is valid only if the
// error is nil. With a [NotCleanError], the proof contains what was read. An [UnfinishedError] is not evidence against
// the device. tenancy names the tenancy whose traces are removed. Reset may be repeated: if a call for the same tenancy
// was interrupted, the next call takes the result of that reset, and its proof has no fingerprints from before the
// reset.
//
// No function may be on a host driver ([HostDriverError]). From before the reset until after its proof, no other
// process can open the functions through VFIO. If a process has one open, the reset does not begin.
func (e *Executor) Reset(ctx context.Context, r isolation.Reset, baseline []isolation.Fingerprint, tenancy string) (isolation.Proof, error) {
	proof := isolation.Proof{Reset: r}
	if ctx.Err() != nil {
		return proof, &UnfinishedError{Reset: r, Err: context.Cause(ctx)}
	}
	x, err := e.shutOut(ctx, r.Set)
	if err != nil {
		return proof, unbegun(ctx, r, err)
	}
	defer func() { e.letIn(x, err) }() //nolint:contextcheck // what is in the kernel outlives the call, and so does the wait for it
	if proof.Before, err = e.Fingerprints(r.Set); err != nil {
		return proof, unbegun(ctx, r, err)
	}
	if tenancy != "" {
		tenancy = fmt.Sprint(tenancy, x.places) // the reset of another function at the same address must not count
	}
	run, err := e.reset(ctx, r, x, tenancy)
	if proof.Milliseconds = run.Took.Milliseconds(); run.Joined {
		proof.Before = nil // the reset began before the fingerprints were read
	}
	if err == nil && run.Joined && !x.kept {
		return proof, &UnfinishedError{Reset: r, Err: errors.New("its functions could be used while it ran, so it is repeated")}
	}
	if err != nil {
		return proof, verdict(r, err)
	}
	if proof.After, err = e.Fingerprints(r.Set); err != nil {
		return proof, verdict(r, err)
	}
	if why := compare(proof.After, baseline); why != "" {
		return proof, &NotCleanError{Reset: r, Why: why}
	}
	return proof, nil
}

// unbegun returns what an error from before the reset says about the device. It says nothing about it if ctx has ended,
// because the error may be the end of ctx.
func unbegun(ctx context.Context, r isolation.Reset, err error) error {
	if ctx.Err() != nil {
		return &UnfinishedError{Reset: r, Err: fmt.Errorf("it was interrupted before it began (%w): %w", context.Cause(ctx), err)}
	}
	return verdict(r, err)
}

// verdict returns what an error says about the device. The error says nothing about it if the kernel has not answered,
// or if the reset did not begin because another process or a host driver has the device.
func verdict(r isolation.Reset, err error) error {
	unfinished := &UnfinishedError{Reset: r, Err: err}
	_, onHost := errors.AsType[*HostDriverError](err)
	if unfinished.InKernel() || control.NotBegun(err) || onHost {
		return unfinished
	}
	return &NotCleanError{Reset: r, Why: err.Error(), Err: err}
}

func (e *Executor) reset(ctx context.Context, r isolation.Reset, x *exclusion, tenancy string) (control.ResetRun, error) {
	if r.Method != isolation.HotReset {
		return e.kernel.Reset(ctx, r.Set[0], r.Method, tenancy)
	}
	return e.kernel.ResetTogether(ctx, r.Set, r.Method, tenancy, x.hotReset)
}

// AwaitResets waits until no reset of the functions that an earlier call began is in the kernel. It returns a
// [control.StuckError] if ctx ends first.
func (e *Executor) AwaitResets(ctx context.Context, set []pci.Address) error {
	return e.kernel.AwaitResets(ctx, set)
}

// Fingerprints reads the fingerprints of functions.
func (e *Executor) Fingerprints(addrs []pci.Address) ([]isolation.Fingerprint, error) {
	fps := make([]isolation.Fingerprint, 0, len(addrs))
	for _, a := range addrs {
		fp, err := Fingerprint(e.fs, a)
		if err != nil {
			return nil, err
		}
		fps = append(fps, fp)
	}
	return fps, nil
}

// Fingerprint reads the fingerprint of one function.
func Fingerprint(fs *sysfs.FS, a pci.Address) (isolation.Fingerprint, error) {
	config, err := fs.ConfigHead(a, isolation.FingerprintBytes)
	if err != nil {
		return isolation.Fingerprint{}, err
	}
	return isolation.NewFingerprint(a, config)
}

// compare returns why a fingerprint differs from the baseline of its function; empty if none differs. A function
// without a baseline counts as different, because nothing can be proven for it.
func compare(after, baseline []isolation.Fingerprint) string {
	for _, fp := range after {
		base, ok := find(baseline, fp.Address)
		if !ok {
			return fmt.Sprintf("%s has no fingerprint from before the tenant", fp.Address)
		}
		if why := isolation.Compare(base, fp); why != "" {
			return why
		}
	}
	return ""
}

func find(fps []isolation.Fingerprint, a pci.Address) (isolation.Fingerprint, bool) {
	for _, fp := range fps {
		if fp.Address == a {
			return fp, true
		}
	}
	return isolation.Fingerprint{}, false
}
