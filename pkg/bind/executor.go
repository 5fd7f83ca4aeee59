// Package bind executes the steps of a plan. It verifies each step in sysfs, because several attributes accept a write
// and do nothing. On a node, no other package writes by [control.Control]; package sanitizer does so in its guest.
package bind

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/control"
)

// Modules loads kernel modules. Loading a loaded module is not an error.
type Modules interface {
	Load(ctx context.Context, module string) error
}

// Executor executes steps on one node. It may be used concurrently for different functions. The caller holds the lock
// of a function's group.
type Executor struct {
	fs      *sysfs.FS
	kernel  *control.Control
	modules Modules
	exclude Exclude

	mu   sync.Mutex                 // guards kept
	kept map[pci.Address]*exclusion // of interrupted resets, by the first function of the reset
}

// New returns an executor that reads through fsys and writes through kernel. It loads kernel modules through modules,
// and keeps other processes from functions by exclude.
func New(fsys *sysfs.FS, kernel *control.Control, modules Modules, exclude Exclude) *Executor {
	return &Executor{fs: fsys, kernel: kernel, modules: modules, exclude: exclude, kept: map[pci.Address]*exclusion{}}
}

// StepError says which step was not done, and why.
type StepError struct {
	Step plan.Step
	Err  error
}

func (e *StepError) Error() string { return e.Step.String() + ": " + e.Err.Error() }
func (e *StepError) Unwrap() error { return e.Err }

// ErrNoMatch says that a probe found no driver for the function.
var ErrNoMatch = errors.New("no driver took it: is the module loaded and does it support this device?")

// TakenError says that the function is on another driver than the step expects: udev or a late module load bound it to
// that driver.
type TakenError struct{ Driver string }

func (e *TakenError) Error() string {
	return "driver " + e.Driver + " has it now: keep it away (blacklist it, or stop what loads it) and try again"
}

// Settle waits until the kernel has answered all late writes for a function; see [control.Control.Settle].
func (e *Executor) Settle(ctx context.Context, a pci.Address) error { return e.kernel.Settle(ctx, a) }

// WhenSettled calls then as soon as the kernel has answered all writes for a function. That is before WhenSettled
// returns, or later if the deadline of a write has passed.
func (e *Executor) WhenSettled(ctx context.Context, a pci.Address, then func()) {
	waiting := context.WithoutCancel(ctx) // the wait outlives the call that wrote
	ended, end := context.WithCancel(waiting)
	end()
	if e.kernel.Settle(ended, a) == nil {
		then()
		return
	}
	go func() {
		defer then()
		_ = e.kernel.Settle(waiting, a) // without a deadline, Settle returns only with the kernel's answer
	}()
}

// Do executes one step. If the step loads a module, it concerns no function. Otherwise it is executed as by
// [Function.Do]. The errors are [StepError]s.
func (e *Executor) Do(ctx context.Context, s plan.Step) error {
	if s.Operation != plan.Load {
		f, err := e.Open(s.Address)
		if err != nil {
			return &StepError{Step: s, Err: err}
		}
		defer f.Close()
		return f.Do(ctx, s)
	}
	if err := e.load(ctx, s.Value); err != nil {
		return &StepError{Step: s, Err: err}
	}
	return nil
}

// Binding returns the [Function.Binding] of the function that is at an address now.
func (e *Executor) Binding(ctx context.Context, a pci.Address) (plan.Binding, error) {
	f, err := e.Open(a)
	if err != nil {
		return plan.Binding{}, err
	}
	defer f.Close()
	return f.Binding(ctx)
}

// load loads a module and checks that its driver is registered. The drivers of a modalias are not known in advance; the
// probe that follows shows whether one matches.
func (e *Executor) load(ctx context.Context, module string) error {
	if err := e.modules.Load(ctx, module); err != nil || strings.HasPrefix(module, "pci:") {
		return err
	}
	drivers, err := e.fs.ReadDir("sys/bus/pci/drivers")
	if err != nil {
		return err
	}
	if !registered(drivers, module) {
		return fmt.Errorf("the module is loaded, but registered no PCI driver of its name")
	}
	return nil
}

// SetVFs sets the PF's number of VFs, and keeps host drivers from binding the VFs. To change the number, it removes all
// VFs first. It may be repeated. The caller has checked that no VF of the PF is in use if the number changes. If the
// number does not change, VFs stay bound, and only further drivers are kept off. After an error, the PF has its former
// number, no VFs, or the new number; a read shows which.
func (e *Executor) SetVFs(ctx context.Context, pf pci.Address, count int) error {
	have, err := e.numVFs(pf)
	if err != nil || have == 0 && count == 0 {
		return err
	}
	// Drivers are kept off before the VFs exist, because the kernel probes host drivers for each VF as it creates the
	// VF, inside the write to sriov_numvfs.
	if err := e.keepDriversOff(ctx, pf); err != nil {
		return fmt.Errorf("keep host drivers from the VFs of PF %s: %w", pf, err)
	}
	if have == count {
		return nil
	}
	// sriov_numvfs_store (drivers/pci/iov.c) answers EBUSY to a change from one number of VFs to another: zero lies between.
	if have != 0 {
		if err := e.kernel.Write(ctx, control.NumVFs(pf, 0)); err != nil {
			return fmt.Errorf("disable the %d VFs of PF %s: %w", have, pf, err)
		}
	}
	if count != 0 {
		if err := e.kernel.Write(ctx, control.NumVFs(pf, count)); err != nil {
			return fmt.Errorf("enable %d VFs of PF %s: %w%s", count, pf, err, hint(err))
		}
	}
	// The write succeeds if the driver's sriov_configure did not fail, but that may create fewer VFs than requested.
	got, err := e.numVFs(pf)
	if err == nil && got != count {
		err = fmt.Errorf("enable %d VFs of PF %s: the kernel took it and says %d; set the PF's interface up and try again: some drivers (bnxt_en) make no VFs while it is down",
			count, pf, got)
	}
	return err
}

// keepDriversOff switches sriov_drivers_autoprobe off. The kernel only stores the flag and reads it in a VF's next
// probe (drivers/pci/iov.c, pci-driver.c).
func (e *Executor) keepDriversOff(ctx context.Context, pf pci.Address) error {
	if err := e.kernel.Write(ctx, control.Autoprobe(pf, false)); err != nil {
		return err
	}
	on, err := e.autoprobe(sysfs.FunctionPath(pf))
	if err == nil && on {
		err = errors.New("the kernel took it, and sriov_drivers_autoprobe is on")
	}
	return err
}

// autoprobe reports whether host drivers can bind the VFs of the PF at a path. If the kernel lacks the attribute, they
// can.
func (e *Executor) autoprobe(dir string) (bool, error) {
	text, err := e.fs.ReadString(dir + "/sriov_drivers_autoprobe")
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	return text != "0", err
}

// hint explains the kernel's refusals of a number of VFs (sriov_numvfs_store and sriov_enable in drivers/pci/iov.c).
func hint(err error) string {
	switch {
	case errors.Is(err, syscall.ENOENT):
		return " (the PF's driver makes no VFs; load another, or enable SR-IOV in it)"
	case errors.Is(err, syscall.ERANGE):
		return " (more than sriov_totalvfs)"
	case errors.Is(err, syscall.ENOSPC):
		return " (the PF has no interrupts left for so many VFs: ask for fewer, or unload what else uses them, such as irdma beside ice)"
	case errors.Is(err, syscall.ENOMEM):
		return " (no room for the VFs' BARs or bus numbers: enable SR-IOV in the firmware, or boot with pci=realloc)"
	}
	return ""
}

func (e *Executor) numVFs(pf pci.Address) (int, error) {
	text, err := e.fs.ReadString(sysfs.FunctionPath(pf) + "/sriov_numvfs")
	if err != nil {
		return 0, fmt.Errorf("count the VFs of PF %s: %w", pf, err)
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0, fmt.Errorf("count the VFs of PF %s: %w", pf, err)
	}
	return n, nil
}
