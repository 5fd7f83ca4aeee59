package dra

import (
	"context"
	"log/slog"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kata-vfio/kata-vfio/pkg/plan"
)

// ProvisionedVFs are the VFs that the node's config names; [prepare.Preparer] has
// the methods.
type ProvisionedVFs interface {
	Provision(ctx context.Context) ([]plan.Provision, error)
	BindStanding(ctx context.Context) error
}

// ProvisionWatch gives PFs their VFs, and tells what can't be had. It is not safe
// for concurrent use.
type ProvisionWatch struct {
	VFs     ProvisionedVFs
	Metrics *Metrics
	Log     *slog.Logger

	// said are the refusals that were logged, by rule; each is, once.
	said map[string]string
}

// Look does what can be done now, and reports whether a rule only waits for a VF
// that is in use: look again then. What can't be had is logged: the node's other
// devices are not to suffer for it.
func (w *ProvisionWatch) Look(ctx context.Context) (waits bool) {
	all, err := w.VFs.Provision(ctx)
	if err != nil {
		w.Log.ErrorContext(ctx, "VFs not provisioned", slog.Any("err", err))
		return len(w.said) > 0
	}
	w.Metrics.lackingVFs(all)
	said := map[string]string{}
	for i := range all {
		w.tell(ctx, &all[i])
		if all[i].Refused != "" {
			said[all[i].Rule] = all[i].Refused
		}
	}
	w.said = said
	return slices.ContainsFunc(all, func(p plan.Provision) bool { return p.Waits })
}

// Again is Look for rules that have waited. VFs that came of it are bound as their
// policy says.
func (w *ProvisionWatch) Again(ctx context.Context) (waits bool) {
	before := len(w.said)
	if waits = w.Look(ctx); len(w.said) < before {
		if err := w.VFs.BindStanding(ctx); err != nil {
			w.Log.ErrorContext(ctx, "not bound by policy", slog.Any("err", err))
		}
	}
	return waits
}

// tell logs what became of one rule.
func (w *ProvisionWatch) tell(ctx context.Context, p *plan.Provision) {
	log := w.Log.With(slog.String("rule", p.Rule), slog.Int("had", p.Have), slog.Int("wanted", p.Want))
	switch {
	case p.Refused != "" && w.said[p.Rule] != p.Refused:
		log.WarnContext(ctx, "number of VFs left as it is", slog.String("problem", p.Refused), slog.String("fix", p.Fix), slog.Bool("triedAgain", p.Waits))
	case p.Refused != "":
	case p.Remakes():
		log.InfoContext(ctx, "VFs provisioned", slog.String("pf", p.PF.String()))
	case len(p.OnHostDrivers) > 0:
		log.WarnContext(ctx, "VFs are on host drivers", slog.String("pf", p.PF.String()), slog.Any("vfs", p.OnHostDrivers))
	}
}

// newLackingVFs returns the gauge of VFs that are wanted and not there.
func newLackingVFs(r *prometheus.Registry) *prometheus.GaugeVec {
	lacking := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "kata_vfio_vfs_lacking",
		Help: "VFs that the node's config wants of a PF, as it names the PF, and that could not be made yet; the plugin's log says why.",
	}, []string{"pf"})
	r.MustRegister(lacking)
	return lacking
}

// lackingVFs enters what is wanted and was refused.
func (m *Metrics) lackingVFs(all []plan.Provision) {
	for i := range all {
		p, lacking := &all[i], 0
		if p.Refused != "" {
			lacking = max(0, p.Want-p.Have)
		}
		m.lacking.WithLabelValues(p.Rule).Set(float64(lacking))
	}
}
