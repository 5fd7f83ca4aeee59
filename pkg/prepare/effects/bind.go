package effects

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/bind"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/network/vf"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// LoadModules loads the modules of a record's functions. Until a module is loaded, only the module's name is known, and
// some drivers have another name: the module xe_vfio_pci registers the driver xe-vfio-pci. If a name differs,
// LoadModules writes the record again before anything is bound.
func (set *Set) LoadModules(ctx context.Context, rec *journal.Record) error {
	for _, module := range rec.Plan.Modules {
		if err := set.load(ctx, rec.Plan.Claim, module); err != nil {
			return err
		}
	}
	if len(rec.Plan.Modules) == 0 {
		return nil
	}
	next := *rec
	changed, err := set.nameDrivers(&next.Plan)
	if err != nil || !changed {
		return err
	}
	next.Plan.Steps = next.Plan.StepsFor(plan.AtOriginal, plan.Preparation()...)
	if err := set.Save(&next, journal.Preparing, ""); err != nil {
		return err
	}
	*rec = next
	return nil
}

// nameDrivers replaces a plan's drivers by the names under which they are registered, and reports whether the plan
// changed.
func (set *Set) nameDrivers(pl *plan.Plan) (changed bool, err error) {
	registered, err := set.FS.ReadDir("sys/bus/pci/drivers")
	if err != nil {
		return false, fmt.Errorf("claim %s: read the names of the drivers that were loaded: %w", pl.Claim, err)
	}
	named := func(b plan.Binding) plan.Binding {
		driver := registeredName(registered, b.Driver)
		if driver == b.Driver {
			return b
		}
		changed = true
		return plan.Binding{Driver: driver, Override: driver}
	}
	pl.Functions = slices.Clone(pl.Functions)
	for i := range pl.Functions {
		fn := &pl.Functions[i]
		fn.Target = named(fn.Target)
		if fn.Endpoint != nil {
			endpoint := named(*fn.Endpoint)
			fn.Endpoint = &endpoint
		}
	}
	return changed, nil
}

// registeredName returns the name of the registered driver that equals the wanted name except for "-" and "_". If there
// is no such driver, it returns the wanted name.
func registeredName(registered []string, want string) string {
	if slices.Contains(registered, want) {
		return want
	}
	i := slices.IndexFunc(registered, func(d string) bool { return device.SameDriver(d, want) })
	if i < 0 {
		return want
	}
	return registered[i]
}

// BindAll binds all functions to their targets, groups in parallel. It skips functions of a quarantine that are gone.
func (set *Set) BindAll(ctx context.Context, rec *journal.Record) error {
	groups := byGroup(rec.Plan.Functions)
	errs := make([]error, len(groups))
	together(len(groups), func(i int) {
		for _, fn := range groups[i] {
			err := set.Drive(ctx, rec, &fn, fn.Target)
			if err != nil && (rec.State != journal.Quarantined || !set.isGone(&fn)) {
				errs[i] = err
				return
			}
		}
	})
	return cmp.Or(errs...) // the failure of one group does not interrupt the writes of another
}

// together calls work for 0 to n-1 side by side, the last call in this goroutine: most claims need only one call.
func together(n int, work func(i int)) {
	var others sync.WaitGroup
	for i := range n - 1 {
		others.Go(func() { work(i) })
	}
	if n > 0 {
		work(n - 1)
	}
	others.Wait()
}

// byGroup splits functions by IOMMU group, in order.
func byGroup(fns []plan.Function) [][]plan.Function {
	var groups [][]plan.Function
	index := map[int]int{}
	for _, fn := range fns {
		i, ok := index[fn.Group]
		if !ok {
			i = len(groups)
			index[fn.Group] = i
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], fn)
	}
	return groups
}

// attempts is how often a binding is tried if another driver takes the function meanwhile. udev may do so once after
// each change.
const attempts = 3

// Drive brings one function to the wanted binding, by the steps that its present binding requires. If another driver
// takes the function meanwhile, Drive starts over, because the kubelet would try again only after a minute. The event
// of the binding reaches the disk with the claim's next event.
//
// Drive does not touch a function that is gone, and returns a [GoneError]. It takes a function from a host driver only
// if [Set.mayUnbind] allows it.
func (set *Set) Drive(ctx context.Context, rec *journal.Record, fn *plan.Function, want plan.Binding) error {
	at, err := set.open(fn) // stays open until the end, so that each look is at this function, and fails if the function is gone
	if err != nil {
		return err
	}
	defer at.Close()
	before, err := at.Binding(ctx)
	if err != nil {
		return gone(fn, err)
	}
	now := before
	for try := 1; ; try++ {
		// Each try checks this again, because the driver that took the function meanwhile may already have users.
		err = set.mayUnbind(ctx, rec, fn, now, want)
		steps := plan.Transition(fn.Address, now, want)
		for i := 0; i < len(steps) && err == nil; i++ {
			begun := time.Now()
			err = set.stillFree(ctx, rec.Plan.Claim, steps[i])
			if err == nil {
				err = at.Do(ctx, steps[i]) // at is this function, so no step begins after it has gone
			}
			set.observeStep(rec.Plan.Claim, steps[i], begun, err)
			err = gone(fn, err)
		}
		if err == nil || try == attempts || !transient(err) {
			break
		}
		if now, err = at.Binding(ctx); err != nil {
			err = gone(fn, err)
			break
		}
	}
	// If the driver is the same, only driver_override can have changed, and the ledger has only drivers.
	if before.Driver == want.Driver {
		return err
	}
	return errors.Join(err, set.RecordSoon(ctx, rec.Plan.Claim, drivenEvent(fn, before.Driver, want.Driver, err)))
}

// drivenEvent describes that a function went from one driver to another, or why not.
func drivenEvent(fn *plan.Function, before, want string, err error) ledger.Event {
	e := bindEvent(fn.Address, before, want)
	if err != nil { // the driver is unknown now, and reading it could hang in the kernel too
		e.Devices[0].DriverAfter = nil
		e.Result, e.Reason = ledger.Failed, fmt.Sprintf("bind to %s: %s", cmp.Or(want, "no driver"), OneLine(err))
	}
	return e
}

// now returns the present binding of a function, or a [GoneError].
func (set *Set) now(ctx context.Context, fn *plan.Function) (plan.Binding, error) {
	at, err := set.open(fn)
	if err != nil {
		return plan.Binding{}, err
	}
	defer at.Close()
	now, err := at.Binding(ctx)
	return now, gone(fn, err)
}

// mayUnbind refuses to take a function from a host driver that the record does not expect: somebody gave the function
// to that driver after the claim was planned, and the node may need it now. The record expects two drivers. One is the
// original driver while the claim is being prepared: the plan has just checked it. The other is the driver of an
// endpoint, which Kata may bind while the claim has the function.
func (set *Set) mayUnbind(ctx context.Context, rec *journal.Record, fn *plan.Function, now, want plan.Binding) error {
	expected := rec.State == journal.Preparing && now.Driver == fn.Original.Driver ||
		rec.State != journal.Quarantined && fn.Endpoint != nil && now.Driver == fn.Endpoint.Driver
	if now.Driver == "" || now.Driver == want.Driver || device.IsVFIO(now.Driver) || expected {
		return nil
	}
	return set.retakeable(ctx, rec, fn)
}

// load loads a module, or the modules of a modalias, as a step.
func (set *Set) load(ctx context.Context, claim plan.Ref, module string) error {
	s, begun := plan.Step{Operation: plan.Load, Value: module}, time.Now()
	err := set.Executor.Do(ctx, s)
	set.observeStep(claim, s, begun, err)
	return err
}

// observeStep reports a step of binding to the observer.
func (set *Set) observeStep(claim plan.Ref, s plan.Step, begun time.Time, err error) {
	phase := PhaseBind
	if s.Operation == plan.Unbind {
		phase = PhaseUnbind
	}
	set.Observe(Event{Claim: claim, Phase: phase, Step: &s, Took: time.Since(begun), Err: err})
}

// transient reports whether an error may be gone when Drive tries again.
func transient(err error) bool {
	var taken *bind.TakenError
	return errors.As(err, &taken)
}

// IsMoved reports whether a function of the record is not on its wanted binding. It returns a [GoneError] if a function
// is gone.
func (set *Set) IsMoved(ctx context.Context, rec *journal.Record) (bool, error) {
	moved := false
	for i := range rec.Plan.Functions {
		fn := &rec.Plan.Functions[i]
		now, err := set.now(ctx, fn)
		if err != nil {
			return false, fmt.Errorf("claim %s: %w; delete its pod, so that the claim is allocated again", rec.Plan.Claim, err)
		}
		if want, ours := FindBinding(rec, fn); ours && now != want {
			moved = true // a later function may be gone
		}
	}
	return moved, nil
}

// Restore returns all functions of a record to their original bindings, groups in parallel. If one fails, it continues
// with the others. It skips functions that are gone.
func (set *Set) Restore(ctx context.Context, rec *journal.Record) error {
	groups := byGroup(rec.Plan.Functions)
	errs := make([]error, len(groups))
	together(len(groups), func(i int) {
		for _, fn := range slices.Backward(groups[i]) {
			errs[i] = errors.Join(errs[i], set.restoreOne(ctx, rec, &fn))
		}
	})
	return errors.Join(errs...)
}

// restoreOne returns one function to its driver. A VF gets its former settings first, because its driver reads the
// address when it binds. If the driver is no longer registered, restoreOne loads its module and probes once more.
func (set *Set) restoreOne(ctx context.Context, rec *journal.Record, fn *plan.Function) error {
	if fn.RestoresVF() {
		err := set.configureVF(ctx, rec.Plan.Claim, fn, &fn.VF.Original)
		if err != nil && set.isGone(fn) {
			return nil
		}
		if err != nil {
			return withoutLink(err)
		}
	}
	if err := set.unsetAll(ctx, rec, fn, false); err != nil {
		return err
	}
	err := set.Drive(ctx, rec, fn, fn.Original)
	if errors.Is(err, bind.ErrNoMatch) {
		err = set.reload(ctx, rec, fn, err)
	}
	if err != nil && set.isGone(fn) {
		return nil
	}
	return err
}

// withoutLink adds the fix to the error of a setting that the PF refuses while it has no link, because the claim can't
// end until the setting is restored.
func withoutLink(err error) error {
	if setting, ok := errors.AsType[*vf.SettingError](err); ok && setting.NeedsLink() {
		return fmt.Errorf("%w; %s, and the next try continues from here", err, bringLinkUp)
	}
	return err
}

// reload loads the module of a function's original driver and binds the function to that driver. The function's
// modalias finds the module even if the module has another name than the driver (bochs-drm is in bochs), but not if
// modprobe's blacklist contains the module. Then the driver's name may find it.
func (set *Set) reload(ctx context.Context, rec *journal.Record, fn *plan.Function, err error) error {
	modalias, readErr := set.FS.ReadString(sysfs.FunctionPath(fn.Address) + "/modalias")
	if readErr != nil {
		return errors.Join(err, readErr)
	}
	for _, module := range []string{modalias, fn.Original.Driver} {
		// An error of modprobe is not final: the driver may be built in, or another program may have loaded it
		// meanwhile.
		loadErr := set.load(ctx, rec.Plan.Claim, module)
		if err = set.Drive(ctx, rec, fn, fn.Original); !errors.Is(err, bind.ErrNoMatch) {
			return err
		}
		err = errors.Join(err, loadErr)
	}
	return err
}

// Rebase replaces the original bindings in a record of an earlier boot by the bindings of this boot. With the old ones,
// functions of policy "bound" would stay on VFIO although their record of this policy has ended, and VFs would get
// addresses that they no longer have.
func (set *Set) Rebase(ctx context.Context, rec *journal.Record) error {
	rec.Plan.Functions = slices.Clone(rec.Plan.Functions)
	for i := range rec.Plan.Functions {
		fn := &rec.Plan.Functions[i]
		if set.isGone(fn) {
			continue
		}
		var err error
		if fn.Original, err = set.Executor.Binding(ctx, fn.Address); err != nil {
			return err
		}
		fn.Settings = nil // settings do not survive a reboot
		if fn.VF == nil {
			continue
		}
		state, _, err := set.VFs.Read(ctx, *fn.PF, fn.VF.Index)
		if err != nil {
			return fmt.Errorf("claim %s: VF %s: %w", rec.Plan.Claim, fn.Address, err)
		}
		change := *fn.VF
		change.Original = restorable(state.Settings.Only(&change.Want))
		fn.VF = &change
	}
	return nil
}
