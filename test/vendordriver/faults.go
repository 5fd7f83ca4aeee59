package vendordriver

import (
	"context"
	"errors"
)

// Faults are what a driver, or a scheduler that works with it, does wrong.
type Faults struct {
	// Slow makes Publish, Prepare and Unprepare wait until [Driver.Release].
	Slow bool
	// Dead makes Publish, Prepare and Unprepare fail. Published slices and prepared claims stay.
	Dead bool
	// IgnoresTaints makes Allocate take devices whatever taints they have, as for a claim that tolerates all taints.
	IgnoresTaints bool
	// Late makes Allocate decide by what [Driver.Look] saw, as a scheduler with an old cache does. The API server still refuses
	// a claim that changed.
	Late bool
}

// ErrDead says that the driver does not run.
var ErrDead = errors.New(Name + " does not run")

// Set replaces the faults. A driver that is no longer slow goes on.
func (d *Driver) Set(f Faults) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.faults.Slow && !f.Slow {
		d.release()
	}
	d.faults = f
}

// Release lets all calls go on that wait because the driver is slow. Later calls wait again.
func (d *Driver) Release() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.release()
}

// release is Release with d.mu held.
func (d *Driver) release() {
	close(d.released)
	d.released = make(chan struct{})
}

// answers returns nil once the driver does what it is asked.
func (d *Driver) answers(ctx context.Context) error {
	d.mu.Lock()
	faults, released := d.faults, d.released
	d.mu.Unlock()
	if faults.Dead {
		return ErrDead
	}
	if !faults.Slow {
		return ctx.Err()
	}
	select {
	case <-released:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
