package control

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	pcidevice "github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// StuckError is the error for a write that the kernel has not answered by its deadline. The write is still in the
// kernel and may yet take effect. Until the kernel answers it, every other write for the function fails with this
// error.
type StuckError struct {
	Address pci.Address
	// Path is the attribute below the root, "/sys/...", and Value the value of the write.
	Path, Value string
	// Operation describes an operation that is not a write to an attribute; then Path is empty.
	Operation string
	// Since is when the operation began.
	Since time.Time
}

func (e *StuckError) Error() string {
	what := e.Operation
	if e.Path != "" {
		what = fmt.Sprintf("write %q to %s", e.Value, e.Path)
	}
	text := fmt.Sprintf("%s: the kernel has not answered since %s; no other operation on %s starts until it does",
		what, e.Since.Format(time.TimeOnly), e.Address)
	dir, attribute := path.Split(e.Path)
	switch {
	case attribute == "unbind" && pcidevice.WaitsForUsers(path.Base(dir)):
		text += " (" + pcidevice.NeverLetsGo + ")"
	case attribute == "unbind", attribute == "sriov_numvfs":
		text += " (a process that has the function's VFIO device open must close it)"
	}
	return text
}

// Stuck returns the writes that are past their deadline and still in the
// kernel, by address and path. Their functions are fenced.
func (c *Control) Stuck() []StuckError {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make([]StuckError, 0, len(c.stuck))
	for s := range c.stuck {
		all = append(all, *s)
	}
	slices.SortFunc(all, func(a, b StuckError) int {
		if n := a.Address.Compare(b.Address); n != 0 {
			return n
		}
		return strings.Compare(a.Path, b.Path)
	})
	return all
}

// Write writes one attribute and waits for the kernel until ctx ends or the
// limit has passed.
func (c *Control) Write(ctx context.Context, to Attribute) error {
	if ctx.Err() != nil {
		return fmt.Errorf("write %q to /%s: not started: %w", to.value, to.path, context.Cause(ctx))
	}
	if stuck := c.pass(to.function); stuck != nil {
		return stuck
	}
	ctx, cancel := deadline(ctx, c.writeLimit(to))
	defer cancel()
	// A write(2) to sysfs can't be canceled, because the kernel waits uninterruptibly in the caller's context. The
	// channel has room for the answer, so that the goroutine ends even if nobody waits any more.
	begun, done := time.Now(), make(chan error, 1)
	go func() { done <- c.w.Write(to.path, []byte(to.value)) }()
	select {
	case err := <-done:
		return refused(to, err)
	case <-ctx.Done():
	}
	select {
	case err := <-done: // if both came at once, the kernel's answer counts, and not the deadline
		return refused(to, err)
	default:
	}
	stuck := &StuckError{Address: to.function, Path: "/" + to.path, Value: to.value, Since: begun}
	c.hold(stuck)
	go c.release(stuck, done)
	return stuck
}

// writeLimit returns how long to wait for a write; 0 means until its context ends.
func (c *Control) writeLimit(to Attribute) time.Duration {
	if c.limit != 0 && path.Base(to.path) == "sriov_numvfs" {
		return max(c.limit, NumVFsLimit)
	}
	return c.limit
}

// deadline returns ctx with the limit as its deadline, or ctx itself for a limit of 0.
func deadline(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	if limit == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, limit)
}

// pass returns the operation that blocks writes to a. If there is none, it drops results of a's resets that no caller
// has taken, because a write may undo the resets' effect.
func (c *Control) pass(a pci.Address) *StuckError {
	c.mu.Lock()
	defer c.mu.Unlock()
	stuck, _ := c.fenceLocked(a)
	if stuck == nil {
		c.forget([]pci.Address{a})
	}
	return stuck
}

// fence returns the operation that blocks writes to a, and a channel that is closed when the kernel answers it; nil if
// there is none.
func (c *Control) fence(a pci.Address) (first *StuckError, answered <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.fenceLocked(a)
}

// fenceLocked is fence for callers that hold mu.
func (c *Control) fenceLocked(a pci.Address) (first *StuckError, answered <-chan struct{}) {
	for s, ch := range c.stuck {
		if s.Address == a && (first == nil || s.Since.Before(first.Since)) {
			first, answered = s, ch
		}
	}
	return first, answered
}

func (c *Control) hold(stuck *StuckError) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stuck[stuck] = make(chan struct{})
}

// Settle waits until the kernel has answered all writes for a whose deadline has passed, resets included. It returns a
// [*StuckError] if ctx ends first. Call it before you read the state of a function whose change was interrupted: a
// write that is still in the kernel may yet change that state.
func (c *Control) Settle(ctx context.Context, a pci.Address) error {
	for {
		stuck, answered := c.fence(a)
		if stuck == nil {
			return nil
		}
		select {
		// Another write for the function may still be in the kernel, so the loop looks again.
		case <-answered:
		case <-ctx.Done():
			return stuck
		}
	}
}

// release waits for the kernel's late answer and then removes the fence. It ignores the answer, because the next user
// of the function checks the function's state first.
func (c *Control) release(stuck *StuckError, done <-chan error) {
	<-done //nolint:errcheck // the caller already returned
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.stuck[stuck])
	delete(c.stuck, stuck)
}

// refused wraps the kernel's error as a [*WriteError]. It drops a path in err, because the attribute's own path is more
// precise.
func refused(to Attribute, err error) error {
	if err == nil {
		return nil
	}
	if at, ok := errors.AsType[*fs.PathError](err); ok {
		err = at.Err
	}
	return &WriteError{Path: "/" + to.path, Value: to.value, Err: err}
}
