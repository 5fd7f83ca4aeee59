package bind

import (
	"context"
	"fmt"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// UncleanError says that a function could not be proven clean: the reset
// failed, the function does not answer, or it is not as it was.
type UncleanError struct {
	Reset isolation.Reset
	// Why is a phrase; Err is the cause where there was one.
	Why string
	Err error
}

func (e *UncleanError) Error() string {
	return fmt.Sprintf("reset %s by %s: %s", e.Reset.Set[0], e.Reset.Method, e.Why)
}

func (e *UncleanError) Unwrap() error { return e.Err }

// Reset resets the functions of r.Set and compares each with its baseline
// fingerprint. The proof is valid when the error is nil; otherwise the error
// is an [UncleanError] and the proof holds what was seen. It may be repeated.
// The functions must be on a VFIO driver and have no holder: the caller looks.
func (e *Executor) Reset(ctx context.Context, r isolation.Reset, baseline []isolation.Fingerprint) (isolation.Proof, error) {
	proof := isolation.Proof{Reset: r}
	unclean := func(err error) (isolation.Proof, error) {
		return proof, &UncleanError{Reset: r, Why: err.Error(), Err: err}
	}
	var err error
	if proof.Before, err = e.Fingerprints(r.Set); err != nil {
		return unclean(err)
	}
	start := time.Now()
	err = e.reset(ctx, r)
	proof.Milliseconds = time.Since(start).Milliseconds()
	if err != nil {
		return unclean(err)
	}
	if proof.After, err = e.Fingerprints(r.Set); err != nil {
		return unclean(err)
	}
	if why := compare(proof.After, baseline); why != "" {
		return proof, &UncleanError{Reset: r, Why: why}
	}
	return proof, nil
}

func (e *Executor) reset(ctx context.Context, r isolation.Reset) error {
	if r.Method == isolation.HotReset {
		return e.hotReset(ctx, r.Set)
	}
	return e.kernel.Reset(ctx, r.Set[0], r.Method)
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

// Fingerprint reads that of one function.
func Fingerprint(fs *sysfs.FS, a pci.Address) (isolation.Fingerprint, error) {
	config, err := fs.ConfigHead(a, isolation.FingerprintBytes)
	if err != nil {
		return isolation.Fingerprint{}, err
	}
	return isolation.FingerprintOf(a, config)
}

// compare holds each fingerprint against the baseline of its function. A
// function without a baseline proves nothing.
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
