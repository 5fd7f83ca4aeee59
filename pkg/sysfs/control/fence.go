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

// StuckError says that the kernel has not answered a write by its deadline.
// The write is still in the kernel and may yet take effect; until it returns,
// every write for the function is refused with this same error.
type StuckError struct {
	Address pci.Address
	// Path is the attribute below the root, "/sys/...", and Value the value of the write.
	Path, Value string
	// Operation describes an operation other than a write; Path is empty then.
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
	begun, done := time.Now(), make(chan error, 1)
	go func() { done <- c.w.Write(to.path, []byte(to.value)) }()
	select {
	case err := <-done:
		return refused(to, err)
	case <-ctx.Done():
	}
	select {
	case err := <-done: // both came at once: the kernel's answer is the truth
		return refused(to, err)
	default:
	}
	stuck := &StuckError{Address: to.function, Path: "/" + to.path, Value: to.value, Since: begun}
	c.hold(stuck)
	go c.release(stuck, done)
	return stuck
}

// writeLimit returns how long a write is waited for; 0 for as long as its context lasts.
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

// pass returns the operation that blocks writes to a. Without one it drops the results of a's resets that no
// caller took: a write may undo what they did.
func (c *Control) pass(a pci.Address) *StuckError {
	c.mu.Lock()
	defer c.mu.Unlock()
	stuck, _ := c.fenceLocked(a)
	if stuck == nil {
		c.forget([]pci.Address{a})
	}
	return stuck
}

// fence returns the write that keeps a from being written to, nil if none does,
// and what is closed when the kernel answers it.
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

// Settle waits until the kernel has answered all writes for a, those included
// whose deadline has passed. It returns a [*StuckError] when ctx ends first.
// Who takes a cut-off change back calls it before he looks at the function:
// a write that is still in the kernel may yet change what he sees.
func (c *Control) Settle(ctx context.Context, a pci.Address) error {
	for {
		stuck, answered := c.fence(a)
		if stuck == nil {
			return nil
		}
		select {
		case <-answered:
		case <-ctx.Done():
			return stuck
		}
	}
}

// release waits for the kernel's late answer and then lifts the fence. It drops the answer: whoever uses the function
// next checks its state first.
func (c *Control) release(stuck *StuckError, done <-chan error) {
	<-done //nolint:errcheck // the caller already returned
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.stuck[stuck])
	delete(c.stuck, stuck)
}

// refused wraps the kernel's error as a [*WriteError]. A path in err is
// dropped: the attribute's own says more.
func refused(to Attribute, err error) error {
	if err == nil {
		return nil
	}
	if at, ok := errors.AsType[*fs.PathError](err); ok {
		err = at.Err
	}
	return &WriteError{Path: "/" + to.path, Value: to.value, Err: err}
}
