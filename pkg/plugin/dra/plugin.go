// Package dra is the kubelet's and the API server's view of the plugin: it
// translates claims to package prepare and back, publishes ResourceSlices,
// streams health, and serves metrics and probes. It decides nothing about
// devices.
package dra

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	metadatav1beta1 "k8s.io/dynamic-resource-allocation/api/metadata/v1beta1"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/cdi"
	"github.com/kata-vfio/kata-vfio/pkg/claim"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/metrics"
	"github.com/kata-vfio/kata-vfio/pkg/prepare"
)

// Claims prepares and unprepares; [prepare.Preparer] is the real one.
type Claims interface {
	Prepare(ctx context.Context, req *claim.Request) (*journal.Record, error)
	// UnprepareIf takes a claim back unless the check, which may be nil, returns an error,
	// which it returns.
	UnprepareIf(ctx context.Context, uid string, check func(context.Context, *journal.Record) error) (prepare.Release, error)
}

// Attributes returns what a container is told of a device, under the names of
// ResourceSlices; nil when the device is unknown.
type Attributes func(name string) map[resourceapi.QualifiedName]resourceapi.DeviceAttribute

// Admission decides whether a claim's pod may have its devices; [Gate] is the
// real one.
type Admission interface {
	Admit(ctx context.Context, req *claim.Request) error
}

// PluginConfig holds what a Plugin works with. All fields but Refused and Confirmed are required;
// none of the functions may block, Refused but briefly.
type PluginConfig struct {
	Client     kubernetes.Interface
	Claims     Claims
	Gate       Admission
	Attributes Attributes
	Health     *Health
	Reporter   *Reporter
	Metrics    *metrics.Metrics
	Log        *slog.Logger
	// Refused writes the gate's refusal of a claim to the ledger; nil for nobody.
	Refused func(ctx context.Context, req *claim.Request, code string, cause error) error
	// Confirmed is told of a claim, by its UID, whose allocation is of what is prepared; nil for
	// nobody.
	Confirmed func(uid string)
	// Attempts is told how each Prepare ended; nil for nobody.
	Attempts *Attempts
	// Asked is told of claims that are not prepared; nil for nobody.
	Asked *Asked
	// Changed is told after each call, since claims change what is published.
	Changed func()
	// Fatal ends the plugin with a cause.
	Fatal func(error)
}

// Plugin implements [kubeletplugin.DRAPlugin].
type Plugin struct {
	PluginConfig
	// running is held for reading by each call that changes the node.
	running sync.RWMutex
}

var _ kubeletplugin.DRAPlugin = (*Plugin)(nil)

// NewPlugin returns the plugin.
func NewPlugin(c PluginConfig) *Plugin { return &Plugin{PluginConfig: c} }

// answerTime is what is left of the kubelet's deadline for our answer to get
// there: an error that names a holder helps, "deadline exceeded" does not.
const answerTime = 2 * time.Second

// inTime returns ctx with its deadline moved up so that the answer comes first.
func inTime(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return context.WithDeadlineCause(ctx, deadline.Add(-answerTime), errDeadline)
}

var errDeadline = errors.New("the time that the kubelet gives for one call is over")

// Wait returns when the calls that are under way have ended. Call it after
// the kubelet was cut off: their contexts are over, and what they had begun is
// being taken back.
func (d *Plugin) Wait() {
	d.running.Lock()
	defer d.running.Unlock()
}

// PrepareResourceClaims prepares the claims of one pod side by side. Each
// claim's error goes into its own result, so that the kubelet's event names
// the claim.
func (d *Plugin) PrepareResourceClaims(ctx context.Context, claims []*resourceapi.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	d.running.RLock()
	defer d.running.RUnlock()
	ctx, cancel := inTime(ctx)
	defer cancel()
	results := make([]kubeletplugin.PrepareResult, len(claims))
	var wg sync.WaitGroup
	for i, c := range claims {
		wg.Go(func() { results[i] = d.prepare(ctx, c, nil) })
	}
	wg.Wait()
	d.Changed()
	byUID := make(map[types.UID]kubeletplugin.PrepareResult, len(claims))
	for i, c := range claims {
		byUID[c.UID] = results[i]
	}
	return byUID, nil
}

// prepare prepares one claim, and logs and reports the outcome once. The holders
// are the pods that it is prepared for already.
func (d *Plugin) prepare(ctx context.Context, c *resourceapi.ResourceClaim, holders []claim.Pod) kubeletplugin.PrepareResult {
	log := d.Log.With(slog.String("claim", c.Namespace+"/"+c.Name), slog.String("uid", string(c.UID)))
	begin := time.Now()
	rec, err := d.admitAndPrepare(ctx, c)
	d.Metrics.ObservePrepare(string(c.UID), time.Since(begin), refusalOf(err))
	if err != nil {
		if d.Asked != nil {
			d.Asked.Note(c)
		}
		log.ErrorContext(ctx, "claim not prepared", slog.Any("err", err))
		d.Reporter.Refused(c, err, holders)
		return kubeletplugin.PrepareResult{Err: err}
	}
	d.forget(c.UID)
	if d.Confirmed != nil {
		d.Confirmed(string(c.UID))
	}
	log.InfoContext(ctx, "claim prepared", slog.Any("pci", rec.Plan.Addresses()))
	d.Reporter.Prepared(ctx, c, rec, d.Attributes)
	result := kubeletplugin.PrepareResult{}
	for _, parts := range rec.Plan.Allocated() {
		result.Devices = append(result.Devices, d.device(&rec.Plan, parts))
	}
	return result
}

// Reserve prepares a claim again for the pod that it is reserved for now, as the
// kubelet's own call would: it does not call when a pod that was deleted by force
// is followed by another on the same claim. It is an error when the claim is
// not the one with the UID any more.
func (d *Plugin) Reserve(ctx context.Context, ref plan.Ref) error {
	d.running.RLock()
	defer d.running.RUnlock()
	c, err := d.Client.ResourceV1().ResourceClaims(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("look at claim %s: %w", ref, err)
	}
	if string(c.UID) != ref.UID {
		return fmt.Errorf("claim %s was replaced by one of its name (%s)", ref, c.UID)
	}
	return d.prepare(ctx, c, ref.Pods).Err
}

// admitAndPrepare prepares the claim of a pod that may have it.
func (d *Plugin) admitAndPrepare(ctx context.Context, c *resourceapi.ResourceClaim) (*journal.Record, error) {
	req, err := claim.Decode(c, v1alpha1.DriverName)
	if err != nil {
		return nil, err
	}
	if err := d.Gate.Admit(ctx, req); err != nil {
		if _, decided := errors.AsType[*GateError](err); decided && d.Refused != nil {
			err = errors.Join(err, d.Refused(ctx, req, reasonOf(err), err))
		}
		return nil, err
	}
	rec, err := d.Claims.Prepare(ctx, req)
	switch {
	case d.Attempts == nil:
	case err != nil:
		d.Attempts.Failed(err)
	default:
		d.Attempts.Succeeded(rec.Plan.Addresses())
	}
	return rec, err
}

// device is a prepared device as the kubelet hears of it, from its parts: one
// function, or the two of a pair.
func (d *Plugin) device(p *plan.Plan, parts []plan.Device) kubeletplugin.Device {
	first := &parts[0]
	out := kubeletplugin.Device{Requests: []string{first.Request}, PoolName: first.Pool, DeviceName: first.Published()}
	if attrs := d.Attributes(first.Published()); attrs != nil {
		out.Metadata = &kubeletplugin.DeviceMetadata{Attributes: metadata(attrs)}
	}
	for i := range parts {
		out.CDIDeviceIDs = append(out.CDIDeviceIDs, cdi.QualifiedName(p.Claim.UID, parts[i].Name))
		addNetwork(&out, p, &parts[i])
	}
	return out
}

// addNetwork adds what the guest is to know of a VF's network.
func addNetwork(out *kubeletplugin.Device, p *plan.Plan, dev *plan.Device) {
	network, told := networkData(p, dev), guestMetadata(p, dev)
	if network == nil && len(told) == 0 {
		return
	}
	if out.Metadata == nil {
		out.Metadata = &kubeletplugin.DeviceMetadata{}
	}
	out.Metadata.NetworkData = network
	if out.Metadata.Attributes == nil && len(told) > 0 {
		out.Metadata.Attributes = map[string]resourceapi.DeviceAttribute{}
	}
	for name, text := range told {
		out.Metadata.Attributes[name] = resourceapi.DeviceAttribute{StringValue: &text}
	}
}

// metadata converts attribute names to the metadata file's plain strings.
func metadata(attrs map[resourceapi.QualifiedName]resourceapi.DeviceAttribute) map[string]resourceapi.DeviceAttribute {
	out := make(map[string]resourceapi.DeviceAttribute, len(attrs))
	for name, value := range attrs {
		out[string(name)] = value
	}
	return out
}

// UnprepareResourceClaims takes claims back side by side. A claim whose
// device is quarantined counts as unprepared: its pod may go, the device
// stays behind, tainted.
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
	d.Changed()
	byUID := make(map[types.UID]error, len(claims))
	for i, c := range claims {
		byUID[c.UID] = errs[i]
	}
	return byUID, nil
}

// unprepare takes one claim back, if the check allows it, and logs the outcome once. The check
// may be nil.
func (d *Plugin) unprepare(ctx context.Context, c kubeletplugin.NamespacedObject, check func(context.Context, *journal.Record) error) error {
	log := d.Log.With(slog.String("claim", c.String()), slog.String("uid", string(c.UID)))
	begin := time.Now()
	release, err := d.Claims.UnprepareIf(ctx, string(c.UID), check)
	if errors.Is(err, ErrAllocatedAgain) {
		return err
	}
	d.Metrics.ObserveUnprepare(string(c.UID), time.Since(begin), err)
	var quarantined *prepare.QuarantinedError
	switch {
	case errors.As(err, &quarantined):
		log.ErrorContext(ctx, "device quarantined", slog.Any("err", err))
		d.Reporter.Quarantined(c, quarantined)
		return nil
	case err != nil:
		log.ErrorContext(ctx, "claim not unprepared", slog.Any("err", err))
		d.Reporter.NotUnprepared(c, err)
		return err
	}
	d.forget(c.UID)
	if !release.Known {
		log.InfoContext(ctx, "claim was not prepared here")
		return nil
	}
	log.InfoContext(ctx, "claim unprepared", slog.Int("resets", len(release.Proofs)))
	d.Reporter.Unprepared(c, len(release.Proofs))
	return nil
}

// forget drops what was remembered of a claim while it was not prepared.
func (d *Plugin) forget(uid types.UID) {
	if d.Asked != nil {
		d.Asked.Forget(uid)
	}
}

// Release takes a claim back that the kubelet has forgotten, as its own call would, unless the
// check, with the claim's lock held, returns an error.
func (d *Plugin) Release(ctx context.Context, ref plan.Ref, check func(context.Context, *journal.Record) error) error {
	d.running.RLock()
	defer d.running.RUnlock()
	defer d.Changed()
	return d.unprepare(ctx, kubeletplugin.NamespacedObject{
		NamespacedName: types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}, UID: types.UID(ref.UID),
	}, check)
}

// HandleError is told of errors in the background. Publishing errors are
// logged and retried by the helper; a gRPC server that is gone ends the plugin.
func (d *Plugin) HandleError(ctx context.Context, err error, msg string) {
	d.Log.ErrorContext(ctx, "background error", slog.String("what", msg), slog.Any("err", err))
	if dropped := droppedFields(err); dropped != nil {
		d.Health.Withdraw(dropped)
		d.Changed()
		return
	}
	if !errors.Is(err, kubeletplugin.ErrRecoverable) {
		d.Fatal(err)
		return
	}
	d.Metrics.CountUnpublished()
}

// WatchHealthStatus streams the health of all published devices.
func (d *Plugin) WatchHealthStatus(ctx context.Context, reports chan<- kubeletplugin.DeviceHealthReport) error {
	return d.Health.Stream(ctx, reports)
}

// Kubelet says how the plugin meets the kubelet of its node and the API server.
type Kubelet struct {
	Client   kubernetes.Interface
	NodeName string
	// PodUID tells the instances of a rolling update apart; empty for the only
	// instance, which then has the plain socket names.
	PodUID string
	// PluginDir holds our socket and the files of device metadata; it is made if
	// it is missing. RegistryDir is where the kubelet looks for plugins. Both
	// have the same path for the kubelet.
	PluginDir, RegistryDir string
	// MetadataCDIDir is where the CDI specs of device metadata go, as the
	// runtimes know it.
	MetadataCDIDir string
	// GRPCVerbosity is the klog verbosity at which calls are logged; -1 for never.
	GRPCVerbosity int
}

// Register serves the driver on its sockets and offers it to the kubelet, which
// calls from then on until the returned helper is stopped. Calls run side by
// side: package prepare has finer locks than the helper's one for all.
func (k Kubelet) Register(ctx context.Context, driver *Plugin) (*kubeletplugin.Helper, error) {
	if err := os.MkdirAll(k.PluginDir, 0o750); err != nil {
		return nil, fmt.Errorf("make the plugin's data directory: %w", err)
	}
	options := []kubeletplugin.Option{
		kubeletplugin.DriverName(v1alpha1.DriverName), kubeletplugin.KubeClient(k.Client), kubeletplugin.NodeName(k.NodeName),
		kubeletplugin.PluginDataDirectoryPath(k.PluginDir), kubeletplugin.RegistrarDirectoryPath(k.RegistryDir),
		kubeletplugin.Serialize(false), kubeletplugin.GRPCVerbosity(k.verbosity()), kubeletplugin.CDIDirectory(k.MetadataCDIDir),
		kubeletplugin.EnableDeviceMetadata(true, []schema.GroupVersion{metadatav1beta1.SchemeGroupVersion}),
	}
	if k.PodUID != "" {
		options = append(options, kubeletplugin.RollingUpdate(types.UID(k.PodUID)))
	}
	helper, err := kubeletplugin.Start(ctx, driver, options...)
	if err != nil {
		return nil, fmt.Errorf("register with the kubelet: %w", err)
	}
	return helper, nil
}

// neverLogged is a verbosity that no logger is set to. The helper takes a
// negative one for zero, which is always logged.
const neverLogged = 127

func (k Kubelet) verbosity() int {
	if k.GRPCVerbosity < 0 {
		return neverLogged
	}
	return k.GRPCVerbosity
}
