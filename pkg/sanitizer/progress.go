package sanitizer

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/sanitize"
)

// ErrInterrupted says that the context of a sanitizer ended before its deadline: a signal ends it. There is no result.
var ErrInterrupted = errors.New("the sanitizer was interrupted before it was done")

// progress is a result in the making. The work may hang in an access to the device, so others read it meanwhile.
type progress struct {
	mu     sync.Mutex // guards result
	result sanitize.Result
}

// update changes the result.
func (p *progress) update(change func(*sanitize.Result)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(&p.result)
}

// fail makes the verdict of the result worse, and adds the reason to it.
func (p *progress) fail(v sanitize.Verdict, reason string) {
	p.update(func(r *sanitize.Result) {
		r.Verdict = r.Verdict.Worse(v)
		if r.Reason != "" {
			reason = r.Reason + "; " + reason
		}
		r.Reason = sanitize.OneLine(reason)
	})
}

// check adds a check. What it found counts for the whole result.
func (p *progress) check(c sanitize.Check) {
	c.Reason = sanitize.OneLine(c.Reason)
	p.update(func(r *sanitize.Result) { r.Checks = append(r.Checks, c) })
	if c.Verdict != sanitize.Clean {
		p.fail(c.Verdict, c.Name+": "+c.Reason)
	}
}

// snapshot returns the result so far.
func (p *progress) snapshot() *sanitize.Result {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.result
	r.Checks, r.Firmware = append([]sanitize.Check(nil), r.Checks...), append([]sanitize.Measurement(nil), r.Firmware...)
	return &r
}

// bounded runs work until its deadline, and returns the result. A work that does not end by then is left alone: an access
// to a device that hangs can't be canceled. Its error makes the result Unknown.
func bounded(ctx context.Context, timeout time.Duration, work func(context.Context, *progress) error) (*sanitize.Result, error) {
	late := fmt.Errorf("the device was not sanitized within %s", timeout)
	limited, cancel := context.WithTimeoutCause(ctx, timeout, late)
	defer cancel()
	p := &progress{result: sanitize.Result{APIVersion: sanitize.APIVersion, Kind: sanitize.Kind, Verdict: sanitize.Clean}}
	// With room for a result that comes after the deadline.
	done := make(chan error, 1)
	go func() { done <- guarded(limited, p, work) }()
	var err error
	select {
	case err = <-done:
	case <-limited.Done():
		err = context.Cause(limited)
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("%w: %w", ErrInterrupted, context.Cause(ctx))
	}
	if err != nil {
		p.fail(sanitize.Unknown, err.Error())
	}
	return p.snapshot(), nil
}

// guarded does the work. An access to memory that the kernel took away (SIGBUS) is an error instead of the program's end.
func guarded(ctx context.Context, p *progress, work func(context.Context, *progress) error) (err error) {
	debug.SetPanicOnFault(true) // of this goroutine
	defer func() {
		if fault := recover(); fault != nil {
			err = fmt.Errorf("access to the device: %v", fault)
		}
	}()
	return work(ctx, p)
}
