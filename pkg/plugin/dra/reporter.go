package dra

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	resourceac "k8s.io/client-go/applyconfigurations/resource/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/claim"
	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/kube"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/prepare"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// fieldManager owns our entries of a claim's status.devices (server-side apply).
const fieldManager = "kata-vfio.dev"

// Recorder records Events; [EventRecorder] and [Outbox] implement it. It must not block.
type Recorder interface {
	Event(regarding, related *corev1.ObjectReference, eventType string, reason rule.Code, action, note string)
}

// Ledger is the node's ledger; [writer.Writer] implements it.
type Ledger interface {
	// Checkpoint returns the latest signed checkpoint.
	Checkpoint() string
}

// ReporterConfig holds what a Reporter works with. The first three fields are required.
type ReporterConfig struct {
	Client   kubernetes.Interface
	Recorder Recorder
	Log      *slog.Logger
	// Final records how a claim ended. That can't be reported again later. If Final is nil, Recorder is used.
	Final Recorder
	// Ledger, which may be nil, provides the latest signed checkpoint, which reports include.
	Ledger Ledger
	// Uplink returns the interface of a PF, from which the links of its VFs are reported.
	Uplink Uplink
}

// Reporter reports the state of claims to the cluster, by the conditions in status.devices and by Events on the claim and its pod. It never
// blocks its caller, and its errors never fail a claim. If the API server does not accept a report, Reporter retries for a while, and then
// logs it. After that [StatusSync] restores the status of prepared claims.
type Reporter struct {
	config ReporterConfig

	queue workqueue.TypedRateLimitingInterface[types.UID]
	// ration bounds the Events for refusals in one namespace.
	ration *prepare.Ration

	mu     sync.Mutex // guards latest
	latest map[types.UID]*report
}

// tries bounds the attempts to write a status; with the queue's back-off they take about ten minutes.
const tries = 17

// NewReporter returns a reporter, which works while [Reporter.Run] runs.
func NewReporter(c ReporterConfig) *Reporter {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[types.UID](100*time.Millisecond, time.Minute)
	return &Reporter{
		config: c,
		queue:  workqueue.NewTypedRateLimitingQueue[types.UID](varied{limiter}),
		ration: &prepare.Ration{Burst: 50, Pause: 6 * time.Second},
		latest: map[types.UID]*report{},
	}
}

// varied lengthens the delays of a rate limiter by up to a half at random, because all nodes lose the API server at the same time.
type varied struct {
	workqueue.TypedRateLimiter[types.UID]
}

// When implements [workqueue.TypedRateLimiter].
func (v varied) When(uid types.UID) time.Duration {
	return wait.Jitter(v.TypedRateLimiter.When(uid), 0.5)
}

// Prepared reports a claim whose devices are ready, and warns of VFs without a link. It reads the interfaces of their PFs.
func (r *Reporter) Prepared(ctx context.Context, c *resourceapi.ResourceClaim, rec *journal.Record, attributes Attributes) {
	anchor, links := r.anchor(), r.config.Uplink.once().links(ctx, rec)
	r.enqueue(preparedReport(c, rec, attributes, links, anchor))
	r.report(claimRef(c.Namespace, c.Name, c.UID), c.Namespace, reservedPods(c), corev1.EventTypeNormal, rule.Prepared, "Prepare", withAnchor(assigned(rec)+" bound for the pod's VM", anchor))
	r.warnOfLinks(ctx, c, rec, links)
}

// warnOfLinks reports each VF without a link. Its pod starts anyway.
func (r *Reporter) warnOfLinks(ctx context.Context, c *resourceapi.ResourceClaim, rec *journal.Record, links map[pci.Address]vfLink) {
	for i := range rec.Plan.Functions {
		a := rec.Plan.Functions[i].Address
		link, has := links[a]
		if !has || !link.isLost() {
			continue
		}
		r.config.Log.WarnContext(ctx, "a prepared VF has no link", slog.String("claim", c.Namespace+"/"+c.Name), slog.String("uid", string(c.UID)),
			slog.Any("pci", a), slog.String("why", link.message))
		r.report(claimRef(c.Namespace, c.Name, c.UID), c.Namespace, reservedPods(c), corev1.EventTypeWarning, link.reason, "Prepare", fmt.Sprintf("vf %s: %s", a, link.message))
	}
}

// Unprepared reports a claim that was unprepared. The claim may be gone; its Event stays for some time.
func (r *Reporter) Unprepared(c kubeletplugin.NamespacedObject, resets int) {
	note := withAnchor(takenBack(resets), r.anchor())
	r.reportBy(r.final(), claimRef(c.Namespace, c.Name, c.UID), c.Namespace, nil, corev1.EventTypeNormal, rule.Unprepared, "Unprepare", note)
}

// takenBack returns the note of an Unprepare.
func takenBack(resets int) string {
	if resets == 0 {
		return "devices taken back without a reset"
	}
	return fmt.Sprintf("devices taken back after %s: %s", output.Count(resets, "reset"), isolation.Proven)
}

func (r *Reporter) anchor() string {
	if r.config.Ledger == nil {
		return ""
	}
	return r.config.Ledger.Checkpoint()
}

// withAnchor adds a signed checkpoint to an Event's note, and shortens the note so that the whole checkpoint fits.
func withAnchor(note, signed string) string {
	if signed == "" {
		return note
	}
	anchor := "; ledger " + ledger.OneLine(signed)
	return shorten(note, longestNote-len(anchor)) + anchor
}

// shorten shortens a text to a number of bytes, at the end of a character.
func shorten(text string, limit int) string {
	const more = "..."
	if len(text) <= limit {
		return text
	}
	end := max(limit-len(more), 0)
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + more
}

// Refused reports a claim that was not prepared, and why. If the claim is already prepared for holders, its status keeps their device, and
// they get no Event. If the claims of a namespace are refused in a loop, only some refusals get an Event; the next Event says how many got
// none.
func (r *Reporter) Refused(c *resourceapi.ResourceClaim, cause error, holders []claim.Pod) {
	rep := refusedReport(c, cause)
	pods := reservedPods(c)
	if len(holders) == 0 {
		r.enqueue(rep)
	} else {
		pods = slices.DeleteFunc(pods, func(p claim.Pod) bool { return slices.Contains(holders, p) })
	}
	granted, leftOut := r.ration.Take(c.Namespace)
	if !granted {
		return
	}
	note := rep.problem
	if leftOut > 0 {
		note = fmt.Sprintf("(%s of this namespace before it without an event: there were too many at once) %s", output.Count(leftOut, "refusal"), note)
	}
	r.report(claimRef(c.Namespace, c.Name, c.UID), c.Namespace, pods, corev1.EventTypeWarning, rep.reason, "Prepare", note)
}

// Quarantined reports a claim whose devices could not be proven clean. The claim may be gone; its Event stays.
func (r *Reporter) Quarantined(c kubeletplugin.NamespacedObject, err *prepare.QuarantinedError) {
	r.reportBy(r.final(), claimRef(c.Namespace, c.Name, c.UID), c.Namespace, err.Record.Plan.Claim.Pods, corev1.EventTypeWarning, rule.Quarantined, "Unprepare", err.Error())
}

// NotUnprepared reports a claim that could not be unprepared.
func (r *Reporter) NotUnprepared(c kubeletplugin.NamespacedObject, err error) {
	r.report(claimRef(c.Namespace, c.Name, c.UID), c.Namespace, nil, corev1.EventTypeWarning, rule.Classify(err), "Unprepare", err.Error())
}

// PodRefused reports a refused sandbox or container of a pod.
func (r *Reporter) PodRefused(namespace string, pod claim.Pod, reason rule.Code, note string) {
	r.record(podRef(namespace, pod), nil, corev1.EventTypeWarning, reason, "Verify", note)
}

// report records an Event on the claim and on each of its pods.
func (r *Reporter) report(c *corev1.ObjectReference, namespace string, pods []claim.Pod, eventType string, reason rule.Code, action, note string) {
	r.reportBy(r.config.Recorder, c, namespace, pods, eventType, reason, action, note)
}

// reportBy is report with another recorder.
func (r *Reporter) reportBy(by Recorder, c *corev1.ObjectReference, namespace string, pods []claim.Pod, eventType string, reason rule.Code, action, note string) {
	note = shorten(note, longestNote)
	if len(pods) == 0 {
		by.Event(c, nil, eventType, reason, action, note)
	}
	for i, p := range pods {
		pod := podRef(namespace, p)
		if i == 0 {
			by.Event(c, pod, eventType, reason, action, note)
		}
		by.Event(pod, c, eventType, reason, action, note)
	}
}

func (r *Reporter) final() Recorder {
	if r.config.Final == nil {
		return r.config.Recorder
	}
	return r.config.Final
}

// longestNote is the limit for an Event's note (events.k8s.io/v1).
const longestNote = 1024

func (r *Reporter) record(regarding, related *corev1.ObjectReference, eventType string, reason rule.Code, action, note string) {
	r.config.Recorder.Event(regarding, related, eventType, reason, action, shorten(note, longestNote))
}

func claimRef(namespace, name string, uid types.UID) *corev1.ObjectReference {
	return &corev1.ObjectReference{
		APIVersion: resourceapi.SchemeGroupVersion.String(), Kind: "ResourceClaim", Namespace: namespace, Name: name, UID: uid,
	}
}

func podRef(namespace string, p claim.Pod) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: namespace, Name: p.Name, UID: types.UID(p.UID)}
}

func (r *Reporter) enqueue(rep *report) {
	if len(rep.devices) == 0 {
		return
	}
	r.mu.Lock()
	// Only the latest report is kept: an older status must not follow a newer one.
	r.latest[rep.claim.UID] = rep
	r.mu.Unlock()
	r.queue.Add(rep.claim.UID)
}

// Run writes statuses until ctx ends.
func (r *Reporter) Run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, r.queue.ShutDown)
	defer stop()
	for {
		uid, shutdown := r.queue.Get()
		if shutdown {
			return nil
		}
		r.handle(ctx, uid)
		r.queue.Done(uid)
	}
}

// handle writes the latest report of one claim.
func (r *Reporter) handle(ctx context.Context, uid types.UID) {
	r.mu.Lock()
	rep := r.latest[uid]
	r.mu.Unlock()
	if rep == nil {
		return
	}
	err := r.write(ctx, rep)
	if err != nil && transient(err) && ctx.Err() == nil && r.queue.NumRequeues(uid) < tries {
		r.queue.AddRateLimited(uid)
		return
	}
	r.queue.Forget(uid)
	r.mu.Lock()
	// A newer report may have been queued during the write. The queue has its claim again, so the report must stay.
	if r.latest[uid] == rep {
		delete(r.latest, uid)
	}
	r.mu.Unlock()
	if err != nil && !apierrors.IsNotFound(err) && ctx.Err() == nil {
		r.config.Log.WarnContext(ctx, "claim status not written", slog.String("claim", rep.claim.Namespace+"/"+rep.claim.Name),
			slog.String("uid", string(uid)), slog.Any("err", err))
	}
}

// write applies our entries of status.devices, with the claim's UID, so that it never changes a new claim with the same name.
func (r *Reporter) write(ctx context.Context, rep *report) error {
	ctx, cancel := context.WithTimeout(ctx, RequestLimit)
	defer cancel()
	ac := resourceac.ResourceClaim(rep.claim.Name, rep.claim.Namespace).WithUID(rep.claim.UID).
		WithStatus(resourceac.ResourceClaimStatus().WithDevices(rep.devices...))
	claims := r.config.Client.ResourceV1().ResourceClaims(rep.claim.Namespace)
	err := kube.WriteClaimStatus(ctx, claims, fieldManager, ac, func(ctx context.Context) (*resourceapi.ResourceClaim, error) {
		return claims.Get(ctx, rep.claim.Name, metav1.GetOptions{})
	})
	if apierrors.IsConflict(err) {
		return errors.Join(errors.New("the claim was replaced by another of its name"), err)
	}
	return err
}

// NodeEvent records an Event on the node. It refers to the node as the kubelet's Events do.
func (r *Reporter) NodeEvent(node, eventType string, reason rule.Code, action, note string) {
	r.record(&corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: node, UID: types.UID(node)}, nil, eventType, reason, action, note)
}

// Lost reports a prepared claim that lost its devices to a quarantine, in its status and by Events on the claim and its pods.
func (r *Reporter) Lost(q *prepare.QuarantinedError) {
	c := q.Record.Plan.Claim
	rep := &report{reason: rule.Classify(q), problem: q.Error(), claim: &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: c.Name, UID: types.UID(c.UID)},
	}}
	now := metav1.Now()
	for _, parts := range q.Record.Plan.Allocated() {
		rep.devices = append(rep.devices, resourceac.AllocatedDeviceStatus().
			WithDriver(v1alpha1.DriverName).WithPool(parts[0].Pool).WithDevice(parts[0].Published()).WithConditions(
			condition(ConditionReady, metav1.ConditionFalse, rep.reason, rep.problem, now),
			condition(conditionReset, metav1.ConditionFalse, rep.reason, rep.problem, now),
		))
	}
	r.enqueue(rep)
	r.report(claimRef(c.Namespace, c.Name, types.UID(c.UID)), c.Namespace, c.Pods, corev1.EventTypeWarning, rep.reason, "HandOver", rep.problem)
}
