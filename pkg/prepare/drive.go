package prepare

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/kata-vfio/kata-vfio/pkg/bind"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/network/vf"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// attempts is how often a function is driven towards a binding when another
// driver takes it meanwhile: udev may do so once after each change.
const attempts = 3

// drive brings one function to the wanted binding by the steps that its
// present binding calls for, and begins again when another driver came
// between. The kubelet's own retry comes only after a minute.
func (p *Preparer) drive(ctx context.Context, claim plan.Ref, a pci.Address, want plan.Binding) error {
	before, err := p.Executor.Binding(ctx, a)
	if err != nil {
		return err
	}
	err = p.driveTo(ctx, claim, a, want)
	if before.Driver == want.Driver {
		return err
	}
	e := bindEvent(a, before.Driver, want.Driver)
	if err != nil { // where it is now is for the next look, which may hang in the kernel too
		e.Devices[0].DriverAfter = nil
		e.Result, e.Reason = ledger.Failed, fmt.Sprintf("bind to %s: %s", cmp.Or(want.Driver, "no driver"), oneLine(err))
	}
	return errors.Join(err, p.record(ctx, claim, e))
}

// driveTo is drive without a word to the ledger.
func (p *Preparer) driveTo(ctx context.Context, claim plan.Ref, a pci.Address, want plan.Binding) error {
	var err error
	for range attempts {
		var now plan.Binding
		if now, err = p.Executor.Binding(ctx, a); err != nil {
			return err
		}
		steps := plan.Transition(a, now, want)
		if len(steps) == 0 {
			return nil
		}
		if err = p.steps(ctx, claim, steps); err == nil {
			return nil
		}
		if !transient(err) {
			return err
		}
	}
	return err
}

func (p *Preparer) steps(ctx context.Context, claim plan.Ref, steps []plan.Step) error {
	for _, s := range steps {
		if err := p.step(ctx, claim, s); err != nil {
			return err
		}
	}
	return nil
}

// transient reports whether driving the function again may help.
func transient(err error) bool {
	var taken *bind.TakenError
	return errors.As(err, &taken)
}

// restore brings all functions of a record to their original bindings, groups
// side by side, and goes on with the others when one fails. A function that is
// gone needs nothing.
func (p *Preparer) restore(ctx context.Context, rec *journal.Record) error {
	var g errgroup.Group
	groups := byGroup(rec.Plan.Functions)
	errs := make([]error, len(groups))
	for i, fns := range groups {
		g.Go(func() error {
			for _, fn := range slices.Backward(fns) {
				errs[i] = errors.Join(errs[i], p.restoreOne(ctx, rec.Plan.Claim, fn))
			}
			return nil
		})
	}
	_ = g.Wait() // the goroutines return nil; errs has theirs
	return errors.Join(errs...)
}

// restoreOne drives one function home, a VF with the settings that it had: its
// driver takes its address when it is bound. Where the driver is not registered
// any more, its module is loaded and the probe tried once more.
func (p *Preparer) restoreOne(ctx context.Context, claim plan.Ref, fn plan.Function) error {
	if fn.RestoresVF() {
		if err := p.configureVF(ctx, claim, &fn, &fn.VF.Original); err != nil && !p.isGone(fn.Address) {
			return withoutLink(err)
		}
	}
	err := p.drive(ctx, claim, fn.Address, fn.Original)
	if errors.Is(err, bind.ErrNoMatch) {
		err = p.reload(ctx, claim, fn, err)
	}
	if err != nil && p.isGone(fn.Address) {
		return nil
	}
	return err
}

// withoutLink adds the way out to the error of a setting that waits for the
// PF's link: the claim can't come off the node before.
func withoutLink(err error) error {
	if setting, ok := errors.AsType[*vf.SettingError](err); ok && setting.NeedsLink() {
		return fmt.Errorf("%w; %s, the next try then goes on from here", err, bringLinkUp)
	}
	return err
}

// reload loads the module of a function's original driver and drives it home.
// The function's modalias finds a module whatever it is called (bochs-drm is in
// bochs), but not one on modprobe's blacklist, which the driver's name may.
func (p *Preparer) reload(ctx context.Context, claim plan.Ref, fn plan.Function, err error) error {
	modalias, readErr := p.FS.ReadString(sysfs.FunctionPath(fn.Address) + "/modalias")
	if readErr != nil {
		return errors.Join(err, readErr)
	}
	for _, module := range []string{modalias, fn.Original.Driver} {
		loadErr := p.step(ctx, claim, plan.Step{Operation: plan.Load, Value: module})
		if err = p.drive(ctx, claim, fn.Address, fn.Original); !errors.Is(err, bind.ErrNoMatch) {
			return err
		}
		err = errors.Join(err, loadErr)
	}
	return err
}

// isGone reports whether a function has left the bus. A write to one that
// leaves just then is refused in many words, so the error does not tell.
func (p *Preparer) isGone(a pci.Address) bool {
	left, err := p.present([]pci.Address{a})
	return err == nil && len(left) == 0
}
