package effects

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kata-vfio/kata-vfio/pkg/bind"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/network/vf"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// Binding brings functions to drivers, verifies that, and brings them back.
type Binding struct {
	fs          *sysfs.FS
	executor    Executor
	vfs         VFs
	interfaces  Interfaces
	bus         *Bus
	guard       *Guard
	recording   *Recording
	configuring *Configuring
	observe     Observer
}

// LoadModules loads what a record's functions need. A driver that was not loaded
// before is known by its module's name only, and some register under another one:
// the module xe_vfio_pci brings the driver xe-vfio-pci. Where that is so, the record is written
// again, before anything is bound by it.
func (b *Binding) LoadModules(ctx context.Context, rec *journal.Record) error {
	for _, module := range rec.Plan.Modules {
		if err := b.load(ctx, rec.Plan.Claim, module); err != nil {
			return err
		}
	}
	if len(rec.Plan.Modules) == 0 {
		return nil
	}
	next := *rec
	changed, err := b.nameDrivers(&next.Plan)
	if err != nil || !changed {
		return err
	}
	next.Plan.Steps = next.Plan.StepsOf(plan.AtOriginal, plan.Preparation()...)
	if err := b.recording.Save(&next, journal.Preparing, ""); err != nil {
		return err
	}
	*rec = next
	return nil
}

// nameDrivers gives a plan's drivers the names under which they are registered,
// and reports whether that changes it.
func (b *Binding) nameDrivers(pl *plan.Plan) (changed bool, err error) {
	registered, err := b.fs.ReadDir("sys/bus/pci/drivers")
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

// registeredName returns the name of the registered driver that equals the wanted one but for "-" and "_", or the wanted
// name if there is none.
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

// BindAll brings all functions to their target, groups side by side. It skips those of a
// quarantine that are gone.
func (b *Binding) BindAll(ctx context.Context, rec *journal.Record) error {
	var g errgroup.Group // without a shared context: one group's failure must not cut off another's write
	for _, fns := range byGroup(rec.Plan.Functions) {
		g.Go(func() error {
			for _, fn := range fns {
				err := b.Drive(ctx, rec, &fn, fn.Target)
				if err != nil && (rec.State != journal.Quarantined || !b.bus.isGone(&fn)) {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
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

// attempts is how often a binding is tried when another driver takes the function in between: udev may do so once after
// each change.
const attempts = 3

// Drive brings one function to the wanted binding by the steps that its
// present binding calls for, and begins again when another driver came
// between. The kubelet's own retry comes only after a minute. The event is on disk with the claim's next one.
//
// It does not touch a function that is gone, and returns a [GoneError]. It takes a function from a host driver only if
// that may be; see [Binding.mayUnbind].
func (b *Binding) Drive(ctx context.Context, rec *journal.Record, fn *plan.Function, want plan.Binding) error {
	at, err := b.bus.open(b.executor, fn)
	if err != nil {
		return err
	}
	defer at.Close()
	before, err := at.Binding(ctx)
	if err != nil {
		return gone(fn, err)
	}
	err = b.driveTo(ctx, rec, target{fn, at}, before, want)
	if before.Driver == want.Driver {
		return err
	}
	e := bindEvent(fn.Address, before.Driver, want.Driver)
	if err != nil { // where it is now is for the next look, which may hang in the kernel too
		e.Devices[0].DriverAfter = nil
		e.Result, e.Reason = ledger.Failed, fmt.Sprintf("bind to %s: %s", cmp.Or(want.Driver, "no driver"), OneLine(err))
	}
	return errors.Join(err, b.recording.RecordSoon(ctx, rec.Plan.Claim, e))
}

// target is a function that is driven to a binding. Its directory is open meanwhile, so that each look at it is at this
// function, and says if it is gone.
type target struct {
	fn *plan.Function
	at *bind.Function
}

// now returns the present binding of a function, or a [GoneError].
func (b *Binding) now(ctx context.Context, fn *plan.Function) (plan.Binding, error) {
	at, err := b.bus.open(b.executor, fn)
	if err != nil {
		return plan.Binding{}, err
	}
	defer at.Close()
	now, err := at.Binding(ctx)
	return now, gone(fn, err)
}

// driveTo is Drive from the present binding, without its event.
func (b *Binding) driveTo(ctx context.Context, rec *journal.Record, t target, now, want plan.Binding) error {
	for left := attempts; ; {
		err := b.mayUnbind(ctx, rec, t.fn, now, want)
		if err == nil {
			err = b.steps(ctx, rec.Plan.Claim, t, plan.Transition(t.fn.Address, now, want))
		}
		if left--; err == nil || left == 0 || !transient(err) {
			return err
		}
		if now, err = t.at.Binding(ctx); err != nil {
			return gone(t.fn, err)
		}
	}
}

// mayUnbind refuses to take a function from a host driver that the record does not expect: somebody has given the
// function to the driver since the claim was planned, and the node may need it now. The driver that a claim in
// preparation was planned with has just been judged; that of an endpoint is Kata's business while the claim has it.
func (b *Binding) mayUnbind(ctx context.Context, rec *journal.Record, fn *plan.Function, now, want plan.Binding) error {
	expected := rec.State == journal.Preparing && now.Driver == fn.Original.Driver ||
		rec.State != journal.Quarantined && fn.Endpoint != nil && now.Driver == fn.Endpoint.Driver
	if now.Driver == "" || now.Driver == want.Driver || device.IsVFIO(now.Driver) || expected {
		return nil
	}
	return b.guard.retakeable(ctx, rec, fn)
}

// steps carries out steps on a function that the caller has just seen. A step may wait for long: its last look is at the
// function, so that the next one does not begin if the function has gone.
func (b *Binding) steps(ctx context.Context, claim plan.Ref, t target, steps []plan.Step) error {
	for _, s := range steps {
		if err := b.step(ctx, claim, s, t.at.Do); err != nil {
			return gone(t.fn, err)
		}
	}
	return nil
}

// load loads a module, or those of a modalias, as a step.
func (b *Binding) load(ctx context.Context, claim plan.Ref, module string) error {
	return b.step(ctx, claim, plan.Step{Operation: plan.Load, Value: module}, b.executor.Do)
}

// step carries out one step and reports it to the observer.
func (b *Binding) step(ctx context.Context, claim plan.Ref, s plan.Step, do func(context.Context, plan.Step) error) error {
	phase := PhaseBind
	if s.Operation == plan.Unbind {
		phase = PhaseUnbind
	}
	start := time.Now()
	err := b.guard.stillFree(ctx, claim, s)
	if err == nil {
		err = do(ctx, s)
	}
	b.observe(Event{Claim: claim, Phase: phase, Step: &s, Took: time.Since(start), Err: err})
	return err
}

// transient reports whether driving the function again may help.
func transient(err error) bool {
	var taken *bind.TakenError
	return errors.As(err, &taken)
}

// Moved reports whether a function of the record is not on its target. It returns a [GoneError] for one that is gone.
func (b *Binding) Moved(ctx context.Context, rec *journal.Record) (bool, error) {
	for i := range rec.Plan.Functions {
		fn := &rec.Plan.Functions[i]
		now, err := b.now(ctx, fn)
		if err != nil {
			return false, fmt.Errorf("claim %s: %w; delete its pod, so that the claim is allocated again", rec.Plan.Claim, err)
		}
		if want, ours := BindingOf(rec, fn); ours && now != want {
			return true, nil
		}
	}
	return false, nil
}

// Restore returns all functions of a record to their original bindings, groups in parallel. If one fails, it continues
// with the others. It skips functions that no longer exist.
func (b *Binding) Restore(ctx context.Context, rec *journal.Record) error {
	var g errgroup.Group
	groups := byGroup(rec.Plan.Functions)
	errs := make([]error, len(groups))
	for i, fns := range groups {
		g.Go(func() error {
			for _, fn := range slices.Backward(fns) {
				errs[i] = errors.Join(errs[i], b.restoreOne(ctx, rec, &fn))
			}
			return nil
		})
	}
	_ = g.Wait() // the goroutines return nil; errs has theirs
	return errors.Join(errs...)
}

// restoreOne returns one function to its driver, a VF with its former settings: its driver reads the address when it
// binds. If the driver is no longer registered, restoreOne loads its module and probes once more.
func (b *Binding) restoreOne(ctx context.Context, rec *journal.Record, fn *plan.Function) error {
	if fn.RestoresVF() {
		err := b.configuring.configureVF(ctx, rec.Plan.Claim, fn, &fn.VF.Original)
		if err != nil && b.bus.isGone(fn) {
			return nil
		}
		if err != nil {
			return withoutLink(err)
		}
	}
	err := b.Drive(ctx, rec, fn, fn.Original)
	if errors.Is(err, bind.ErrNoMatch) {
		err = b.reload(ctx, rec, fn, err)
	}
	if err != nil && b.bus.isGone(fn) {
		return nil
	}
	return err
}

// withoutLink adds the way out to the error of a setting that waits for the
// PF's link: the claim can't come off the node before.
func withoutLink(err error) error {
	if setting, ok := errors.AsType[*vf.SettingError](err); ok && setting.NeedsLink() {
		return fmt.Errorf("%w; %s, and the next try continues from here", err, bringLinkUp)
	}
	return err
}

// reload loads the module of a function's original driver and drives it home.
// The function's modalias finds a module whatever it is called (bochs-drm is in
// bochs), but not one on modprobe's blacklist, which the driver's name may.
func (b *Binding) reload(ctx context.Context, rec *journal.Record, fn *plan.Function, err error) error {
	modalias, readErr := b.fs.ReadString(sysfs.FunctionPath(fn.Address) + "/modalias")
	if readErr != nil {
		return errors.Join(err, readErr)
	}
	for _, module := range []string{modalias, fn.Original.Driver} {
		loadErr := b.load(ctx, rec.Plan.Claim, module)
		if err = b.Drive(ctx, rec, fn, fn.Original); !errors.Is(err, bind.ErrNoMatch) {
			return err
		}
		err = errors.Join(err, loadErr)
	}
	return err
}

// Rebase changes the original bindings of a record of an earlier boot to those that this boot began with. Otherwise
// policy "bound" would leave the functions on VFIO, although their record of this policy has ended, and VFs would get
// addresses that they no longer have.
func (b *Binding) Rebase(ctx context.Context, rec *journal.Record) error {
	rec.Plan.Functions = slices.Clone(rec.Plan.Functions)
	for i := range rec.Plan.Functions {
		fn := &rec.Plan.Functions[i]
		if b.bus.isGone(fn) {
			continue
		}
		var err error
		if fn.Original, err = b.executor.Binding(ctx, fn.Address); err != nil {
			return err
		}
		if fn.VF == nil {
			continue
		}
		state, _, err := b.vfs.Read(ctx, *fn.PF, fn.VF.Index)
		if err != nil {
			return fmt.Errorf("claim %s: VF %s: %w", rec.Plan.Claim, fn.Address, err)
		}
		change := *fn.VF
		change.Original = restorable(state.Settings.Only(&change.Want))
		fn.VF = &change
	}
	return nil
}
