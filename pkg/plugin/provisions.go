package plugin

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/metrics"
)

// provisionEvery is the pause before the plugin retries what it could not provision or bind. It also retries
// when a PF or a VF changes.
const provisionEvery = time.Minute

// provision follows the node's PFs and VFs until ctx ends.
func (s *service) provision(ctx context.Context) error {
	snapshots, cancel := s.watcher.Subscribe()
	defer cancel()
	tick := time.NewTicker(provisionEvery)
	defer tick.Stop()
	return s.vfs.Follow(ctx, snapshots, tick.C)
}

// ProvisionedVFs are the VFs that the node's config names, and the functions that
// it has bound without a claim; [maintain.Maintainer] has the methods.
type ProvisionedVFs interface {
	Provision(ctx context.Context) ([]plan.Provision, error)
	Reprovision(ctx context.Context, hold func(*plan.Provision) (why, fix string)) ([]plan.Provision, error)
	BindByPolicyOf(ctx context.Context, meant func(pci.Address) bool) error
}

// After a change of a PF that failed, the next is tried after provisionRetry, and
// then each time after twice as long, up to provisionRetryLast: what the kernel
// can't do now it may be able to do once a driver or an administrator has acted.
const (
	provisionRetry     = time.Minute
	provisionRetryLast = 8 * time.Minute
)

// ProvisionWatch gives PFs their VFs and binds functions of policy "bound",
// whenever they appear: a driver may be loaded after the plugin has started, or
// loaded again. It says what can't be had, once. It is not safe for concurrent
// use.
type ProvisionWatch struct {
	VFs     ProvisionedVFs
	Metrics *metrics.Metrics
	Log     *slog.Logger

	// rules is what became of each rule, by its PF as the config names it.
	rules map[string]ruleState
	// problem and unboundProblem were logged last.
	problem, unboundProblem string
	// pfs is what the last snapshot said of PFs and VFs.
	pfs string
	// drivers are those of the functions in the last snapshot, and unbound the
	// functions that appeared and may have to be bound still.
	drivers map[pci.Address]string
	unbound map[pci.Address]bool
}

// ruleState is what became of one rule.
type ruleState struct {
	// met is whether the PF was once as the rule wants it.
	met bool
	// refused and fix were logged.
	refused, fix string
	// wait is how long the next try is off, and next when it is due; zero unless
	// the last try failed.
	wait time.Duration
	next time.Time
}

// Start does what can be done at the start of the plugin, when a rule may take VFs
// away too. What can't be had is logged: the node's other devices work without it.
func (w *ProvisionWatch) Start(ctx context.Context) {
	all, err := w.VFs.Provision(ctx)
	w.learn(ctx, all, err)
	w.bind(ctx, func(pci.Address) bool { return true })
}

// Follow does what can be done at each snapshot that says something new of a PF or
// its VFs, and at each tick, until ctx ends.
func (w *ProvisionWatch) Follow(ctx context.Context, snapshots <-chan *device.Snapshot, tick <-chan time.Time) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case snap := <-snapshots:
			w.Changed(ctx, snap)
		case <-tick:
			w.Again(ctx)
		}
	}
}

// Changed looks again where the snapshot calls for it.
func (w *ProvisionWatch) Changed(ctx context.Context, snap *device.Snapshot) {
	if pfs := describePFs(snap); pfs != w.pfs {
		w.pfs = pfs
		w.provision(ctx)
	}
	if w.appeared(snap) {
		w.bind(ctx, func(a pci.Address) bool { return w.unbound[a] })
	}
}

// Again tries what has not been possible so far.
func (w *ProvisionWatch) Again(ctx context.Context) {
	w.provision(ctx)
	if len(w.unbound) > 0 {
		w.bind(ctx, func(a pci.Address) bool { return w.unbound[a] })
	}
}

// provision decides again about all rules.
func (w *ProvisionWatch) provision(ctx context.Context) {
	all, err := w.VFs.Reprovision(ctx, w.hold)
	if ctx.Err() == nil {
		w.learn(ctx, all, err)
	}
}

// hold returns why a change that is due waits. VFs are not taken away while the
// plugin runs, since the scheduler may have allocated them. A PF that had its VFs
// gets them again only once it has none, as after a reload of its driver: another
// number was set by an administrator, or by the next instance of the plugin in a
// rolling update, whose config is newer.
func (w *ProvisionWatch) hold(p *plan.Provision) (why, fix string) {
	const fixNow = "run `kata-vfio-plugin provision`, or restart the plugin"
	s := w.rules[p.Rule]
	switch {
	case time.Now().Before(s.next):
		return s.refused, s.fix
	case !p.Remakes():
		return "", ""
	case p.TakesAway():
		return fmt.Sprintf("it has %d VFs and %d are wanted: the plugin takes VFs away only when it starts", p.Have, p.Want), fixNow
	case s.met && p.Have > 0:
		return fmt.Sprintf("it had what the rule wants, and was changed since: it has %d VFs", p.Have), fixNow
	}
	return "", ""
}

// learn tells what became of the rules, and remembers it.
func (w *ProvisionWatch) learn(ctx context.Context, all []plan.Provision, err error) {
	if isNew(&w.problem, err) {
		w.Log.ErrorContext(ctx, "VFs not provisioned", slog.Any("err", err))
	}
	if err != nil {
		return
	}
	w.Metrics.ObserveProvisions(all)
	rules := make(map[string]ruleState, len(all))
	for i := range all {
		before := w.rules[all[i].Rule]
		w.report(ctx, &all[i], before.refused)
		rules[all[i].Rule] = before.after(&all[i])
	}
	w.rules = rules
}

// after returns the state after a look at the rule.
func (s ruleState) after(p *plan.Provision) ruleState {
	next := ruleState{met: s.met || p.Refused == "", refused: p.Refused, fix: p.Fix}
	switch {
	case p.Failed:
		next.wait = min(max(2*s.wait, provisionRetry), provisionRetryLast)
		next.next = time.Now().Add(next.wait)
	case p.Refused != "" && time.Now().Before(s.next): // it was held back
		next.wait, next.next = s.wait, s.next
	}
	return next
}

// report logs what became of one rule, unless it was said before.
func (w *ProvisionWatch) report(ctx context.Context, p *plan.Provision, before string) {
	log := w.Log.With(slog.String("rule", p.Rule), slog.Int("had", p.Have), slog.Int("wanted", p.Want))
	switch {
	case p.Refused != "" && before != p.Refused:
		log.WarnContext(ctx, "number of VFs left as it is", slog.String("problem", p.Refused), slog.String("fix", p.Fix), slog.Bool("triedAgain", !p.TakesAway()))
	case p.Refused != "":
	case p.Remakes():
		log.InfoContext(ctx, "VFs provisioned", slog.String("pf", p.PF.String()))
	case len(p.OnHostDrivers) > 0 && !w.rules[p.Rule].met:
		log.WarnContext(ctx, "VFs are on host drivers", slog.String("pf", p.PF.String()), slog.Any("vfs", p.OnHostDrivers))
	}
}

// appeared notes the functions that the snapshot has and the last had not, or had on
// another driver: one that was replaced between two snapshots comes up on its host driver,
// or on none. It reports whether there are any.
func (w *ProvisionWatch) appeared(snap *device.Snapshot) bool {
	drivers, found := make(map[pci.Address]string, len(snap.Functions)), false
	unbound := map[pci.Address]bool{}
	for i := range snap.Functions {
		f := &snap.Functions[i]
		drivers[f.Address] = f.Driver
		before, known := w.drivers[f.Address]
		fresh := !known || before != f.Driver && (f.Driver == "" || device.IsVFIO(before))
		found = found || fresh
		if fresh || w.unbound[f.Address] {
			unbound[f.Address] = true
		}
	}
	w.drivers, w.unbound = drivers, unbound
	return found
}

// bind binds those of the functions whose policy says so. Where that does not
// succeed the functions that appeared are kept for the next tick.
func (w *ProvisionWatch) bind(ctx context.Context, meant func(pci.Address) bool) {
	err := w.VFs.BindByPolicyOf(ctx, meant)
	if ctx.Err() != nil {
		return
	}
	if isNew(&w.unboundProblem, err) {
		w.Log.ErrorContext(ctx, "not bound by policy", slog.Any("err", err))
	}
	if err == nil {
		w.unbound = nil
	}
}

// isNew reports whether there is an error with another text than last, and notes it there.
func isNew(last *string, err error) bool {
	text := ""
	if err != nil {
		text = err.Error()
	}
	changed := text != "" && text != *last
	*last = text
	return changed
}

// describePFs returns what rules are decided on: the state of the node's PFs and
// VFs, as text to compare.
func describePFs(snap *device.Snapshot) string {
	var b strings.Builder
	for i := range snap.Functions {
		switch f := &snap.Functions[i]; {
		case f.PF != nil:
			fmt.Fprintln(&b, f.Address, f.Driver, f.Locked, f.Children.Net, *f.PF)
		case f.VF != nil:
			fmt.Fprintln(&b, f.Address, f.Driver, f.Locked, f.Uses)
		}
	}
	return b.String()
}
