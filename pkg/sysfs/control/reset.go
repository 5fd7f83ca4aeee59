package control

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// resetFactor is how many times longer Control waits for a reset than for another write, if the context allows it. The
// kernel itself waits a minute until a function answers after a reset (PCIE_RESET_READY_POLL_MS in drivers/pci/pci.c),
// for each function below a bridge.
const resetFactor = 6

// ResetRun describes one run of a reset.
type ResetRun struct {
	// Took is the duration of the reset in the kernel.
	Took time.Duration
	// Joined is set if an earlier call began the reset and was interrupted, and this call took its result.
	Joined bool
}

// Reset resets a by the method, one of the kernel's words in reset_method ("flr", "bus", ...). The kernel tries the
// methods in its list in order, and skips a method that turns out not to apply. So Reset reduces the list to the one
// method during the reset: if the reset succeeds, this method was used. Afterwards Reset restores the former list, even
// if the reset failed or ctx ended. A crash in between leaves the list reduced until somebody writes it ("default"
// restores the kernel's own list) or the node reboots.
//
// Kernels before 5.15 have no reset_method. There, Reset only requests a reset, and the caller must make sure that the
// method is the only possible one.
//
// If the reset is still in the kernel when ctx ends, or after six times the limit, the error is a [*StuckError]. It
// says nothing about the device. The next Reset by the same method for the same tenancy starts no reset, but returns
// the result of that one. The tenancy is the one whose traces the reset clears. If it is empty, no result is kept.
func (c *Control) Reset(ctx context.Context, a pci.Address, method, tenancy string) (ResetRun, error) {
	what := StuckError{Path: "/" + device(a, "reset"), Value: "1"}
	return c.once(ctx, &reset{
		id:   resetID{method: method, tenancy: tenancy, first: a},
		set:  []pci.Address{a},
		what: what,
		work: func() error { return c.resetBy(a, method) },
	})
}

// ResetTogether runs work, which resets all functions of set by other means than sysfs. The rules of [Control.Reset]
// apply: work has its own goroutine, the set is fenced if work is still running when ctx ends, and the next call for
// the tenancy returns its result.
func (c *Control) ResetTogether(ctx context.Context, set []pci.Address, method, tenancy string, work func() error) (ResetRun, error) {
	if len(set) == 0 {
		return ResetRun{}, errors.New("there is no function to reset")
	}
	return c.once(ctx, &reset{
		id:   resetID{method: method, tenancy: tenancy, first: set[0]},
		set:  slices.Clone(set),
		what: StuckError{Operation: "reset " + listed(set) + " by " + method},
		work: work,
	})
}

func listed(set []pci.Address) string {
	words := make([]string, len(set))
	for i, a := range set {
		words[i] = a.String()
	}
	return strings.Join(words, ", ")
}

// resetID identifies a reset: calls with equal IDs request the same reset.
type resetID struct {
	method, tenancy string
	first           pci.Address
}

// A reset is a reset that has begun. took and err are its result, and may be read after done is closed.
type reset struct {
	id    resetID
	set   []pci.Address
	what  StuckError // without address and time
	work  func() error
	begun time.Time
	done  chan struct{}

	took time.Duration
	err  error
}

// once runs the reset. If an earlier call for the same reset was interrupted, it returns the result of that call's
// reset instead.
func (c *Control) once(ctx context.Context, r *reset) (ResetRun, error) {
	if ctx.Err() != nil {
		return ResetRun{}, fmt.Errorf("reset %s by %s: not started: %w", listed(r.set), r.id.method, context.Cause(ctx))
	}
	ctx, cancel := deadline(ctx, resetFactor*c.limit)
	defer cancel()
	if had := c.cutOff(r.id); had != nil {
		return c.result(ctx, had, true)
	}
	if err := c.begin(r); err != nil {
		return ResetRun{}, err
	}
	return c.result(ctx, r, false)
}

// cutOff returns the same reset by an earlier call; nil if there is none.
func (c *Control) cutOff(id resetID) *reset {
	if id.tenancy == "" {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.resets[id]
}

// begin starts a reset unless a function of its set is fenced.
func (c *Control) begin(r *reset) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, a := range r.set {
		if stuck, _ := c.fenceLocked(a); stuck != nil {
			return stuck
		}
	}
	// A result that nobody has taken describes the functions before this reset.
	c.forget(r.set)
	r.begun, r.done = time.Now(), make(chan struct{})
	go func() {
		r.err = r.work()
		r.took = time.Since(r.begun)
		c.lift(r)
	}()
	return nil
}

// forget drops the results of these functions' resets that no caller has taken, because the next operation may leave
// new traces. Callers hold mu, and none of the functions is fenced.
func (c *Control) forget(set []pci.Address) {
	for id, old := range c.resets {
		if slices.ContainsFunc(old.set, func(a pci.Address) bool { return slices.Contains(set, a) }) {
			delete(c.resets, id)
		}
	}
}

// result waits for a reset. A reset that is not done in time is fenced and kept for the next call.
func (c *Control) result(ctx context.Context, r *reset, joined bool) (ResetRun, error) {
	select {
	case <-r.done:
	case <-ctx.Done():
		if stuck := c.abandon(r); stuck != nil {
			return ResetRun{Joined: joined}, stuck
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	// A result is used only once: if the same reset is requested later, a new one runs.
	if c.resets[r.id] == r {
		delete(c.resets, r.id)
	}
	return ResetRun{Took: r.took, Joined: joined}, r.err
}

// abandon fences the set of a reset that is still in the kernel, and returns the error of the fence. It returns nil if
// the reset has ended.
func (c *Control) abandon(r *reset) *StuckError {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-r.done:
		return nil
	// The deadline and the end of the reset may have come at once. Under mu, lift can't close done meanwhile, so the
	// reset is fenced either completely or not at all.
	default:
	}
	if c.resets[r.id] != r {
		c.resets[r.id] = r
		for _, a := range r.set {
			c.stuck[r.stuck(a)] = r.done
		}
	}
	return r.stuck(r.set[0])
}

// stuck returns the fence's error for one function of the set.
func (r *reset) stuck(a pci.Address) *StuckError {
	stuck := r.what
	stuck.Address, stuck.Since = a, r.begun
	return &stuck
}

// lift ends a reset and removes the fence of its set. Without a tenancy, it drops the result.
func (c *Control) lift(r *reset) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for stuck, done := range c.stuck {
		if done == r.done {
			delete(c.stuck, stuck)
		}
	}
	if r.id.tenancy == "" && c.resets[r.id] == r {
		delete(c.resets, r.id)
	}
	// The fence is removed before done is closed, because callers that wait for done may write at once.
	close(r.done)
}

// AwaitResets waits until the kernel has finished all resets of the functions whose callers were interrupted. It
// returns a [*StuckError] if ctx, or the time limit of a reset, ends first.
func (c *Control) AwaitResets(ctx context.Context, set []pci.Address) error {
	ctx, cancel := deadline(ctx, resetFactor*c.limit)
	defer cancel()
	for {
		r := c.inFlight(set)
		if r == nil {
			return nil
		}
		select {
		case <-r.done:
		case <-ctx.Done():
			return r.stuck(r.set[0])
		}
	}
}

// inFlight returns a reset of one of the functions that is in the kernel although its caller was interrupted; nil if
// there is none.
func (c *Control) inFlight(set []pci.Address) *reset {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.resets {
		select {
		case <-r.done:
			continue
		default:
		}
		if slices.ContainsFunc(r.set, func(a pci.Address) bool { return slices.Contains(set, a) }) {
			return r
		}
	}
	return nil
}

// resetBy resets a by the one method, however long the kernel takes.
func (c *Control) resetBy(a pci.Address, method string) error {
	list, reset := device(a, "reset_method"), Attribute{a, device(a, "reset"), "1"}
	former, err := c.r.ReadString(list)
	switch {
	// Before Linux 5.15 there is no reset_method, and the kernel chooses.
	case errors.Is(err, fs.ErrNotExist), err == nil && former == method:
		return c.put(reset)
	case err != nil:
		return fmt.Errorf("read reset_method of %s: %w", a, err)
	}
	if err := c.put(Attribute{a, list, method}); err != nil {
		return err
	}
	return errors.Join(c.put(reset), c.put(Attribute{a, list, restorable(former)}))
}

// put writes one attribute and waits for the kernel's answer.
func (c *Control) put(to Attribute) error {
	return refused(to, c.w.Write(to.path, []byte(to.value)))
}

// NotBegun reports whether the kernel did not begin a reset, by its error: EBUSY from a group that a process has open,
// EAGAIN from a lock of the bus.
func NotBegun(err error) bool { return errors.Is(err, unix.EBUSY) || errors.Is(err, unix.EAGAIN) }

// restorable returns the text that sets reset_method to the list. An empty list means that an administrator disabled
// resets. It is set by a newline, because the kernel ignores an empty write.
func restorable(list string) string {
	if strings.TrimSpace(list) == "" {
		return "\n"
	}
	return list
}
