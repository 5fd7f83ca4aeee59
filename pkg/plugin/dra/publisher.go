package dra

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/maintain"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/metrics"
	"github.com/kata-vfio/kata-vfio/pkg/publish"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// Slices writes ResourceSlices; [kubeletplugin.Helper] implements it.
type Slices interface {
	PublishResources(ctx context.Context, resources resourceslice.DriverResources) error
}

// PublisherConfig holds what a Publisher works with. The first five fields are required.
type PublisherConfig struct {
	// NodeName is the node's name.
	NodeName string
	Node     PublishedNode
	Records  journal.Lister
	Health   *Health
	Metrics  *metrics.Metrics
	// Attempts, which may be nil, has the functions that failed attempts taint.
	Attempts *Attempts
	// Cluster, which may be nil, knows the devices in the node's slices and claims. Nothing is published until it has once returned the
	// devices in slices. Without it, or while it does not answer, devices that were on offer stay in their slices.
	Cluster Cluster
	// Spread is the longest pause before the first request, [StartSpread] in the plugin. The pause is random. Changes is required with
	// Spread. It is woken after the pause, for another Publish.
	Spread  time.Duration
	Changes Waker
}

// PublishedNode provides the facts about a node's devices that are in neither the snapshot nor the journal. Each Publish asks it again.
type PublishedNode interface {
	// PlanNode returns the node that Prepare plans with ([prepare.Preparer.PlanNode]), on which devices are judged.
	PlanNode(ctx context.Context, snap *device.Snapshot) (plan.Node, error)
	// Failing returns the checks that count and fail for a function.
	Failing(a pci.Address) []rule.Failure
	// Drains returns the node's drains.
	Drains(snap *device.Snapshot) []maintain.Draining
	// Lost returns why claims no longer have their prepared devices at the API server, by UID.
	Lost() map[string]string
	// Versions returns the versions of the node's software.
	Versions() publish.Versions
}

// Cluster is what the API server has of a node's devices; [ClusterDevices] implements it.
type Cluster interface {
	// Published returns the devices in the node's slices.
	Published(ctx context.Context) (map[publish.Allocated]publish.Listed, error)
	// Claimed returns the node's devices that claims have.
	Claimed(ctx context.Context) (map[publish.Allocated]bool, error)
	// MayListClaims reports whether Claimed is permitted. It is asked once, if the node's slices are in pools with names that an
	// earlier version gave. Without the right these names stay, because no device could ever leave them.
	MayListClaims(ctx context.Context) (bool, error)
}

// StartSpread spreads the first requests of plugins that start together, so that a thousand of them load an API server as evenly as their
// writes allow. It is short compared to a node's boot, and claims do not wait for it.
const StartSpread = 10 * time.Second

// Publisher makes ResourceSlices from snapshots and records, and publishes them when they change.
type Publisher struct {
	config PublisherConfig

	publishing sync.Mutex // held during a Publish, which can wait for the API server; guards due, seeded, formerNames and last
	due        time.Time  // the end of the pause before the first request
	seeded     bool
	// formerNames is set if the pools keep the names that an earlier version gave them.
	formerNames bool
	last        map[string]publish.Pool

	withdrawals *withdrawals

	mu    sync.Mutex                                                           // guards known, unwritten and retry
	known map[string]map[resourceapi.QualifiedName]resourceapi.DeviceAttribute // by device name

	// unwritten are the facts that the latest Publish used and that no file of the node contains.
	unwritten unwritten
	// retry is set if a slice of the last pools could not be written.
	retry bool
}

// NewPublisher returns a publisher that has published nothing.
func NewPublisher(c PublisherConfig) *Publisher {
	return &Publisher{config: c, withdrawals: newWithdrawals()}
}

// Publish publishes the node by the snapshot and the journal, if something changed. After an error the next call tries again. Once the
// health is withdrawn, it publishes a pool without devices, because without any slice the old slices would stay. If it is unknown what
// Prepare refuses, it taints all devices, and returns an error with the reason. During the pause before the first request it makes no
// request.
func (p *Publisher) Publish(ctx context.Context, s Slices, snap *device.Snapshot) error {
	p.publishing.Lock()
	defer p.publishing.Unlock()
	start := time.Now()
	waits, unseeded := p.waits(), error(nil)
	if !waits {
		unseeded = p.seed(ctx)
	}
	described, unknown := p.describe(ctx, snap)
	pools := publish.Pools(described)
	p.learn(pools) // before a withdrawal, for claims that are already allocated
	if p.config.Health.Withdrawn() != nil {
		pools = publish.Empty(described)
	}
	p.config.Health.Set(newHealth(pools), snap.Stale)
	p.config.Health.Refuse(p.Published().NotReady)
	p.config.Metrics.ObserveDevices(counted(pools))
	p.config.Metrics.ObserveGPUs(maps.Values(gpus(pools, described.Allocated)))
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
	err := s.PublishResources(ctx, resources(pools))
	p.config.Metrics.ObservePublish(time.Since(start), err)
	if err != nil {
		return errors.Join(fmt.Errorf("publish ResourceSlices: %w", err), unknown)
	}
	p.last = pools
	p.config.Health.Published()
	return unknown
}

// Retry makes the next Publish write the slices again, because the helper could not write one. The helper's own pauses grow to 17 minutes,
// which is too long for a taint once the API server is back.
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
	if p.config.Spread > 0 && p.due.IsZero() {
		pause := rand.N(p.config.Spread)
		p.due = time.Now().Add(pause)
		time.AfterFunc(pause, p.config.Changes.Wake)
	}
	return time.Now().Before(p.due)
}

// Attributes returns the device's attributes in the latest Publish; see [Attributes]. It does not wait for a Publish in progress.
func (p *Publisher) Attributes(name string) map[resourceapi.QualifiedName]resourceapi.DeviceAttribute {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.known[name])
}

// learn keeps the attributes of all devices for the metadata of claims.
func (p *Publisher) learn(pools map[string]publish.Pool) {
	known := map[string]map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{}
	for _, d := range devices(pools) {
		known[d.device.Name] = d.device.Attributes
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.known = known
}

// unwritten holds the facts that taint functions and that no file of the node contains.
type unwritten struct {
	failing   map[pci.Address][]string
	attempted map[pci.Address]rule.Code
	notReady  *plan.NotReady
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
	p.unwritten = unwritten{failing, known.Attempted, known.NotReady, known.HotPlug, known.HotPlugWindow}
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
		NodeName: p.config.NodeName, Devices: slices.Compact(functions),
		Failing: p.unwritten.failing, Attempted: p.unwritten.attempted, NotReady: p.unwritten.notReady,
		HotPlug: p.unwritten.hotPlug, HotPlugWindow: p.unwritten.window,
	}
}
