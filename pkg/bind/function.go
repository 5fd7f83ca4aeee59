package bind

import (
	"context"
	"errors"
	"fmt"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/control"
)

// Function executes steps on one function of a node. It keeps the function's sysfs directory open from the start. If
// the kernel removes the function, the steps fail ([sysfs.ErrNoFunction]), even if another function gets its address. A
// Function is for one goroutine, and must be closed.
type Function struct {
	executor *Executor
	address  pci.Address
	dir      *sysfs.Dir
}

// Open opens the function at an address. Its error matches [sysfs.ErrNoFunction] if there is none.
func (e *Executor) Open(a pci.Address) (*Function, error) {
	dir, err := e.fs.OpenFunction(a)
	if err != nil {
		return nil, err
	}
	return &Function{executor: e, address: a, dir: dir}, nil
}

// Close ends the work on the function.
func (f *Function) Close() { f.dir.Close() }

// Inode returns the inode of the function's directory; see [sysfs.Dir.Inode].
func (f *Function) Inode() (uint64, error) { return f.dir.Inode() }

// Binding returns how the kernel binds the function now. It first waits until no earlier write can change the binding
// any more. Its error matches [sysfs.ErrNoFunction] if the function is gone, and [sysfs.ErrLocked] if an unbind by
// another process hangs. The error is a [control.StuckError] if a write by this process hangs.
func (f *Function) Binding(ctx context.Context) (plan.Binding, error) {
	if err := f.executor.kernel.Settle(ctx, f.address); err != nil {
		return plan.Binding{}, err
	}
	driver, override, err := f.dir.Binding(f.address)
	if err != nil {
		return plan.Binding{}, err
	}
	return plan.Binding{Driver: driver, Override: override}, nil
}

// Do executes one step of binding and verifies it in sysfs. It skips a step that is already done, so that it may be
// repeated after any crash. If Do returns nil, the function still existed when the step was done. Its errors are
// [StepError]s.
func (f *Function) Do(ctx context.Context, s plan.Step) error {
	w, err := f.due(s)
	if err == nil && w.byName {
		err = f.override(ctx, s.DriverAfter)
	}
	if err == nil && !w.done {
		err = f.executor.kernel.Write(ctx, w.to)
	}
	// The name is removed even after an error: if it stayed, any later probe would bind the function to that driver.
	if w.byName {
		err = errors.Join(err, f.override(ctx, ""))
	}
	if err == nil && !w.done {
		err = f.verify(s)
	}
	if err != nil {
		return &StepError{Step: s, Err: err}
	}
	return nil
}

// write is the write that a step requires.
type write struct {
	to control.Attribute
	// done is whether the step is done already.
	done bool
	// byName says that driver_override must name the driver during the write. After a crash in the middle, the name
	// stays until the next transition to any binding removes it.
	byName bool
}

// due returns the write that a step requires.
func (f *Function) due(s plan.Step) (write, error) {
	switch s.Operation {
	case plan.Unbind:
		return f.dueUnbind(s)
	case plan.Override: // a repeated write changes nothing
		return write{to: control.DriverOverride(f.address, s.Value)}, nil
	case plan.Probe:
		return f.dueProbe(s)
	default:
		return write{}, fmt.Errorf("%q is not an operation of binding", s.Operation)
	}
}

// verify checks in sysfs that a step's write had its effect: several attributes accept a write and do nothing.
func (f *Function) verify(s plan.Step) error {
	switch s.Operation {
	case plan.Unbind:
		return f.expectDriver("")
	case plan.Override:
		return f.expectOverride(s.Value)
	default:
		// drivers_probe takes a write also if no driver matches, and does nothing to a bound function
		// (bus_rescan_devices_helper in drivers/base/bus.c).
		return f.expectDriver(s.DriverAfter)
	}
}

// dueUnbind returns the write that unbinds the function from the driver that the step names.
func (f *Function) dueUnbind(s plan.Step) (write, error) {
	driver, err := f.dir.Driver(f.address)
	if err != nil || driver == "" {
		return write{done: true}, err
	}
	// A write to the unbind file of another driver would fail with ENODEV. Another driver is left alone, because
	// whoever bound it may need the function.
	if driver != s.DriverBefore {
		return write{}, &TakenError{Driver: driver}
	}
	return write{to: control.Unbind(f.address, driver)}, nil
}

// dueProbe returns the write that makes the kernel look for a driver.
func (f *Function) dueProbe(s plan.Step) (write, error) {
	driver, err := f.dir.Driver(f.address)
	if err != nil || driver == s.DriverAfter {
		return write{done: true}, err
	}
	byName, err := f.needsName()
	if err != nil {
		return write{}, err
	}
	return write{to: control.Probe(f.address), byName: byName}, nil
}

// needsName reports whether a driver can bind the function only by name. That is so for a VF without driver_override
// whose PF has sriov_drivers_autoprobe off (pci_device_can_probe in drivers/pci/pci-driver.c).
func (f *Function) needsName() (bool, error) {
	_, isVF, err := f.dir.Entry("physfn")
	if err != nil || !isVF {
		return false, err
	}
	on, err := f.executor.autoprobe(sysfs.FunctionPath(f.address) + "/physfn")
	if err != nil || on {
		return false, err
	}
	override, err := f.dir.Override(f.address)
	// The kernel probes a VF with driver_override even if sriov_drivers_autoprobe is off.
	return override == "", err
}

// override sets driver_override and reads it back.
func (f *Function) override(ctx context.Context, driver string) error {
	if err := f.executor.kernel.Write(ctx, control.DriverOverride(f.address, driver)); err != nil {
		return err
	}
	return f.expectOverride(driver)
}

// expectOverride checks what driver_override reads.
func (f *Function) expectOverride(want string) error {
	got, err := f.dir.Override(f.address)
	if err != nil {
		return err
	}
	if got != want {
		return fmt.Errorf("driver_override reads %q after %q was written", got, want)
	}
	return nil
}

// expectDriver checks that the function has the driver.
func (f *Function) expectDriver(want string) error {
	got, err := f.dir.Driver(f.address)
	switch {
	case err != nil:
		return err
	case got == want:
		return nil
	case got == "":
		return ErrNoMatch
	default:
		return &TakenError{Driver: got}
	}
}
