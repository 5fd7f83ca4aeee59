package effects

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/bind"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// ForeignValueError says that an activation has a value that is neither the claim's nor the one that Prepare found.
// Another program has set it, so it is not changed.
type ForeignValueError struct{ Name, Now, Want, Found string }

func (e *ForeignValueError) Error() string {
	return fmt.Sprintf("%s reads %q, and the claim knows %q and %q only: another program has set it, so it is not changed; set it to %q, and the next try continues",
		e.Name, e.Now, e.Want, e.Found, e.Found)
}

// foreign returns a [ForeignValueError] for an activation that another program has set.
func foreign(s *plan.Setting, now string) error {
	if !s.Activation || now == s.Found || s.IsWanted(now) {
		return nil
	}
	return &ForeignValueError{Name: s.Name, Now: now, Want: s.Want, Found: s.Found}
}

// ResolveSettings completes a plan's settings before the first effect: it reads the values that are restored later. If
// a setting must not replace the value that it found, the setting is left out. If such a setting is an activation, the
// claim is refused.
func (set *Set) ResolveSettings(ctx context.Context, rec *journal.Record) error {
	rec.Plan.Functions = slices.Clone(rec.Plan.Functions)
	for i := range rec.Plan.Functions {
		fn := &rec.Plan.Functions[i]
		if rec.Kind == journal.Bound {
			fn.Settings, fn.ServedBy = nil, nil // no tenant, no settings
		}
		var found []plan.Setting // nil without settings, as in a record that is read back
		for _, s := range fn.Settings {
			keep, err := set.resolveSetting(ctx, rec, fn, &s)
			if err != nil {
				return err
			}
			if keep {
				found = append(found, s)
			}
		}
		fn.Settings = found
	}
	rec.Plan.Steps = rec.Plan.StepsFor(plan.AtOriginal, plan.Preparation()...)
	return nil
}

// resolveSetting reads the value that is in force for a setting, and reports whether the setting is to be made.
func (set *Set) resolveSetting(ctx context.Context, rec *journal.Record, fn *plan.Function, s *plan.Setting) (keep bool, err error) {
	refuse := func(code rule.Code, text, fix string) error {
		return plan.RefuseClaim(rec.Plan.Claim, rule.Verdict{
			Code: code, Address: fn.Address, Culprit: fn.PF, Device: plannedDevice(&rec.Plan, fn).Published(), Text: text, Fix: fix,
		})
	}
	provider, err := set.provider(s)
	if err != nil {
		return false, err
	}
	// Resolve reads only: it runs before the record is on disk, so nothing would undo a write.
	err = provider.Resolve(ctx, fn, s)
	if no, ok := errors.AsType[*bind.UnsettableError](err); ok {
		return false, refuse(cmp.Or(no.Reason, rule.UnsupportedSetting), no.Text, no.Fix)
	}
	if err != nil {
		return false, fmt.Errorf("claim %s: %w", rec.Plan.Claim, err)
	}
	replaceable := s.Replaces == nil || *s.Replaces == s.Found
	if s.Activation && !replaceable {
		return false, refuse(rule.UnsupportedSetting,
			fmt.Sprintf("%s of %s is %s already, and no claim has it", s.Name, fn.Address, s.Found),
			fmt.Sprintf("end what uses it, then set it to %s", *s.Replaces),
		)
	}
	return replaceable, nil
}

func (set *Set) provider(s *plan.Setting) (bind.Provider, error) {
	p, ok := set.Providers[s.Provider]
	if !ok {
		return nil, fmt.Errorf("this version has no provider %q, which the claim's %s needs: start the version that prepared the claim", s.Provider, s.Name)
	}
	return p, nil
}

// ApplySettings makes the settings of functions. It may be repeated while the functions are in use.
func (set *Set) ApplySettings(ctx context.Context, rec *journal.Record) error {
	return set.makeSettings(ctx, rec, false)
}

// Activate makes the activations. It may be repeated: an activation that is in force stays as it is.
func (set *Set) Activate(ctx context.Context, rec *journal.Record) error {
	return set.makeSettings(ctx, rec, true)
}

// LostActivation looks for an activation of a prepared claim that is not in force any more. loss says which one it is;
// it is nil if all are in force.
//
// While the program that makes an activation is away, the activation counts as in force if a sandbox has the claim and
// the activation was in force when it was read last. Then there is nothing to do, and the program changes nothing
// before it is back. If no sandbox has the claim, LostActivation returns an error while the program is away: the VM of
// the next sandbox would start without what the activation is for.
func (set *Set) LostActivation(ctx context.Context, rec *journal.Record) (loss, err error) {
	for i := range rec.Plan.Functions {
		fn := &rec.Plan.Functions[i]
		for _, s := range fn.SelectSettings(true) {
			if loss, err := set.lost(ctx, rec, fn, s); loss != nil || err != nil {
				return loss, err
			}
		}
	}
	return nil, nil
}

// lost returns an error as loss if one activation is not in force.
func (set *Set) lost(ctx context.Context, rec *journal.Record, fn *plan.Function, s *plan.Setting) (loss, err error) {
	err = set.withProvider(ctx, rec, fn, s, func(p bind.Provider) error {
		now, err := p.Read(ctx, fn, s.Name)
		if away, ok := errors.AsType[*bind.AwayError](err); ok && rec.Sandbox != nil && s.IsWanted(away.Last) {
			return nil
		}
		if err != nil || s.IsWanted(now) {
			return err
		}
		if err := foreign(s, now); err != nil {
			return err
		}
		loss = fmt.Errorf("claim %s: %s of %s reads %q, and was %q when it was prepared", rec.Plan.Claim, s.Name, fn.Address, now, s.Want)
		if named, ok := p.(bind.LossNamer); ok {
			loss = named.Lost(plannedDevice(&rec.Plan, fn).Published(), loss)
		}
		return nil
	})
	return loss, err
}

// makeSettings makes the settings that are activations, or the others.
func (set *Set) makeSettings(ctx context.Context, rec *journal.Record, activations bool) error {
	e := ledger.Event{Type: ledger.Policy}
	changed := rec.State == journal.Preparing
	for i := range rec.Plan.Functions {
		fn := &rec.Plan.Functions[i]
		d := ledger.Device{Address: fn.Address, PF: fn.PF}
		for _, s := range fn.SelectSettings(activations) {
			is, err := set.put(ctx, rec, fn, s, s.Found, s.Want)
			if err != nil {
				return err
			}
			changed = changed || is.changed
			if rec.State == journal.Preparing { // later, the record's own copy has it
				s.Applied = is.value
			}
			d.Provided = append(d.Provided, ledger.Provided{By: s.Provider, Name: s.Name, Value: is.value})
		}
		if len(d.Provided) > 0 {
			e.Devices = append(e.Devices, d)
		}
	}
	// A repetition that changes nothing has no event.
	if len(e.Devices) == 0 || !changed {
		return nil
	}
	return set.RecordSoon(ctx, rec.Plan.Claim, e)
}

// Deactivate takes the activations back, the last one first. If one fails, it continues with the others. It skips functions that are
// gone. It may be repeated.
func (set *Set) Deactivate(ctx context.Context, rec *journal.Record) error {
	var errs []error
	for i := range slices.Backward(rec.Plan.Functions) {
		errs = append(errs, set.unsetAll(ctx, rec, &rec.Plan.Functions[i], true))
	}
	return errors.Join(errs...)
}

// Stop has those providers that can do it end what the functions still execute for a tenant. A reset follows in any
// case and makes the functions clean, so errors of Stop go only to the observer.
func (set *Set) Stop(ctx context.Context, rec *journal.Record) {
	for i := range rec.Plan.Functions {
		fn := &rec.Plan.Functions[i]
		for _, name := range fn.Providers() {
			stopper, ok := set.Providers[name].(bind.Stopper)
			if !ok || set.CheckFunction(fn) != nil {
				continue
			}
			begun := time.Now()
			err := stopper.Stop(ctx, fn)
			set.Observe(Event{Claim: rec.Plan.Claim, Phase: PhaseSetting, Took: time.Since(begun), Err: err})
		}
	}
}

// unsetAll takes back the settings of fn that are activations, or the others, unless the function is gone.
func (set *Set) unsetAll(ctx context.Context, rec *journal.Record, fn *plan.Function, activations bool) error {
	var errs []error
	for _, s := range slices.Backward(fn.SelectSettings(activations)) {
		if _, err := set.put(ctx, rec, fn, s, s.Want, s.Found); err != nil && !set.isGone(fn) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// inForce is the value of a setting that is in force, and whether the setting was changed to it.
type inForce struct {
	value   string
	changed bool
}

// put brings one setting from a value to another, and reports that to the observer as a step.
func (set *Set) put(ctx context.Context, rec *journal.Record, fn *plan.Function, s *plan.Setting, from, to string) (is inForce, err error) {
	err = set.withProvider(ctx, rec, fn, s, func(p bind.Provider) error {
		step, begun := fn.SetStep(s, from, to), time.Now()
		is, err = set.putAlone(ctx, rec, fn, s, p, to)
		set.Observe(Event{Claim: rec.Plan.Claim, Phase: PhaseSetting, Step: &step, Took: time.Since(begun), Err: err})
		return err
	})
	if failed, ok := errors.AsType[*bind.NotActivatedError](err); ok {
		failed.Device = plannedDevice(&rec.Plan, fn).Published()
	}
	if err != nil {
		return inForce{}, err
	}
	return is, nil
}

// withProvider calls work with the provider of a setting, at a time when nothing else changes the setting. It adds the
// setting's name to all errors.
func (set *Set) withProvider(ctx context.Context, rec *journal.Record, fn *plan.Function, s *plan.Setting, work func(bind.Provider) error) error {
	provider, err := set.provider(s)
	if err == nil {
		err = set.CheckFunction(fn)
	}
	if err == nil {
		// A write that the kernel has not answered may yet change the value after it is read.
		err = set.Executor.Settle(ctx, fn.Address)
	}
	if err == nil {
		err = work(provider)
	}
	if err != nil {
		return fmt.Errorf("claim %s: %s of %s: %w", rec.Plan.Claim, s.Name, fn.Address, err)
	}
	return nil
}

// putAlone calls putValue. If the provider wants that, it does so for one VF of a PF at a time: claims of VFs share the
// lock of the PF, so they are prepared side by side otherwise. The lock that putAlone takes is the innermost: its
// holder waits for no other lock.
func (set *Set) putAlone(ctx context.Context, rec *journal.Record, fn *plan.Function, s *plan.Setting, p bind.Provider, to string) (inForce, error) {
	// A write that ends a value leaves more to the other VFs. It takes no lock, because it must not wait for another VF
	// whose write hangs.
	if _, alone := p.(bind.Alone); !alone || fn.PF == nil || to != s.Want {
		return putValue(ctx, p, fn, s, to)
	}
	if now, err := p.Read(ctx, fn, s.Name); err != nil || s.IsWanted(now) {
		return inForce{value: now}, err
	}
	release, err := set.Lock(ctx, rec.Plan.Claim, []Lock{{Name: "settings-" + fn.PF.Label(), Kept: true}})
	if err != nil {
		return inForce{}, fmt.Errorf("%w; if a write for another VF of %s hangs in the kernel, `kata-vfio-plugin status` names it", err, fn.PF)
	}
	// After its deadline, a write may still change what the other VFs can have, so the lock is kept until the kernel
	// answers. Nobody waits for this lock longer than for any other lock. After a restart of the plugin, only a process
	// that has not ended can still keep the lock.
	defer set.Executor.WhenSettled(ctx, fn.Address, release)
	return putValue(ctx, p, fn, s, to)
}

// putValue sets a value unless it is in force, and reads it back. It does not change an activation that another program
// has set.
func putValue(ctx context.Context, p bind.Provider, fn *plan.Function, s *plan.Setting, to string) (inForce, error) {
	now, err := p.Read(ctx, fn, s.Name)
	// The value is in force only if it is exactly the wanted one, or what the device has made of it: a value that is
	// merely close may be another one.
	if err != nil || now == to || to == s.Want && s.IsWanted(now) {
		return inForce{value: now}, err
	}
	if err := foreign(s, now); err != nil {
		return inForce{}, err
	}
	if err := p.Set(ctx, fn, s.Name, to); err != nil {
		return inForce{}, err
	}
	now, err = p.Read(ctx, fn, s.Name)
	if err == nil && !p.Accepts(s.Name, to, now) {
		err = fmt.Errorf("it reads %q after %q was set", now, to)
	}
	return inForce{value: now, changed: true}, err
}
