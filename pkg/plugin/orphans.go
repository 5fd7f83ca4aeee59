package plugin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/maintain"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/dra"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/metrics"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/nri"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/podres"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

const (
	// repairEvery is the pause between two looks for orphans.
	repairEvery = 5 * time.Minute
	// repairFirst is the longest pause before the first look. The pause is random, so that the nodes of a cluster that start together do
	// not ask together.
	repairFirst = time.Minute
	// repairPause is the shortest pause between two looks when claims ask for devices that other claims have.
	repairPause = 20 * time.Second
)

// repair looks for orphans until ctx ends.
func (s *service) repair(ctx context.Context) error {
	repair := Repair{
		Client: s.client, Node: s.config.Node.Name, Records: s.node.Parts.Journal, Orphans: s.node, Claims: s.plugin, Losses: s.losses(), Soon: s.heldByLost,
		Processes: nodeProcesses{s.node.Parts.FS}, Reporter: s.reporter, Metrics: s.metrics, Log: s.log, Now: time.Now,
		NameTenants: s.namesTenants(),
	}
	return repair.Run(ctx)
}

// Run looks soon and then after each pause, or when Soon says so, until ctx ends.
func (r *Repair) Run(ctx context.Context) error {
	// Spread, because an update of the DaemonSet starts the plugins of many nodes at once, and each look asks the API server.
	next := time.NewTimer(rand.N(repairFirst))
	defer next.Stop()
	var last time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.Soon:
			// Signals can come in bursts, and each look asks the API server about all claims.
			next.Reset(max(0, time.Until(last.Add(repairPause))))
		case <-next.C:
			r.Look(ctx)
			last = time.Now()
			next.Reset(varied(repairEvery))
		}
	}
}

// losses records losses in the table of sandboxes. It implements [dra.Losses].
type losses struct {
	table   *podres.Table
	changes changes
}

// namesTenants reports whether metrics may name namespaces and claims.
func (s *service) namesTenants() bool {
	return !s.config.Metrics.Serving.Open || s.config.Metrics.Tenants
}

// losses returns the losses of the node's claims.
func (s *service) losses() losses { return losses{s.sandboxes.table, s.changes} }

// Note implements [dra.Losses].
func (l losses) Note(uid, why string) {
	if l.table.Withdraw(uid, why) {
		l.changes.Wake()
	}
}

// nodeProcesses are the processes of a node. It implements [Processes].
type nodeProcesses struct{ fs *sysfs.FS }

// IsAlive implements [Processes]. It returns true if the state of the process can't be read.
func (n nodeProcesses) IsAlive(p journal.Process) bool {
	start, err := nri.Kernel{FS: n.fs}.StartTime(p.PID)
	if err == nil {
		// The kernel reuses PIDs. The start time distinguishes the process from a later one with its PID.
		return start == p.StartTime
	}
	there, err := n.fs.Exists(fmt.Sprintf("proc/%d", p.PID))
	return err != nil || there
}

// Kinds of orphans, as the metrics have them.
const (
	orphanClaim   = "claim"   // a record whose ResourceClaim is gone, or has another allocation
	orphanSpec    = "spec"    // a CDI spec without a record
	orphanBinding = "binding" // a function on VFIO without a record
)

// orphanGrace is how long a claim must be gone, or have another allocation, before it is an orphan. The kubelet unprepares
// a pod's claims after the pod, and retries for minutes.
const orphanGrace = 10 * time.Minute

// Orphans handles functions and files without a record; [node.Node] implements it.
type Orphans interface {
	SweepSpecs(ctx context.Context) ([]string, error)
	GiveBackOrphans(ctx context.Context) ([]maintain.Orphan, error)
}

// Processes knows which processes of the node still run.
type Processes interface {
	IsAlive(p journal.Process) bool
}

// ReleasedClaims unprepares claims; [dra.Plugin] implements it.
type ReleasedClaims interface {
	// Release unprepares a claim, unless the check returns an error. It calls the check with the claim's lock held.
	Release(ctx context.Context, ref plan.Ref, check func(context.Context, *journal.Record) error) error
}

// Repair compares the journal with the claims at the API server, the CDI specs and the kernel's bindings. It removes or gives back what is
// certainly an orphan. If something may still be in use, or its state is unknown, Repair only reports it. It is not safe for concurrent
// use.
//
// Usually Repair has nothing to do: the kubelet unprepares the claims of pods that end, even after its own restart, and Recover completes
// what a crash of the plugin interrupted. Repair handles the cases that neither of them sees: the kubelet lost its state, a claim was
// deleted by force, its allocation was withdrawn or is of other devices now, or a record was removed by hand.
type Repair struct {
	Client  kubernetes.Interface
	Node    string
	Records journal.Lister
	Orphans Orphans
	Claims  ReleasedClaims
	// Losses, which may be nil, is called for each claim that has lost its devices, and for each claim that has them again.
	Losses dra.Losses
	// Soon, which may be nil, makes Run look soon. It is signaled when a claim was refused a device because another claim has the device.
	Soon <-chan struct{}
	// NameTenants: the metrics name the namespaces and claims of lost devices.
	NameTenants bool
	Processes   Processes
	Reporter    *dra.Reporter
	Metrics     *metrics.Metrics
	Log         *slog.Logger
	// Now returns the time with a monotonic clock reading.
	Now func() time.Time

	// lost are the claims without their devices, by UID. A claim stays here while each look at which the API server answered found it
	// without its devices.
	lost map[string]loss
	// claimsLeft are the claims that the last look left alone, by UID. reported is the last report of each orphan, by
	// kind and name.
	claimsLeft map[string]orphan
	reported   map[string]string
}

// orphan is an orphan that is left alone, and why.
type orphan struct{ name, why string }

// loss is the reason why a claim no longer has its devices, and the time since when.
type loss struct {
	why   string
	since time.Time
}

// Look looks once, repairs and reports.
func (r *Repair) Look(ctx context.Context) {
	left := map[string]map[string]string{orphanClaim: r.claims(ctx), orphanSpec: r.specs(ctx), orphanBinding: r.bindings(ctx)}
	reported := map[string]string{}
	for kind, orphans := range left {
		r.Metrics.ObserveOrphans(kind, len(orphans))
		for _, name := range slices.Sorted(maps.Keys(orphans)) {
			id := kind + " " + name
			if reported[id] = orphans[name]; r.reported[id] != orphans[name] {
				r.report(ctx, kind, name, orphans[name])
			}
		}
	}
	r.reported = reported
}

// report reports an orphan that is left alone, once for each reason.
func (r *Repair) report(ctx context.Context, kind, name, why string) {
	r.Log.WarnContext(ctx, "orphan left alone", slog.String("kind", kind), slog.String("name", name), slog.String("why", why))
	r.Reporter.NodeEvent(r.Node, corev1.EventTypeWarning, rule.Orphan, "Repair", fmt.Sprintf("%s %s is left alone: %s", kind, name, why))
}

// repaired counts a repair.
func (r *Repair) repaired(ctx context.Context, kind, name, what string, err error) {
	r.Metrics.ObserveRepair(kind, err)
	if err == nil {
		r.Log.InfoContext(ctx, "orphan repaired", slog.String("kind", kind), slog.String("name", name), slog.String("what", what))
	}
}

// claims unprepares the claims that have certainly lost their devices, and returns those that may have lost them. For a claim about which
// the API server does not answer, it returns the result of the last look.
func (r *Repair) claims(ctx context.Context) map[string]string {
	records, _ := r.Records.List() // a metric counts unreadable records, and nothing can repair them
	if r.isOurCluster(ctx, records) {
		r.judge(ctx, records)
	}
	left := map[string]string{}
	for _, o := range r.claimsLeft {
		left[o.name] = o.why
	}
	return left
}

// judge looks at each claim, and repairs it if it lost its devices long enough ago.
func (r *Repair) judge(ctx context.Context, records []*journal.Record) {
	lost, left := map[string]loss{}, map[string]orphan{}
	var due []*journal.Record
	for _, rec := range records {
		// Only an operator ends a quarantine, and without a name the API server can't be asked for the claim.
		if rec.Kind != journal.Claim || rec.State == journal.Quarantined || rec.Plan.Claim.Name == "" {
			continue
		}
		id := rec.ID()
		now, known := r.lost[id]
		why, err := r.allocations().SeenLost(ctx, rec)
		// If the API server does not answer, nothing is known of the claim: its grace period continues, and it is not repaired.
		if err != nil && known {
			lost[id] = now
			if o, was := r.claimsLeft[id]; was {
				left[id] = o
			}
		}
		if err == nil {
			r.noteLoss(id, why)
		}
		if err != nil || why == "" {
			continue
		}
		if !known {
			now.since = r.Now()
		}
		now.why = why
		if lost[id] = now; r.Now().Sub(now.since) >= orphanGrace {
			due = append(due, rec)
		}
	}
	for id := range r.lost {
		if _, still := lost[id]; !still {
			r.noteLoss(id, "")
		}
	}
	r.lost, r.claimsLeft = lost, left
	r.observeLost(records)
	for _, rec := range due {
		if why := r.repair(ctx, rec, lost[rec.ID()].why); why != "" {
			left[rec.ID()] = orphan{rec.Plan.Claim.String(), why}
		}
	}
}

// observeLost shows the devices of lost claims, and for how long they have been lost, in the metrics.
func (r *Repair) observeLost(records []*journal.Record) {
	var all []metrics.LostDevice
	for _, rec := range records {
		l, ok := r.lost[rec.ID()]
		if !ok {
			continue
		}
		for _, parts := range rec.Plan.Allocated() {
			d := metrics.LostDevice{Device: parts[0].Published(), For: r.Now().Sub(l.since)}
			if r.NameTenants {
				d.Namespace, d.Claim = rec.Plan.Claim.Namespace, rec.Plan.Claim.Name
			}
			all = append(all, d)
		}
	}
	r.Metrics.ObserveLost(all)
}

func (r *Repair) allocations() *dra.Allocations {
	return &dra.Allocations{Client: r.Client, Node: r.Node}
}

// noteLoss passes a loss to Losses, if it is set.
func (r *Repair) noteLoss(uid, why string) {
	if r.Losses != nil {
		r.Losses.Note(uid, why)
	}
}

// repair unprepares a claim that has lost its devices. If it can't, it returns the reason.
func (r *Repair) repair(ctx context.Context, rec *journal.Record, why string) string {
	ref := rec.Plan.Claim
	switch s := rec.Sandbox; {
	case len(ref.Pods) == 0:
		return why + ", and it was prepared by hand: run `kata-vfio-plugin unprepare " + ref.UID + "` if it is not needed"
	// If the VM's process is unknown, nothing proves that the sandbox has ended.
	case s != nil && s.VMM.PID == 0:
		return why + ", and it is unknown whether sandbox " + s.ID + " still has it"
	case s != nil && r.Processes.IsAlive(s.VMM):
		return fmt.Sprintf("%s, and sandbox %s (pid %d) still has it", why, s.ID, s.VMM.PID)
	}
	// Release calls stillLost with the claim's lock held. It asks the API server again, because the claim may have got its devices again
	// since the look began.
	err := r.Claims.Release(ctx, ref, r.stillLost)
	if errors.Is(err, dra.ErrAllocatedAgain) {
		return ""
	}
	what := "devices taken back"
	if r.isQuarantined(ref.UID) {
		what = "taken from its tenant, and quarantined, since the reset of its devices is not proven"
	}
	r.repaired(ctx, orphanClaim, ref.String(), why+": "+what, err)
	if err != nil {
		return why + ", and it can't be taken back: " + err.Error()
	}
	return ""
}

// stillLost returns an error unless a claim has certainly lost its devices.
func (r *Repair) stillLost(ctx context.Context, rec *journal.Record) error {
	why, err := r.allocations().Lost(ctx, rec)
	if err == nil && why == "" {
		return dra.ErrAllocatedAgain
	}
	return err
}

// isQuarantined reports whether a claim's release ended in a quarantine, which is not an error.
func (r *Repair) isQuarantined(uid string) bool {
	records, _ := r.Records.List()
	return slices.ContainsFunc(records, func(rec *journal.Record) bool { return rec.ID() == uid && rec.State == journal.Quarantined })
}

// isOurCluster reports whether the API server knows this node. The API server of another cluster does not, and then its answers about
// claims mean nothing.
func (r *Repair) isOurCluster(ctx context.Context, records []*journal.Record) bool {
	if len(records) == 0 {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, dra.RequestLimit)
	defer cancel()
	_, err := r.Client.CoreV1().Nodes().Get(ctx, r.Node, metav1.GetOptions{ResourceVersion: dra.FromCache})
	return err == nil
}

// specs removes CDI specs without a record.
func (r *Repair) specs(ctx context.Context) map[string]string {
	removed, err := r.Orphans.SweepSpecs(ctx)
	for _, uid := range removed {
		r.repaired(ctx, orphanSpec, uid, "CDI spec without a record: removed", nil)
	}
	if err == nil || ctx.Err() != nil {
		return nil
	}
	r.repaired(ctx, orphanSpec, "", "", err)
	return map[string]string{"of the node": err.Error()}
}

// bindings gives orphaned functions back to their drivers.
func (r *Repair) bindings(ctx context.Context) map[string]string {
	orphans, err := r.Orphans.GiveBackOrphans(ctx)
	left := map[string]string{}
	for i := range orphans {
		s := &orphans[i]
		name := s.Address.String()
		switch {
		case s.Err != nil:
			r.repaired(ctx, orphanBinding, name, "", s.Err)
			left[name] = "it can't be given back now: " + s.Err.Error()
		case s.GivenBack == "":
			left[name] = s.Why
		default:
			r.repaired(ctx, orphanBinding, name, "on VFIO without a record: given back to "+s.GivenBack, nil)
		}
	}
	if err != nil && ctx.Err() == nil && !errors.Is(err, context.Canceled) {
		r.repaired(ctx, orphanBinding, "", "", err)
		left["of the node"] = err.Error()
	}
	return left
}
