package plugin

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/metrics"
)

// provisionEvery is the pause after which the plugin retries VFs that it could not provision and functions that it could not bind. It also
// retries when a PF or a VF changes.
const provisionEvery = time.Minute

// provision follows the node's PFs and VFs until ctx ends.
func (s *service) provision(ctx context.Context) error {
	snapshots, cancel := s.watcher.Subscribe()
	defer cancel()
	tick := time.NewTicker(provisionEvery)
	defer tick.Stop()
	return s.vfs.Follow(ctx, snapshots, tick.C)
}

// ProvisionedVFs provisions the VFs of the node config, and binds functions without a claim as the config asks; [maintain.Maintainer]
// implements it.
type ProvisionedVFs interface {
	Provision(ctx context.Context) ([]plan.Provision, error)
	Reprovision(ctx context.Context, hold func(*plan.Provision) (why, fix string)) ([]plan.Provision, error)
	BindSomeByPolicy(ctx context.Context, meant func(pci.Address) bool) error
}

// A change of a PF that failed is retried after provisionRetry. The pause doubles each time, up to provisionRetryLast: the
// change can succeed once a driver is loaded or an administrator has acted.
const (
	provisionRetry     = time.Minute
	provisionRetryLast = 8 * time.Minute
)

// ProvisionWatch provisions the VFs of PFs, and binds functions with the policy "bound". It acts when PFs, VFs or functions appear: a
// driver may be loaded, or loaded again, after the plugin started. It logs each failure once. It is not safe for concurrent use.
type ProvisionWatch struct {
	VFs     ProvisionedVFs
	Metrics *metrics.Metrics
	Log     *slog.Logger

	// rules is the state of each rule, by its PF as the config names it.
	rules map[string]ruleState
	// problem and unboundProblem are the problems that were logged last.
	problem, unboundProblem string
	// pfs describes the PFs and VFs of the last snapshot.
	pfs string
	// drivers are the drivers of the functions in the last snapshot. unbound are the functions that appeared and may still have
	// to be bound.
	drivers map[pci.Address]string
	unbound map[pci.Address]bool
}

// ruleState is the state of one rule.
type ruleState struct {
	// met is set once the PF had the VFs that the rule wants.
	met bool
	// refused and fix are the reason and the remedy that were logged last.
	refused, fix string
	// wait is the pause before the next attempt, and next the time of that attempt. Both are zero unless the last attempt failed.
	wait time.Duration
	next time.Time
}

// Start applies all rules when the plugin starts. Only then may a rule also remove VFs. Start only logs a failure, because the node's other
// devices work without the VFs.
func (w *ProvisionWatch) Start(ctx context.Context) {
	all, err := w.VFs.Provision(ctx)
	w.learn(ctx, all, err)
	w.bind(ctx, func(pci.Address) bool { return true })
}

// Follow applies the rules again for each snapshot in which a PF or a VF changed, and at each tick, until ctx ends.
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

// Changed applies the rules again if the snapshot requires it.
func (w *ProvisionWatch) Changed(ctx context.Context, snap *device.Snapshot) {
	// Most snapshots come from changes of other devices, and each provisioning reads every PF.
	if pfs := describePFs(snap); pfs != w.pfs {
		w.pfs = pfs
		w.provision(ctx)
	}
	if w.appeared(snap) {
		w.bind(ctx, func(a pci.Address) bool { return w.unbound[a] })
	}
}

// Again retries what failed.
func (w *ProvisionWatch) Again(ctx context.Context) {
	w.provision(ctx)
	if len(w.unbound) > 0 {
		w.bind(ctx, func(a pci.Address) bool { return w.unbound[a] })
	}
}

// provision applies all rules again.
func (w *ProvisionWatch) provision(ctx context.Context) {
	all, err := w.VFs.Reprovision(ctx, w.hold)
	if ctx.Err() == nil {
		w.learn(ctx, all, err)
	}
}

// hold returns why a change that is due must wait. VFs are not removed while the plugin runs, because the scheduler may have allocated
// them. A PF that already had its VFs gets them again only if it has none now, as after a reload of its driver. If it has another number of
// VFs, an administrator set that number, or the next instance did in a rolling update, whose config is newer.
func (w *ProvisionWatch) hold(p *plan.Provision) (why, fix string) {
	const fixNow = "run `kata-vfio-plugin provision`, or restart the plugin"
	s := w.rules[p.Rule]
	switch {
	case time.Now().Before(s.next):
		return s.refused, s.fix
	case !p.Remakes():
		return "", ""
	case p.TakesAway():
		return fmt.Sprintf("it has %s and %d are wanted: the plugin removes VFs only when it starts", output.Count(p.Have, "VF"), p.Want), fixNow
	case s.met && p.Have > 0:
		return fmt.Sprintf("it had what the rule wants, and was changed later: it has %s", output.Count(p.Have, "VF")), fixNow
	}
	return "", ""
}

// learn logs the results of the rules, and keeps them as the rules' state.
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
	case p.Refused != "" && time.Now().Before(s.next): // hold made it wait
		next.wait, next.next = s.wait, s.next
	}
	return next
}

// report logs the result of one rule, unless it was logged before.
func (w *ProvisionWatch) report(ctx context.Context, p *plan.Provision, before string) {
	log := w.Log.With(slog.String("rule", p.Rule), slog.Int("had", p.Have), slog.Int("wanted", p.Want))
	switch {
	case p.Refused == before && p.Refused != "":
	case p.Failed: // the former VFs may be gone
		log.WarnContext(ctx, "change of the VF count failed", slog.String("problem", p.Refused), slog.String("fix", p.Fix), slog.Bool("triedAgain", !p.TakesAway()))
	case p.Refused != "":
		log.WarnContext(ctx, "VF count unchanged", slog.String("problem", p.Refused), slog.String("fix", p.Fix), slog.Bool("triedAgain", !p.TakesAway()))
	case p.Remakes():
		log.InfoContext(ctx, "VFs provisioned", slog.String("pf", p.PF.String()))
	case len(p.OnHostDrivers) > 0 && !w.rules[p.Rule].met:
		log.WarnContext(ctx, "VFs are on host drivers", slog.String("pf", p.PF.String()), slog.Any("vfs", p.OnHostDrivers))
	}
}

// appeared records the functions that are new in the snapshot or have another driver, and reports whether there are any. A function that
// was replaced between two snapshots appears on its host driver or on no driver.
func (w *ProvisionWatch) appeared(snap *device.Snapshot) bool {
	drivers, found := make(map[pci.Address]string, len(snap.Functions)), false
	unbound := map[pci.Address]bool{}
	for i := range snap.Functions {
		f := &snap.Functions[i]
		drivers[f.Address] = f.Driver
		before, known := w.drivers[f.Address]
		// A change from a host driver to VFIO is the binding of a claim, and leaves nothing to bind.
		fresh := !known || before != f.Driver && (f.Driver == "" || device.IsVFIO(before))
		found = found || fresh
		if fresh || w.unbound[f.Address] {
			unbound[f.Address] = true
		}
	}
	w.drivers, w.unbound = drivers, unbound
	return found
}

// bind binds the functions with the policy "bound". After a failure, the functions that appeared stay recorded for the next tick.
func (w *ProvisionWatch) bind(ctx context.Context, meant func(pci.Address) bool) {
	err := w.VFs.BindSomeByPolicy(ctx, meant)
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

// isNew reports whether there is an error with another text than last, and sets last.
func isNew(last *string, err error) bool {
	text := ""
	if err != nil {
		text = err.Error()
	}
	changed := text != "" && text != *last
	*last = text
	return changed
}

// describePFs returns the state of the node's PFs and VFs, on which rules depend, as text to compare.
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
