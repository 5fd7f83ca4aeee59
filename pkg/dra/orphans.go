package dra

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/prepare"
)

// Kinds of orphans, as the metrics have them.
const (
	orphanClaim   = "claim"   // a record whose ResourceClaim is gone
	orphanSpec    = "spec"    // a CDI spec without a record
	orphanBinding = "binding" // a function on VFIO without a record
)

// orphanGrace is how long a claim must be gone before it is an orphan: the kubelet takes
// a pod's claims back after the pod, and tries for minutes.
const orphanGrace = 10 * time.Minute

// Strays are functions and files that no record explains; [prepare.Preparer] has the
// methods.
type Strays interface {
	SweepSpecs(ctx context.Context) ([]string, error)
	GiveBackStrays(ctx context.Context) ([]prepare.Stray, error)
}

// Repair compares the journal with the claims at the API server, the CDI specs and the
// kernel's bindings, and mends what is certainly left over. What may be of use to
// somebody, or can't be told, is reported and left alone. It is not safe for concurrent
// use.
//
// The kubelet unprepares the claims of pods that end, and goes on after its own
// restart; Recover settles what a crash of the plugin cut off. Here comes what neither
// knows of any more: a kubelet that has lost its state, a claim that was deleted by force, a record that
// was removed by hand.
type Repair struct {
	Client  kubernetes.Interface
	Node    string
	Records func() ([]*journal.Record, []error)
	Strays  Strays
	// Release takes a claim back; [Driver.Release] is the real one.
	Release func(ctx context.Context, ref plan.Ref) error
	// Alive reports whether a process is there still.
	Alive    func(journal.Process) bool
	Reporter *Reporter
	Metrics  *Metrics
	Log      *slog.Logger
	// Now returns the time, with its monotonic part.
	Now func() time.Time

	// gone is since when a claim has been found gone, at every look that had an answer.
	gone map[string]time.Time
	// claimsLeft are the claims that the last look left, by UID, and told what was told of
	// all that is left, by kind and name.
	claimsLeft map[string]orphan
	told       map[string]string
}

// orphan is what is left alone, and why.
type orphan struct{ name, why string }

// Look looks once, mends and reports.
func (r *Repair) Look(ctx context.Context) {
	left := map[string]map[string]string{orphanClaim: r.claims(ctx), orphanSpec: r.specs(ctx), orphanBinding: r.bindings(ctx)}
	told := map[string]string{}
	for kind, orphans := range left {
		r.Metrics.orphans.found.WithLabelValues(kind).Set(float64(len(orphans)))
		for _, name := range slices.Sorted(maps.Keys(orphans)) {
			id := kind + " " + name
			if told[id] = orphans[name]; r.told[id] != orphans[name] {
				r.report(ctx, kind, name, orphans[name])
			}
		}
	}
	r.told = told
}

// report tells of what is left alone, once for each reason.
func (r *Repair) report(ctx context.Context, kind, name, why string) {
	r.Log.WarnContext(ctx, "orphan left alone", slog.String("kind", kind), slog.String("name", name), slog.String("why", why))
	r.Reporter.NodeEvent(r.Node, corev1.EventTypeWarning, "Orphan", "Repair", fmt.Sprintf("%s %s is left alone: %s", kind, name, why))
}

// mended counts a repair.
func (r *Repair) mended(ctx context.Context, kind, name, what string, err error) {
	r.Metrics.orphans.repairs.WithLabelValues(kind, resultOf(err)).Inc()
	if err == nil {
		r.Log.InfoContext(ctx, "orphan mended", slog.String("kind", kind), slog.String("name", name), slog.String("what", what))
	}
}

// claims takes claims back that are certainly gone, and returns those that may be. Of
// those that the API server does not tell about, all stays as it was found last.
func (r *Repair) claims(ctx context.Context) map[string]string {
	records, _ := r.Records() // what can't be read is a metric of its own, and nobody's to mend
	if r.isOurCluster(ctx, records) {
		r.judge(ctx, records)
	}
	left := map[string]string{}
	for _, o := range r.claimsLeft {
		left[o.name] = o.why
	}
	return left
}

// judge looks at each claim, and mends those that are gone for long enough.
func (r *Repair) judge(ctx context.Context, records []*journal.Record) {
	gone, left := map[string]time.Time{}, map[string]orphan{}
	for _, rec := range records {
		if rec.Kind != journal.Claim || rec.State == journal.Quarantined || rec.Plan.Claim.Name == "" {
			continue
		}
		id := rec.ID()
		since, known := r.gone[id]
		is, err := r.isGone(ctx, rec)
		if err != nil && known {
			gone[id] = since
			if o, was := r.claimsLeft[id]; was {
				left[id] = o
			}
		}
		if err != nil || !is {
			continue
		}
		if !known {
			since = r.Now()
		}
		gone[id] = since
		if r.Now().Sub(since) < orphanGrace {
			continue
		}
		if why := r.mend(ctx, rec); why != "" {
			left[id] = orphan{rec.Plan.Claim.String(), why}
		}
	}
	r.gone, r.claimsLeft = gone, left
}

// mend takes back a claim that is gone, or says why not.
func (r *Repair) mend(ctx context.Context, rec *journal.Record) string {
	ref := rec.Plan.Claim
	switch s := rec.Sandbox; {
	case len(ref.Pods) == 0:
		return "its ResourceClaim is gone, and it was prepared by hand: `kata-vfio-plugin unprepare " + ref.UID + "` if nobody needs it"
	case s != nil && s.VMM.PID == 0:
		return "its ResourceClaim is gone, and whether sandbox " + s.ID + " still has it is not known"
	case s != nil && r.Alive(s.VMM):
		return fmt.Sprintf("its ResourceClaim is gone, and sandbox %s (pid %d) still has it", s.ID, s.VMM.PID)
	}
	err := r.Release(ctx, ref)
	what := "devices taken back"
	if r.isQuarantined(ref.UID) {
		what = "taken from its tenant, and quarantined, since its devices are not proven clean"
	}
	r.mended(ctx, orphanClaim, ref.String(), "its ResourceClaim is gone: "+what, err)
	if err != nil {
		return "its ResourceClaim is gone, and it can't be taken back: " + err.Error()
	}
	return ""
}

// isQuarantined reports whether a claim's end was a quarantine, which is no error of its
// release.
func (r *Repair) isQuarantined(uid string) bool {
	records, _ := r.Records()
	return slices.ContainsFunc(records, func(rec *journal.Record) bool { return rec.ID() == uid && rec.State == journal.Quarantined })
}

// isOurCluster reports whether the API server knows this node: one that is not ours knows
// none of its claims either.
func (r *Repair) isOurCluster(ctx context.Context, records []*journal.Record) bool {
	if len(records) == 0 {
		return true
	}
	_, err := r.Client.CoreV1().Nodes().Get(ctx, r.Node, metav1.GetOptions{})
	return err == nil
}

// isGone reports whether the claim is certainly gone. Its error says that there was no
// answer to that, such as the 404 of a server that does not serve resource.k8s.io/v1 at all.
func (r *Repair) isGone(ctx context.Context, rec *journal.Record) (bool, error) {
	ref := rec.Plan.Claim
	c, err := r.Client.ResourceV1().ResourceClaims(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse):
		return true, nil
	case err != nil:
		return false, err
	}
	return string(c.UID) != ref.UID, nil
}

// specs removes CDI specs without a record.
func (r *Repair) specs(ctx context.Context) map[string]string {
	removed, err := r.Strays.SweepSpecs(ctx)
	for _, uid := range removed {
		r.mended(ctx, orphanSpec, uid, "CDI spec without a record: removed", nil)
	}
	if err == nil || ctx.Err() != nil {
		return nil
	}
	r.mended(ctx, orphanSpec, "", "", err)
	return map[string]string{"of the node": err.Error()}
}

// bindings gives strays back.
func (r *Repair) bindings(ctx context.Context) map[string]string {
	strays, err := r.Strays.GiveBackStrays(ctx)
	left := map[string]string{}
	for i := range strays {
		s := &strays[i]
		name := s.Address.String()
		switch {
		case s.Err != nil:
			r.mended(ctx, orphanBinding, name, "", s.Err)
			left[name] = "it can't be given back now: " + s.Err.Error()
		case s.GivenBack == "":
			left[name] = s.Why
		default:
			r.mended(ctx, orphanBinding, name, "on VFIO without a record: given back to "+s.GivenBack, nil)
		}
	}
	if err != nil && ctx.Err() == nil && !errors.Is(err, context.Canceled) {
		r.mended(ctx, orphanBinding, "", "", err)
		left["of the node"] = err.Error()
	}
	return left
}
