// Package dra faces the kubelet and the API server: it translates claims for package prepare, publishes ResourceSlices, and
// reports the health of devices and the state of claims. It makes no decisions about devices.
package dra

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/claim"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/metrics"
	"github.com/kata-vfio/kata-vfio/pkg/prepare"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// Claims prepares and unprepares claims; [prepare.Preparer] implements it.
type Claims interface {
	Prepare(ctx context.Context, req *claim.Request) (*journal.Record, error)
	// UnprepareIf unprepares a claim, unless the check, which may be nil, returns an error. It returns that error.
	UnprepareIf(ctx context.Context, uid string, check func(context.Context, *journal.Record) error) (prepare.Release, error)
	// Refused writes to the ledger that the gate refuses a claim.
	Refused(ctx context.Context, req *claim.Request, cause error) error
}

// Losses records, by claim UID, why the devices that are prepared for a claim are not allocated to it at the API server, so that no sandbox
// and no new claim gets them. The reason is empty if the devices are allocated to the claim, or if none are prepared.
type Losses interface {
	Note(uid, why string)
}

// Waker wakes the publisher of devices and the loop that keeps devices warm, because devices may have changed. Wake must not block.
type Waker interface {
	Wake()
}

// Attributes returns the attributes of a device for a container, under their names in ResourceSlices; nil if the device is
// unknown.
type Attributes func(name string) map[resourceapi.QualifiedName]resourceapi.DeviceAttribute

// Admission decides whether a claim's pod may have its devices; [Gate] implements it.
type Admission interface {
	Admit(ctx context.Context, req *claim.Request) error
}

// Exclusion keeps a GPU from VMs while a container has it by another DRA driver; [Twins] implements it.
type Exclusion interface {
	Reserved(ctx context.Context, c *resourceapi.ResourceClaim, req *claim.Request) error
	Free(ctx context.Context, req *claim.Request) error
}

// PluginConfig holds what a Plugin works with. Fields are required, unless they say otherwise.
type PluginConfig struct {
	Client kubernetes.Interface
	Claims Claims
	Gate   Admission
	// Tenants looks up the tenants of claims; nil if the node has no exclusive domains.
	Tenants *Tenants
	// Twins, which may be nil, looks after shared devices.
	Twins Exclusion
	// Publisher provides the devices' attributes, and writes a slice again that could not be written. It is nil for a plugin that prepares
	// no claims.
	Publisher *Publisher
	Health    *Health
	Reporter  *Reporter
	Metrics   *metrics.Metrics
	Log       *slog.Logger
	// Losses, which may be nil, is told that a claim's devices are allocated to it, after each successful Prepare, and that the claim has no
	// devices any more, after each successful Unprepare.
	Losses Losses
	// Attempts, which may be nil, notes the result of each Prepare.
	Attempts *Attempts
	// Changes is woken after each call of the kubelet, because claims change the published devices.
	Changes Waker
	// Fatal ends the plugin with a cause. It must not block.
	Fatal func(error)
}

// Plugin implements [kubeletplugin.DRAPlugin].
type Plugin struct {
	config PluginConfig
	// running is read-locked by each call that changes the node.
	running sync.RWMutex
}

var _ kubeletplugin.DRAPlugin = (*Plugin)(nil)

// NewPlugin returns the plugin.
func NewPlugin(c PluginConfig) *Plugin { return &Plugin{config: c} }

// answerTime is the part of the kubelet's deadline that is reserved for the answer: an error that names a holder helps more
// than "deadline exceeded".
const answerTime = 2 * time.Second

// inTime returns ctx with an earlier deadline, so that the kubelet gets the answer in time.
func inTime(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return context.WithDeadlineCause(ctx, deadline.Add(-answerTime), errDeadline)
}

var errDeadline = errors.New("the time that the kubelet gives for one call is over")

// Wait returns when the calls in progress have ended. Call it after the sockets were closed: the calls are then canceled and
// undo what they began.
func (d *Plugin) Wait() {
	d.running.Lock()
	defer d.running.Unlock()
}

// PrepareResourceClaims prepares the claims of one pod in parallel. Each claim has its own error, so that the kubelet's Event
// names the claim.
func (d *Plugin) PrepareResourceClaims(ctx context.Context, claims []*resourceapi.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	// Wait takes the write lock, so it returns once no call runs.
	d.running.RLock()
	defer d.running.RUnlock()
	ctx, cancel := inTime(ctx)
	defer cancel()
	results := make([]kubeletplugin.PrepareResult, len(claims))
	var wg sync.WaitGroup
	for i, c := range claims {
		wg.Go(func() {
			begun := time.Now()
			rec, err := d.prepare(ctx, c)
			results[i] = d.answer(ctx, c, time.Since(begun), rec, err, nil)
		})
	}
	wg.Wait()
	d.config.Changes.Wake()
	byUID := make(map[types.UID]kubeletplugin.PrepareResult, len(claims))
	for i, c := range claims {
		byUID[c.UID] = results[i]
	}
	return byUID, nil
}

// prepare prepares the claim of a pod that may have it.
func (d *Plugin) prepare(ctx context.Context, c *resourceapi.ResourceClaim) (*journal.Record, error) {
	req, err := claim.Decode(c, v1alpha1.DriverName)
	if err != nil {
		return nil, err
	}
	if err := d.admit(ctx, c, req); err != nil {
		return nil, d.refused(ctx, req, err)
	}
	rec, err := d.config.Claims.Prepare(ctx, req)
	// A claim of the other driver may have been allocated the GPU while the devices were bound.
	if err == nil && d.config.Twins != nil {
		if err := d.config.Twins.Free(ctx, req); err != nil {
			return nil, d.refused(ctx, req, errors.Join(err, d.takeBack(ctx, req)))
		}
	}
	switch {
	case d.config.Attempts == nil:
	case err != nil:
		d.config.Attempts.Failed(err)
	default:
		d.config.Attempts.Succeeded(rec.Plan.Addresses())
	}
	return rec, err
}

// answer returns the kubelet's answer for one claim, and logs and reports the result once. holders are the pods for which the claim is
// already prepared.
func (d *Plugin) answer(
	ctx context.Context, c *resourceapi.ResourceClaim, took time.Duration, rec *journal.Record, err error, holders []claim.Pod,
) kubeletplugin.PrepareResult {
	log := d.config.Log.With(slog.String("claim", c.Namespace+"/"+c.Name), slog.String("uid", string(c.UID)))
	d.config.Metrics.ObservePrepare(string(c.UID), took, string(rule.Classify(err)))
	if err != nil {
		log.ErrorContext(ctx, "claim not prepared", slog.Any("err", err))
		d.config.Reporter.Refused(c, err, holders)
		return kubeletplugin.PrepareResult{Err: err}
	}
	d.config.Metrics.ObserveStart(rec.Plan.IsWarm())
	d.forgetLoss(c.UID)
	log.InfoContext(ctx, "claim prepared", slog.Any("pci", rec.Plan.Addresses()))
	d.config.Reporter.Prepared(ctx, c, rec, d.config.Publisher.Attributes)
	result := kubeletplugin.PrepareResult{}
	for _, parts := range rec.Plan.Allocated() {
		result.Devices = append(result.Devices, d.device(&rec.Plan, parts))
	}
	return result
}

// forgetLoss forgets why a claim lost its devices.
func (d *Plugin) forgetLoss(uid types.UID) {
	if d.config.Losses != nil {
		d.config.Losses.Note(string(uid), "")
	}
}

// Reserve prepares a claim again for the pod that has it reserved now. The kubelet does not do so when a pod replaces one that
// was deleted by force, with the same claim. Reserve fails if another claim has the name.
func (d *Plugin) Reserve(ctx context.Context, ref plan.Ref) error {
	d.running.RLock()
	defer d.running.RUnlock()
	c, err := d.readClaim(ctx, ref)
	if err != nil {
		return fmt.Errorf("look at claim %s: %w", ref, err)
	}
	// A later claim may have the same name. Only the UID shows whether this is the claim that was prepared.
	if string(c.UID) != ref.UID {
		return fmt.Errorf("claim %s was replaced by one of its name (%s)", ref, c.UID)
	}
	begun := time.Now()
	rec, err := d.prepare(ctx, c)
	return d.answer(ctx, c, time.Since(begun), rec, err, ref.Pods).Err
}

// readClaim returns the claim that has the name now.
func (d *Plugin) readClaim(ctx context.Context, ref plan.Ref) (*resourceapi.ResourceClaim, error) {
	ctx, cancel := context.WithTimeout(ctx, RequestLimit)
	defer cancel()
	return d.config.Client.ResourceV1().ResourceClaims(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
}

// UnprepareResourceClaims unprepares claims in parallel. A claim whose device is quarantined counts as unprepared: its pod can
// end, and the device is tainted.
func (d *Plugin) UnprepareResourceClaims(ctx context.Context, claims []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	d.running.RLock()
	defer d.running.RUnlock()
	ctx, cancel := inTime(ctx)
	defer cancel()
	errs := make([]error, len(claims))
	var wg sync.WaitGroup
	for i, c := range claims {
		wg.Go(func() { errs[i] = d.unprepare(ctx, c, nil) })
	}
	wg.Wait()
	d.config.Changes.Wake()
	byUID := make(map[types.UID]error, len(claims))
	for i, c := range claims {
		byUID[c.UID] = errs[i]
	}
	return byUID, nil
}

// unprepare unprepares one claim if the check, which may be nil, allows it. It logs the result once.
func (d *Plugin) unprepare(ctx context.Context, c kubeletplugin.NamespacedObject, check func(context.Context, *journal.Record) error) error {
	log := d.config.Log.With(slog.String("claim", c.String()), slog.String("uid", string(c.UID)))
	begin := time.Now()
	release, err := d.config.Claims.UnprepareIf(ctx, string(c.UID), check)
	if errors.Is(err, ErrAllocatedAgain) {
		return err
	}
	d.config.Metrics.ObserveUnprepare(string(c.UID), time.Since(begin), err)
	var quarantined *prepare.QuarantinedError
	switch {
	case errors.As(err, &quarantined):
		log.ErrorContext(ctx, "device quarantined", slog.Any("err", err))
		d.config.Reporter.Quarantined(c, quarantined)
		d.forgetLoss(c.UID)
		return nil
	case err != nil:
		log.ErrorContext(ctx, "claim not unprepared", slog.Any("err", err))
		d.config.Reporter.NotUnprepared(c, err)
		return err
	}
	d.forgetLoss(c.UID)
	if !release.Known {
		log.InfoContext(ctx, "claim was not prepared here")
		return nil
	}
	log.InfoContext(ctx, "claim unprepared", slog.Int("resets", len(release.Proofs)))
	d.config.Reporter.Unprepared(c, len(release.Proofs))
	return nil
}

// Release unprepares a claim that the kubelet has forgotten, unless the check, with the claim's lock held, returns an error.
func (d *Plugin) Release(ctx context.Context, ref plan.Ref, check func(context.Context, *journal.Record) error) error {
	d.running.RLock()
	defer d.running.RUnlock()
	defer d.config.Changes.Wake()
	return d.unprepare(ctx, kubeletplugin.NamespacedObject{
		NamespacedName: types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}, UID: types.UID(ref.UID),
	}, check)
}

// HandleError handles errors of the helper's background work. The helper itself retries the publishing of slices. If a gRPC server failed,
// the plugin ends.
func (d *Plugin) HandleError(ctx context.Context, err error, msg string) {
	d.config.Log.ErrorContext(ctx, "background error", slog.String("what", msg), slog.Any("err", err))
	// An API server whose feature gates are off drops fields such as counters and taints. Devices must not be offered without these fields.
	if dropped := droppedFields(err); dropped != nil {
		d.config.Health.Withdraw(dropped)
		d.config.Changes.Wake()
		return
	}
	if !errors.Is(err, kubeletplugin.ErrRecoverable) {
		d.config.Fatal(err)
		return
	}
	d.config.Metrics.CountUnpublished()
	if d.config.Publisher != nil && transient(err) {
		d.config.Publisher.Retry()
	}
}

// WatchHealthStatus streams the health of all published devices.
func (d *Plugin) WatchHealthStatus(ctx context.Context, reports chan<- kubeletplugin.DeviceHealthReport) error {
	return d.config.Health.Stream(ctx, reports)
}
