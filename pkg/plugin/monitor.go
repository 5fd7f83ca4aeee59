package plugin

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/audit/check"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/inventory"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/dra"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// MonitorConfig says what a monitor checks, and where it reports.
type MonitorConfig struct {
	FS      *sysfs.FS
	Node    MonitoredNode
	Profile finding.Profile
	// Checks are asked: see [check.Checks].
	Checks []check.Check
	// Counts is the least severity at which a failure counts against a device. With [finding.Off] no failure counts, and only metrics show
	// them.
	Counts rule.Severity
	// Ledger records which checks begin and stop failing, and Metrics count all findings of each look. Changes is woken when the failing
	// checks of the node or of a device change. None of them may wait for the monitor.
	Ledger  MonitorLedger
	Metrics FindingMetrics
	Changes dra.Waker
	Log     *slog.Logger
	// Every is the pause between looks that no event causes: parameters of modules and registers of ports change without an event. Pause is
	// how long the monitor lets changes gather before a look.
	Every, Pause time.Duration
}

// MonitoredNode is what a monitor reads of its node besides the file system.
type MonitoredNode interface {
	// Offered returns the functions that tenants can get. Functions that a claim has, or that are on a VFIO driver, count in any case.
	Offered(snap *device.Snapshot) []pci.Address
	// Waivers returns the failures that are accepted now.
	Waivers(ctx context.Context) []finding.Waiver
	// Refresh returns the node's latest snapshot with the functions at the addresses read again. The kernel sends no uevent when a register
	// of a port changes. So the implementation must also pass the change on to those that publish devices by the same snapshots.
	Refresh(ctx context.Context, addrs []pci.Address) (*device.Snapshot, error)
}

// MonitorLedger is the node's ledger; [writer.Writer] implements it.
type MonitorLedger interface {
	Append(ctx context.Context, events ...ledger.Event) (string, error)
}

// FindingMetrics count findings; [metrics.Metrics] implements it.
type FindingMetrics interface {
	ObserveAudit(findings []finding.Finding)
}

// lookRest bounds the processor time of looks: before a look for a change, the monitor waits lookRest times as long as its last look took.
// On a node of thousands of functions that changes all the time, looks take a twentieth of a processor.
const lookRest = 20

// Defaults of [MonitorConfig].
const (
	DefaultMonitorEvery = time.Minute
	DefaultMonitorPause = 3 * time.Second
)

// Monitor judges the plugin's own node whenever the node changes, by the checks that cost little ([rule.Rule.Cheap]). It keeps the failures
// for taints and attributes of devices, for refusals of claims, for metrics, and for the ledger. `kata-vfio-audit node` asks the same
// checks, and all others.
//
// Failing may be called at any time. Look and Run must be called by one goroutine.
type Monitor struct {
	config    MonitorConfig
	published published
	took      time.Duration     // how long the last look took
	enforced  check.Enforcement // of the last look

	mu  sync.Mutex // guards now
	now *check.Failures
}

// NewMonitor returns a monitor that has not looked yet: nothing fails.
func NewMonitor(c MonitorConfig) *Monitor {
	return &Monitor{config: c, now: &check.Failures{}}
}

// Failing returns the rules that count and fail for a function or its node, the worst first. Functions that appeared
// after the last look have none. The slice is shared.
func (m *Monitor) Failing(a pci.Address) []rule.Failure {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.now.Of(a)
}

// Run looks whenever a snapshot comes, and every once in a while, until ctx ends.
func (m *Monitor) Run(ctx context.Context, snapshots <-chan *device.Snapshot) error {
	every := time.NewTicker(m.config.Every)
	defer every.Stop()
	var snap *device.Snapshot
	var due <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case snap = <-snapshots:
			// Changes come in bursts: one look serves all that arrive during the pause. The pause grows with the time that a look takes.
			if due == nil {
				due = time.After(max(m.config.Pause, lookRest*m.took))
			}
			continue
		case <-every.C:
		case <-due:
		}
		due = nil
		if snap != nil {
			m.Look(ctx, snap)
		}
	}
}

// Look runs the checks on the node. It reads the registers of the ports again. The snapshot says which functions are ports, and provides
// their state if they can't be read. A stale snapshot changes nothing. If the ledger refuses events, Look logs the error, and the next look
// tries again.
func (m *Monitor) Look(ctx context.Context, snap *device.Snapshot) {
	// A stale snapshot repeats the last good one: the conclusions from that one stay in force.
	if snap.Stale != "" {
		return
	}
	begin := time.Now()
	defer func() { m.took = time.Since(begin) }()
	fresh, err := m.config.Node.Refresh(ctx, bridges(snap))
	if err != nil {
		m.config.Log.WarnContext(ctx, "checks go by the ports as they were", slog.Any("err", err))
		fresh = snap
	}
	if fresh.Stale != "" {
		return
	}
	at := time.Now()
	found, now := m.look(ctx, fresh, at)
	m.config.Metrics.ObserveAudit(found)
	// Conclude before the ledger is written: Prepare must refuse a device that fails a check even while the ledger's disk is full.
	before := m.conclude(now)
	m.publish(ctx, now, at)
	if !same(before, now) {
		m.log(ctx, before, now, found)
		m.config.Changes.Wake()
	}
}

// look asks the checks. The snapshot may be older than the journal, and show the middle of a claim's steps that have ended by now. So if
// something new fails for functions, they are read and checked again.
func (m *Monitor) look(ctx context.Context, snap *device.Snapshot, at time.Time) ([]finding.Finding, *check.Failures) {
	n, found := m.ask(ctx, snap, at)
	now := m.weigh(n, found, n)
	news := newDevices(now, m.now)
	if len(news) == 0 {
		return found, now
	}
	fresh, err := inventory.Rescan(ctx, m.config.FS, snap, news)
	if err != nil {
		m.config.Log.WarnContext(ctx, "checks go by functions as they were", slog.Any("err", err))
		return found, now
	}
	again, found := m.ask(ctx, fresh, at)
	return found, m.weigh(again, found, n)
}

// ask asks the checks about the node in the state of the snapshot.
func (m *Monitor) ask(ctx context.Context, snap *device.Snapshot, at time.Time) (*facts.Node, []finding.Finding) {
	n := facts.New(m.config.FS, snap)
	n.SetPublished(m.config.Node.Offered(snap))
	// The waivers are read at each look, because they expire, and an operator may change them while the plugin runs.
	m.enforced = check.Enforcement{Profile: m.config.Profile, Counts: m.config.Counts, Waivers: m.config.Node.Waivers(ctx), Today: at.UTC().Format(time.DateOnly), Checks: m.config.Checks}
	return n, m.enforced.Ask(n)
}

// conclude replaces the failures, and returns the former ones.
func (m *Monitor) conclude(now *check.Failures) (before *check.Failures) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before, m.now = m.now, now
	return before
}

// publish writes the events that the ledger does not have yet.
func (m *Monitor) publish(ctx context.Context, now *check.Failures, at time.Time) {
	events, whole := m.published.events(now, at)
	if len(events) == 0 {
		return
	}
	if _, err := m.config.Ledger.Append(ctx, events...); err != nil {
		// m.published stays as it is, so the next look tries to record them again.
		m.config.Log.WarnContext(ctx, "the ledger has not recorded the checks", slog.Any("err", err))
		return
	}
	m.published.outcome = now
	if whole {
		m.published.at = at
	}
}

// log logs the rules that began to fail, each once, and the rules that stopped failing.
func (m *Monitor) log(ctx context.Context, before, now *check.Failures, findings []finding.Finding) {
	was, is := rules(before), rules(now)
	for _, id := range slices.Sorted(maps.Keys(is)) {
		if was[id] {
			continue
		}
		i := slices.IndexFunc(findings, func(f finding.Finding) bool { return f.ID == id && f.State == finding.Fail })
		m.config.Log.WarnContext(ctx, "check fails", slog.String("check", id), slog.String("severity", string(findings[i].Severity)),
			slog.String("problem", findings[i].Text), slog.String("fix", findings[i].Remediation), slog.String("more", "kata-vfio-audit explain "+id))
	}
	var passing []string
	for _, id := range slices.Sorted(maps.Keys(was)) {
		if !is[id] {
			passing = append(passing, id)
		}
	}
	if len(passing) > 0 {
		m.config.Log.InfoContext(ctx, "checks pass again", slog.String("checks", strings.Join(passing, " ")))
	}
}

// rules returns the ids of all that fails.
func rules(o *check.Failures) map[string]bool {
	all := map[string]bool{}
	for _, f := range o.Node {
		all[f.ID] = true
	}
	for _, failures := range o.Devices {
		for _, f := range failures {
			all[f.ID] = true
		}
	}
	return all
}

func same(a, b *check.Failures) bool {
	return slices.Equal(a.Node, b.Node) && maps.EqualFunc(a.Devices, b.Devices, slices.Equal)
}

// bridges returns the ports of the node.
func bridges(snap *device.Snapshot) []pci.Address {
	var all []pci.Address
	for i := range snap.Functions {
		if f := &snap.Functions[i]; f.IsBridge() {
			all = append(all, f.Address)
		}
	}
	return all
}
