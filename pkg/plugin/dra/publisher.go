package dra

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/audit/facts"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/maintain"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/metrics"
	"github.com/kata-vfio/kata-vfio/pkg/publish"
)

// Slices writes ResourceSlices; [kubeletplugin.Helper] implements it.
type Slices interface {
	PublishResources(ctx context.Context, resources resourceslice.DriverResources) error
}

// PublisherConfig holds what a Publisher works with. The first five fields are required.
type PublisherConfig struct {
	// Node is the node's name.
	Node string
	// Planned returns the node that Prepare plans with ([prepare.Preparer.PlanNode]), on which devices are judged.
	Planned func(*device.Snapshot) (plan.Node, error)
	Records func() ([]*journal.Record, []error)
	Health  *Health
	Metrics *metrics.Metrics
	// Failing returns the checks that count and fail for a function.
	Failing func(pci.Address) []finding.Failure
	// Drains returns the node's drains.
	Drains func(*device.Snapshot) []maintain.Draining
	// Attempts returns the functions for which Prepare failed more than once.
	Attempts func() map[pci.Address]plan.Code
	// Versions returns the versions of the node's software. It is called for each Publish.
	Versions func() publish.Versions
	// Existing returns the devices in the node's slices ([PublishedDevices]). Nothing is published until it has succeeded
	// once.
	Existing func(context.Context) (map[publish.Allocated]publish.Listed, error)
	// Claimed returns the node's devices that claims have ([ClaimedDevices]). Without it, and while it fails, no device that
	// was on offer leaves its slice.
	Claimed func(context.Context) (map[publish.Allocated]bool, error)
	// Spread is the longest pause before the first request, [StartSpread] in the plugin. The pause is at random. Changed,
	// which is required with it, is called after the pause, for another Publish.
	Spread  time.Duration
	Changed func()
}

// StartSpread is long enough that a thousand plugins that start together load an API server as evenly as their writes
// allow, and short beside the time that a node needs to boot. Claims do not wait for it.
const StartSpread = 10 * time.Second

// Publisher makes ResourceSlices from snapshots and records, and publishes them when they change.
type Publisher struct {
	PublisherConfig

	publishing sync.Mutex // held during a Publish, which can wait for the API server; guards due, seeded and last
	due        time.Time  // the end of the pause before the first request
	seeded     bool
	last       map[string]publish.Pool

	withdrawals *withdrawals

	mu    sync.Mutex                                                           // guards known, unwritten and retry
	known map[string]map[resourceapi.QualifiedName]resourceapi.DeviceAttribute // by device name

	// unwritten is what decided over the latest Publish and is in no file of the node.
	unwritten unwritten
	// retry says that a slice of the last pools could not be written.
	retry bool
}

// NewPublisher returns a publisher that has published nothing.
func NewPublisher(c PublisherConfig) *Publisher {
	return &Publisher{PublisherConfig: c, withdrawals: newWithdrawals()}
}

// Publish publishes the node by the snapshot and the journal, if something changed. After an error the next call tries again.
// Once the health is withdrawn it publishes a pool without devices, because without any slice the old ones would stay. If it is
// unknown what Prepare refuses, it taints all devices, and the error says why. During the pause before the first request
// it asks and writes nothing.
func (p *Publisher) Publish(ctx context.Context, slices Slices, snap *device.Snapshot) error {
	p.publishing.Lock()
	defer p.publishing.Unlock()
	start := time.Now()
	waits, unseeded := p.waits(), error(nil)
	if !waits {
		unseeded = p.seed(ctx)
	}
	described, unknown := p.describe(snap)
	pools := publish.Pools(described)
	p.learn(pools) // before a withdrawal, for claims that are already allocated
	if p.Health.Withdrawn() != nil {
		pools = map[string]publish.Pool{p.Node: {Slices: []publish.Slice{{}}}}
	}
	p.Health.Set(healthOf(pools), snap.Stale)
	p.Metrics.ObserveDevices(counted(pools))
	if unseeded != nil {
		return errors.Join(fmt.Errorf("publish ResourceSlices: %w", unseeded), unknown)
	}
	if waits {
		return unknown
	}
	p.withdrawals.locked(func(w *publish.Withdrawals) { w.Published(pools) })
	if !p.retries() && reflect.DeepEqual(pools, p.last) {
		return unknown
	}
	err := slices.PublishResources(ctx, resources(pools))
	p.Metrics.ObservePublish(time.Since(start), err)
	if err != nil {
		return errors.Join(fmt.Errorf("publish ResourceSlices: %w", err), unknown)
	}
	p.last = pools
	p.Health.Published()
	return unknown
}

// Retry makes the next Publish write again, because the helper could not write a slice. Its own pauses grow to 17 minutes,
// which is too long for a taint when the API server is back.
func (p *Publisher) Retry() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.retry = true
}

// retries reports whether there was a Retry since the last call.
func (p *Publisher) retries() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	was := p.retry
	p.retry = false
	return was
}

// waits reports whether the pause before the first request lasts. The first call begins it.
func (p *Publisher) waits() bool {
	if p.Spread > 0 && p.due.IsZero() {
		pause := rand.N(p.Spread)
		p.due = time.Now().Add(pause)
		time.AfterFunc(pause, p.Changed)
	}
	return time.Now().Before(p.due)
}

// Attributes returns the device's attributes in the latest Publish; see [Attributes]. It does not wait for a Publish in progress.
func (p *Publisher) Attributes(name string) map[resourceapi.QualifiedName]resourceapi.DeviceAttribute {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.known[name])
}

// describe collects the facts for publishing. After an error no device is judged.
func (p *Publisher) describe(snap *device.Snapshot) (*publish.Node, error) {
	known, err := p.Planned(snap)
	if p.Failing != nil {
		known.Failing = p.failing
	}
	if p.Attempts != nil {
		known.Attempted = p.Attempts()
	}
	n := &publish.Node{
		Name: p.Node, Snapshot: snap, Selection: known.Selection,
		Assessments: map[pci.Address]plan.Assessment{}, Health: map[pci.Address]publish.Health{},
	}
	if p.Versions != nil {
		n.Versions = p.Versions()
	}
	records, unread := p.Records() // a metric counts what can't be read, and Prepare refuses because of it
	addrs := p.enter(n, records)
	p.withdrawals.locked(func(w *publish.Withdrawals) { w.Enter(n, p.withdrawals.in(staleTime), len(unread) > 0) })
	for _, f := range n.Selection.Ours() {
		addrs = append(addrs, f.Address)
	}
	if err == nil {
		assess(n, known, addrs)
	}
	p.audit(n, addrs)
	p.drain(n)
	p.keep(n, &known)
	if err != nil {
		err = fmt.Errorf("no device can be judged, so all are tainted: %w", err)
	}
	return n, err
}

// assess judges functions.
func assess(n *publish.Node, known plan.Node, addrs []pci.Address) {
	assessor := plan.NewAssessor(known)
	for _, a := range addrs {
		f, ok := n.Snapshot.Function(a)
		if _, done := n.Assessments[a]; ok && !done {
			n.Assessments[a] = assessor.Assess(f)
		}
	}
}

// failing returns the IDs of the checks that fail for a function.
func (p *Publisher) failing(a pci.Address) []string {
	var ids []string
	for _, f := range p.Failing(a) {
		ids = append(ids, f.ID)
	}
	return ids
}

// drain adds the drained functions.
func (p *Publisher) drain(n *publish.Node) {
	if p.Drains == nil {
		return
	}
	for _, d := range p.Drains(n.Snapshot) {
		for i := range d.Functions {
			a := d.Functions[i].Address
			h := n.Health[a]
			if state := DrainState(&d); h.Drained == "" || state == publish.Draining {
				h.Drained = state
			}
			h.Evict = h.Evict || d.Evict
			n.Health[a] = h
		}
	}
}

// audit adds the checks that fail for the devices, allocated ones included.
func (p *Publisher) audit(n *publish.Node, addrs []pci.Address) {
	if p.Failing == nil {
		return
	}
	for _, a := range addrs {
		h := n.Health[a]
		h.Failing = p.Failing(a)
		n.Health[a] = h
	}
}

// enter adds the devices of records that have any, and returns their functions.
func (p *Publisher) enter(n *publish.Node, records []*journal.Record) []pci.Address {
	var addrs []pci.Address
	for _, rec := range records {
		holds := rec.BootID == n.Snapshot.Host.BootID || rec.State == journal.Quarantined
		if !holds || rec.Kind == journal.Bound {
			continue
		}
		for _, parts := range rec.Plan.Allocated() {
			n.Allocated = append(n.Allocated, publish.Allocated{Pool: parts[0].Pool, Name: parts[0].Published()})
		}
		addrs = append(addrs, rec.Plan.Addresses()...)
	}
	return addrs
}

// learn keeps the attributes of all devices for the metadata of claims.
func (p *Publisher) learn(pools map[string]publish.Pool) {
	known := map[string]map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{}
	for _, d := range devices(pools) {
		known[d.Name] = d.Attributes
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.known = known
}

// poolDevice is a device together with the name of its pool.
type poolDevice struct {
	resourceapi.Device
	pool string
}

// devices returns the devices of all pools.
func devices(pools map[string]publish.Pool) []poolDevice {
	var all []poolDevice
	for name, pool := range pools {
		for _, slice := range pool.Slices {
			for _, d := range slice.Devices {
				all = append(all, poolDevice{d, name})
			}
		}
	}
	return all
}

// resources wraps pools for the helper.
func resources(pools map[string]publish.Pool) resourceslice.DriverResources {
	out := resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{}}
	for name, pool := range pools {
		var wrapped resourceslice.Pool
		for _, s := range pool.Slices {
			wrapped.Slices = append(wrapped.Slices, resourceslice.Slice{Devices: s.Devices, SharedCounters: s.SharedCounters})
		}
		out.Pools[name] = wrapped
	}
	return out
}

// ailments returns the taints that make a device unhealthy. A drained device stays healthy, like a cordoned node: a claim that has
// it keeps it.
func ailments(d *resourceapi.Device) []resourceapi.DeviceTaint {
	var all []resourceapi.DeviceTaint
	for _, t := range d.Taints {
		if t.Key != publish.TaintDrain {
			all = append(all, t)
		}
	}
	return all
}

// healthOf returns the devices' health for the kubelet: a tainted device is unhealthy, unless it is drained.
func healthOf(pools map[string]publish.Pool) []kubeletplugin.DeviceHealth {
	var all []kubeletplugin.DeviceHealth
	for _, d := range devices(pools) {
		h := kubeletplugin.DeviceHealth{PoolName: d.pool, DeviceName: d.Name, Health: kubeletplugin.HealthStatusHealthy}
		if why := ailments(&d.Device); len(why) > 0 {
			h.Health, h.Message = kubeletplugin.HealthStatusUnhealthy, taintWords(why)
		}
		all = append(all, h)
	}
	return all
}

// taintWords lists taints for people: "quarantined, not-isolated (NoReset)".
func taintWords(taints []resourceapi.DeviceTaint) string {
	words := make([]string, len(taints))
	for i, t := range taints {
		words[i] = strings.TrimPrefix(t.Key, v1alpha1.DriverName+"/")
		if t.Value != "" {
			words[i] += " (" + t.Value + ")"
		}
	}
	return strings.Join(words, ", ")
}

// counted returns the devices of all pools by type and health.
func counted(pools map[string]publish.Pool) []metrics.Device {
	var all []metrics.Device
	for _, d := range devices(pools) {
		parts, err := device.ParseParts(d.Name)
		if err != nil {
			continue
		}
		kind := parts[0].Type
		if len(parts) > 1 {
			kind = device.PairType
		}
		all = append(all, metrics.Device{Type: kind, Healthy: len(ailments(&d.Device)) == 0})
	}
	return all
}

// DrainState returns the state of a drain.
func DrainState(d *maintain.Draining) publish.DrainState {
	if d.Done() {
		return publish.Drained
	}
	return publish.Draining
}

// DrainStates returns the functions that are drained, and how far. Two drains may share functions.
func DrainStates(drains []maintain.Draining) map[pci.Address]publish.DrainState {
	states := map[pci.Address]publish.DrainState{}
	for i := range drains {
		for _, f := range drains[i].Functions {
			if _, seen := states[f.Address]; !seen {
				states[f.Address] = DrainState(&drains[i])
			}
		}
	}
	return states
}

// unwritten is what taints functions and is in no file of the node.
type unwritten struct {
	failing   map[pci.Address][]string
	attempted map[pci.Address]plan.Code
	hotPlug   bool
	window    uint64
}

// keep keeps the facts of a Publish for [Publisher.Published].
func (p *Publisher) keep(n *publish.Node, known *plan.Node) {
	failing := map[pci.Address][]string{}
	for a, h := range n.Health {
		for _, f := range h.Failing {
			failing[a] = append(failing[a], f.ID)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unwritten = unwritten{failing, known.Attempted, known.HotPlug, known.HotPlugWindow}
}

// Published returns the functions of all devices in the latest Publish, by address, each once, with the facts that are in no file of
// the node. The caller adds the boot and the config.
func (p *Publisher) Published() facts.Published {
	p.mu.Lock()
	defer p.mu.Unlock()
	functions := []pci.Address{}
	for name := range p.known {
		parts, err := device.ParseParts(name)
		if err != nil {
			continue // no name of ours
		}
		for _, part := range parts {
			functions = append(functions, part.Address)
		}
	}
	slices.SortFunc(functions, pci.Address.Compare)
	return facts.Published{
		NodeName: p.Node, Devices: slices.Compact(functions),
		Failing: p.unwritten.failing, Attempted: p.unwritten.attempted,
		HotPlug: p.unwritten.hotPlug, HotPlugWindow: p.unwritten.window,
	}
}
