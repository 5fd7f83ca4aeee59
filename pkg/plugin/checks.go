package plugin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/audit/check"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/inventory"
	"github.com/kata-vfio/kata-vfio/pkg/nodeconfig"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// Checks says which of the audit's checks taint devices and refuse claims.
type Checks struct {
	// Profile is the node's purpose, which determines the severity of checks.
	Profile finding.Profile
	// Counts is the minimum severity at which a failed check counts. With [finding.Off] no check counts.
	Counts rule.Severity
	// Waivers is the file of accepted failures. The default is etc/kata-vfio/waivers.yaml below the root, if it exists.
	Waivers string
}

// Gate runs the checks of the node below root once. It returns the failures, for [node.Config.Checks], so that the node refuses the same
// claims as the daemon would now. It also returns warnings about waivers that accept nothing.
func (c Checks) Gate(ctx context.Context, fsys *sysfs.FS, cfg *v1alpha1.NodeConfig, root string) (failures *check.Failures, warnings []string, err error) {
	if c.Counts == finding.Off {
		return &check.Failures{}, nil, nil
	}
	snap, err := inventory.Scan(ctx, fsys)
	if err != nil {
		return nil, nil, fmt.Errorf("scan the node for the audit's checks: %w", err)
	}
	all, err := check.Catalogue()
	if err != nil {
		return nil, nil, err
	}
	n := facts.New(fsys, snap)
	// No daemon has published devices, so the checks use those that the config would offer.
	n.SetPublished(offered(cfg, snap))
	file := c.waivers(root, all, slog.New(slog.DiscardHandler))
	accepted, err := file.parse()
	if err != nil { // without readable waivers no failure is accepted, as in the daemon
		warnings = append(warnings, fmt.Sprintf("no failure is accepted: waivers of %s can't be read: %v", file.path, err))
	}
	g := check.Enforcement{
		Profile: c.Profile, Counts: c.Counts, Waivers: accepted,
		Today: time.Now().UTC().Format(time.DateOnly), Checks: check.Checks(all),
	}
	failures = g.Judge(n)
	for i := range failures.UnusedWaivers {
		warnings = append(warnings, failures.UnusedWaivers[i].UnusedWords())
	}
	return failures, warnings, nil
}

// offered returns the functions that tenants can get according to the node config.
func offered(cfg *v1alpha1.NodeConfig, snap *device.Snapshot) []pci.Address {
	var all []pci.Address
	for _, f := range nodeconfig.Select(cfg, snap).Ours() {
		all = append(all, f.Address)
	}
	return all
}

// openMonitor creates the monitor, which judges the node by what the plugin itself reads. It works without a ledger
// too.
func (s *service) openMonitor() error {
	all, err := check.Catalogue()
	if err != nil {
		return err
	}
	c := &s.config.Checks
	s.monitor = NewMonitor(MonitorConfig{
		FS: s.node.Parts.FS, Node: monitoredNode{s, c.waivers(s.config.Node.Root, all, s.log)}, Profile: c.Profile,
		Checks: check.Checks(all), Counts: c.Counts, Ledger: s.node.History, Metrics: s.metrics, Changes: s.changes, Log: s.log,
		Every: s.config.ChecksEvery, Pause: DefaultMonitorPause,
	})
	return nil
}

// monitoredNode gives the monitor access to the service's node. It implements [MonitoredNode].
type monitoredNode struct {
	service *service
	waivers *waiverFile
}

// Offered implements [MonitoredNode].
func (n monitoredNode) Offered(snap *device.Snapshot) []pci.Address {
	return offered(n.service.node.Node, snap)
}

// Waivers implements [MonitoredNode].
func (n monitoredNode) Waivers(ctx context.Context) []finding.Waiver { return n.waivers.read(ctx) }

// Refresh implements [MonitoredNode].
func (n monitoredNode) Refresh(ctx context.Context, addrs []pci.Address) (*device.Snapshot, error) {
	return n.service.watcher.Refresh(ctx, addrs)
}

// monitoredChecks are the checks of the service's monitor. It implements [prepare.Checks].
type monitoredChecks struct{ service *service }

// IDs implements [prepare.Checks]: no check fails before the monitor's first look.
func (c monitoredChecks) IDs(a pci.Address) []string {
	if c.service.monitor == nil {
		return nil
	}
	return check.ListIDs(c.service.monitor.Failing(a))
}

// judge runs the checks before anything is published.
func (s *service) judge(ctx context.Context) error {
	snap, err := s.watcher.Snapshot(ctx)
	if err != nil {
		return fmt.Errorf("judge the node: %w", err)
	}
	if err := s.notes.Keep(snap); err != nil { // a check reads the baseline
		s.log.WarnContext(ctx, "run files for the audit not written", slog.Any("err", err))
	}
	s.monitor.Look(ctx, snap)
	return nil
}

// watchChecks runs the checks again when the node changes, until ctx ends.
func (s *service) watchChecks(ctx context.Context) error {
	snapshots, cancel := s.watcher.Subscribe()
	defer cancel()
	return s.monitor.Run(ctx, snapshots)
}

// waivers returns the file of accepted failures.
func (c Checks) waivers(root string, all []check.Check, log *slog.Logger) *waiverFile {
	rules := rule.IDs(finding.Rules(all))
	if c.Waivers != "" {
		return &waiverFile{path: c.Waivers, rules: rules, log: log}
	}
	return &waiverFile{path: filepath.Join(root, check.WaiversFile), rules: rules, optional: true, log: log}
}

// waiverFile reads the failures that the node's operator accepts. It is read before each run of the checks, so that a
// change needs no restart.
type waiverFile struct {
	path string
	// optional: the file need not exist.
	optional bool
	// rules are the IDs of the rules that a waiver may name.
	rules []string
	log   *slog.Logger
	// logged is the error that was logged last.
	logged string
}

// read returns the accepted failures. If the file can't be read, it returns none, so that no failure is accepted by mistake. It is not safe
// for concurrent use.
func (w *waiverFile) read(ctx context.Context) []finding.Waiver {
	accepted, err := w.parse()
	if err == nil {
		w.logged = ""
		return accepted
	}
	if w.logged != err.Error() {
		w.logged = err.Error()
		w.log.WarnContext(ctx, "no failure is accepted: waivers can't be read", slog.String("file", w.path), slog.Any("err", err))
	}
	return nil
}

func (w *waiverFile) parse() ([]finding.Waiver, error) {
	content, err := os.ReadFile(w.path)
	if errors.Is(err, fs.ErrNotExist) && w.optional {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return finding.ParseWaivers(content, w.rules)
}
