package fleet

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/cluster"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

func (e *explaining) add(m Moment) { e.moments = append(e.moments, m) }

// claim explains a claim and its devices.
func (e *explaining) claim(c *cluster.Claim) {
	e.claimOnly(c)
	for _, a := range c.Ours() {
		if d := e.state.row(a.ID); d != nil {
			e.device(d)
		}
	}
}

func (e *explaining) claimOnly(listed *cluster.Claim) {
	of, c := "claim "+listed.Name(), listed.Object
	row := e.state.rowClaim(listed)
	e.add(Moment{At: c.CreationTimestamp.UTC(), Of: of, What: "created"})
	if c.Status.Allocation != nil {
		e.allocation(of, c.Status.Allocation, &row)
	} else if text := e.onOffer(); text != "" {
		e.add(Moment{Of: of, What: "waits for a device", Text: text})
	}
	for i := range row.Devices {
		for _, have := range row.Devices[i].Conditions {
			e.condition(of, row.Devices[i].Name, &have)
		}
	}
	e.events(of, "ResourceClaim", c.Namespace, c.Name, string(c.UID))
}

// patience is how long a node may take to report the devices of a claim before this counts as a trouble.
const patience = time.Minute

// allocation adds the allocation of a claim, and a moment for a node that does not report the devices.
func (e *explaining) allocation(of string, given *resourceapi.AllocationResult, row *Claim) {
	names := make([]string, len(row.Devices))
	for i := range row.Devices {
		names[i] = row.Devices[i].Name
	}
	got, since := Moment{Of: of, What: "has", Text: strings.Join(names, ", ") + " of node " + row.Node}, row.Created
	// The API server need not record this time (AllocationTimestamp in resource/v1).
	if t := given.AllocationTimestamp; t != nil {
		got.At, got.What, since = t.UTC(), "allocated", t.Time
	}
	e.add(got)
	switch {
	case row.State != Allocated:
	case e.state.Now.Sub(since) <= patience:
		e.add(Moment{Of: of, What: "waits for node " + row.Node, Text: "the node prepares the devices, which takes some seconds"})
	default:
		e.add(Moment{
			Of: of, What: "no word from node " + row.Node, Text: "it does not say that the devices are ready, nor why not", Trouble: true,
			Fix: "see whether the pod is on the node, and the plugin's pod runs there (`kubectl get pods -A -l app.kubernetes.io/name=kata-vfio -o wide`)",
		})
	}
}

// onOffer counts the unclaimed devices of each kind, both free ones and those that are kept from claims. It is empty if no devices
// are known.
func (e *explaining) onOffer() string {
	var free, tainted, kept []string
	for _, of := range gather(e.state.Devices(), func(d *Device) string { return d.Kind }) {
		free = append(free, fmt.Sprintf("%d %s", of.count(Free, Unseen), of.key))
		if n := of.count(Tainted, Quarantined, Sanitizing); n > 0 {
			tainted = append(tainted, fmt.Sprintf("%d %s", n, of.key))
		}
		if n := of.count(Kept); n > 0 {
			kept = append(kept, fmt.Sprintf("%d %s", n, of.key))
		}
	}
	if len(free) == 0 {
		return ""
	}
	text := "without taints, free or another namespace's: "
	if e.state.Namespace == "" && e.state.Missing[Claims] == "" {
		text = "free: "
	}
	text += strings.Join(free, ", ")
	if len(tainted) > 0 {
		text += "; kept from claims by taints: " + strings.Join(tainted, ", ")
	}
	if drained := e.state.drained(); len(drained) > 0 {
		text += "; taken out of use by an operator: " + strings.Join(drained, ", ")
	}
	if len(kept) > 0 {
		text += "; kept for one tenant, which has their exclusive domain: " + strings.Join(kept, ", ")
	}
	return text
}

// drained returns the targets of the drains by DeviceTaintRules, as the command lines named them, sorted.
func (s *State) drained() []string {
	var targets []string
	for i := range s.TaintRules {
		r := &s.TaintRules[i]
		if target := r.Annotations[AnnotationDrainOf]; target != "" && cluster.KeepsAway(&r.Spec.Taint) && !slices.Contains(targets, target) {
			targets = append(targets, target)
		}
	}
	slices.Sort(targets)
	return targets
}

// count returns how many of the devices have one of the uses.
func (f *family) count(uses ...Use) int {
	n := 0
	for i := range f.members {
		if slices.Contains(uses, f.members[i].Use) {
			n++
		}
	}
	return n
}

func (e *explaining) condition(of, device string, c *Condition) {
	m := Moment{At: c.Since, Of: of, What: "condition " + c.Type, Text: device + ": " + c.Reason}
	if c.Message != "" {
		m.Text += ": " + c.Message
	}
	if isBad(c) {
		m.What += "=" + string(c.Status)
		m = e.trouble(m, c.Reason)
	}
	e.add(m)
}

// isBad reports whether a condition shows a trouble. Usually a condition is bad if it is not true. The conditions for which the
// scheduler removes an allocation are bad if they are true.
func isBad(c *Condition) bool {
	if c.Type == v1alpha1.ConditionTwinInUse || c.Type == v1alpha1.ConditionDomainTaken {
		return c.Status == metav1.ConditionTrue
	}
	return c.Status != metav1.ConditionTrue
}

// pod explains a pod, which may be gone.
func (e *explaining) pod(namespace, name string) {
	of, uid := "pod "+namespace+"/"+name, ""
	if p := e.state.pod(namespace, []string{name}); p != nil {
		uid = string(p.UID)
		e.podVM(namespace, name, p.CreationTimestamp.Time)
		e.scheduled(of, p)
		e.unusedClaims(of, p)
		e.containers(of, p)
	}
	e.events(of, "Pod", namespace, name, uid)
}

// events adds the recorded events of an object. An event that another object has in the same words is added once. Events of a
// former object with the same name are left out.
func (e *explaining) events(of, kind, namespace, name, uid string) {
	for i := range e.state.Events {
		ev := &e.state.Events[i]
		about := &ev.InvolvedObject
		// Some writers of events omit the UID. For such events, only the name decides.
		if about.Kind != kind || about.Namespace != namespace || about.Name != name || uid != "" && about.UID != "" && string(about.UID) != uid {
			continue
		}
		// The plugin's notes end in a signed checkpoint, which is for programs only.
		text, _, _ := strings.Cut(ev.Message, "; ledger ")
		m := Moment{At: EventTime(ev), Of: of, What: "event " + ev.Reason, Text: text}
		if ev.Type == corev1.EventTypeWarning {
			m = e.trouble(m, ev.Reason)
		}
		if !slices.ContainsFunc(e.moments, func(o Moment) bool { return o.What == m.What && o.Text == m.Text }) {
			e.add(m)
		}
	}
}

// EventTime returns when an Event was seen last. Events of events.k8s.io, such as the plugin's and the scheduler's, have EventTime and
// Series, those of the older API FirstTimestamp and LastTimestamp.
func EventTime(ev *corev1.Event) time.Time {
	at := ev.FirstTimestamp.Time
	for _, t := range []time.Time{ev.EventTime.Time, ev.LastTimestamp.Time, ev.CreationTimestamp.Time} {
		if at.IsZero() || t.After(at) && !t.IsZero() {
			at = t
		}
	}
	if ev.Series != nil && ev.Series.LastObservedTime.After(at) {
		at = ev.Series.LastObservedTime.Time
	}
	return at.UTC()
}

func (e *explaining) device(d *Device) {
	of := "device " + d.Node + "/" + d.Name
	for _, t := range d.published.Taints {
		if !cluster.KeepsAway(&t) {
			continue
		}
		m := Moment{Of: of, What: "taint " + taintWord(t), Who: []rule.Role{rule.Platform}, Trouble: t.Key != v1alpha1.TaintSanitizing && t.Key != v1alpha1.TaintTenant}
		if t.TimeAdded != nil {
			m.At = t.TimeAdded.UTC()
		}
		m.Text, m.Fix = e.aboutTaint(t)
		e.add(m)
	}
	for _, r := range e.state.rulesOn(d.published) {
		e.add(e.aboutTaintRule(of, d, r))
	}
	for _, id := range d.Failed {
		m := Moment{Of: of, What: "check " + id, Text: "fails", Trouble: true, Who: []rule.Role{rule.Platform}}
		if found := e.known[id]; found != nil {
			m.Text, m.Fix = "fails; expected: "+found.Expected(), found.Fix
		}
		if !slices.ContainsFunc(e.moments, func(o Moment) bool { return o.Of == of && o.What == "taint audit="+id }) {
			e.add(m)
		}
	}
	if d.Use == Withheld && len(d.By) > 0 {
		e.add(Moment{Of: of, What: "withheld", Text: "it shares hardware with " + strings.Join(d.By, ", ") + ", which is claimed"})
	}
}

// finish sorts the moments, marks those that are past, and collects the fixes.
func (e *explaining) finish(subject, now string) *Explanation {
	slices.SortStableFunc(e.moments, func(a, b Moment) int {
		// Facts without a time describe the present, so they come last.
		if a.At.IsZero() || b.At.IsZero() {
			return boolRank(a.At.IsZero()) - boolRank(b.At.IsZero())
		}
		return a.At.Compare(b.At)
	})
	e.markPast()
	x := &Explanation{Subject: subject, Now: now, Moments: e.moments, Todo: []string{}}
	for i := range e.moments {
		if todo := e.moments[i].todo(!strings.HasPrefix(subject, "device ")); todo != "" && !slices.Contains(x.Todo, todo) {
			x.Todo = append(x.Todo, todo)
		}
	}
	if x.Moments == nil {
		x.Moments = []Moment{}
	}
	return x
}

// todo returns what to do about a present trouble; empty for other moments. For a tenant, it names the cluster's admin if a tenant
// can't do it. It is never empty for a trouble without a fix, because a reader would believe that there is nothing to do.
func (m *Moment) todo(forTenant bool) string {
	switch {
	case !m.Trouble || m.Past:
		return ""
	case m.Fix == "":
		return "read what `" + m.What + "` says above: kata-vfio has no advice for it. `kubectl describe` shows all of the object"
	case forTenant && len(m.Who) > 0 && !slices.Contains(m.Who, rule.Tenant):
		return "the cluster's admin: " + m.Fix
	}
	return m.Fix
}

// markPast marks the events of troubles that happened before their claim was prepared, because these troubles are over. The
// troubles of a pod are over once all its claims in the explanation are prepared.
func (e *explaining) markPast() {
	well := e.prepared()
	all := latestTime(well)
	for i := range e.moments {
		m := &e.moments[i]
		since, isClaim := well[m.Of]
		if !isClaim {
			since = all
		}
		m.Past = m.Trouble && strings.HasPrefix(m.What, "event ") && !m.At.IsZero() && m.At.Before(since)
	}
}

// prepared returns when each claim was prepared last; zero for one that was not.
func (e *explaining) prepared() map[string]time.Time {
	well := map[string]time.Time{}
	for _, m := range e.moments {
		if !strings.HasPrefix(m.Of, "claim ") {
			continue
		}
		// A claim that was never prepared has a zero time here, so that no trouble of its pod counts as past.
		at := well[m.Of]
		if (m.What == "condition Ready" || m.What == "event Prepared") && m.At.After(at) {
			at = m.At
		}
		well[m.Of] = at
	}
	return well
}

// latestTime returns the latest of some times; zero if one of them is.
func latestTime(times map[string]time.Time) (last time.Time) {
	for _, at := range times {
		if at.IsZero() {
			return at
		}
		if at.After(last) {
			last = at
		}
	}
	return last
}

func boolRank(b bool) int {
	if b {
		return 1
	}
	return 0
}
