package main

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/audit/check"
	"github.com/kata-vfio/kata-vfio/pkg/audit/check/monitor"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/cli/command"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/inventory"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/node"
	"github.com/kata-vfio/kata-vfio/pkg/nodeconfig"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// auditing are the flags of the checks that `run` makes.
type auditing struct {
	profile string
	counts  string
	waivers string
	every   time.Duration
}

func (a *auditing) register(cmd *cobra.Command) {
	a.registerGate(cmd)
	cmd.Flags().DurationVar(&a.every, "audit-every", monitor.DefaultEvery, "how often to look where nothing is heard of a change")
}

// registerGate registers the flags that say which failures refuse claims.
func (a *auditing) registerGate(cmd *cobra.Command) {
	profiles := finding.ProfileNames()
	f := cmd.Flags()
	f.StringVar(&a.profile, "audit-profile", profiles[0], "what the node is for, by which the audit's checks weigh: "+strings.Join(profiles, ", "))
	f.StringVar(&a.counts, "audit-taint", string(isolation.High), "least severity at which a check that fails taints devices and refuses claims:\n"+strings.Join(weights(), ", "))
	f.StringVar(&a.waivers, "audit-waivers", "", "file of accepted failures (YAML; see `kata-vfio-audit waive`), read at each look\n(default: <root>/etc/kata-vfio/waivers.yaml if it is there)")
	complete(cmd, "audit-profile", cobra.FixedCompletions(profiles, cobra.ShellCompDirectiveNoFileComp))
	complete(cmd, "audit-taint", cobra.FixedCompletions(weights(), cobra.ShellCompDirectiveNoFileComp))
	complete(cmd, "audit-waivers", yamlFiles)
}

// seldom is how long a node may be left without a look: the chart's alert waits twice as long.
const seldom = 15 * time.Minute

// weights are the values of --audit-taint.
func weights() []string {
	var all []string
	for _, s := range finding.Severities() {
		all = append(all, string(s))
	}
	return append(all, string(finding.Off))
}

func (a *auditing) validate() error {
	if err := a.validateGate(); err != nil {
		return err
	}
	if a.every < time.Second || a.every > seldom {
		return command.Usagef("--audit-every %v: want a second or more, and %v at most: the alert KataVFIOAuditStale waits half an hour", a.every, seldom)
	}
	return nil
}

func (a *auditing) validateGate() error {
	if _, ok := finding.ProfileNamed(a.profile); !ok {
		return command.Usagef("--audit-profile %q: there is no such profile", a.profile)
	}
	if !slices.Contains(weights(), a.counts) {
		return command.Usagef("--audit-taint %q: want one of %s", a.counts, strings.Join(weights(), ", "))
	}
	return nil
}

func (a *auditing) waiverFile(root string, log *slog.Logger) *waiverFile {
	if a.waivers != "" {
		return &waiverFile{path: a.waivers, log: log}
	}
	return &waiverFile{path: filepath.Join(root, "etc/kata-vfio/waivers.yaml"), optional: true, log: log}
}

// gate asks the checks once and has the node refuse what `run` would refuse for
// them now.
func (a *auditing) gate(ctx context.Context, n *node.Node, root string) error {
	if a.counts == string(finding.Off) {
		return nil
	}
	snap, err := inventory.Scan(ctx, n.FS)
	if err != nil {
		return fmt.Errorf("scan the node for the audit's checks: %w", err)
	}
	log := slog.New(slog.DiscardHandler)
	profile, _ := finding.ProfileNamed(a.profile) // validated
	m := monitor.New(monitor.Config{
		FS: n.FS, Profile: profile, Waivers: a.waiverFile(root, log).read, Counts: isolation.Severity(a.counts),
		Offered: func(snap *device.Snapshot) []pci.Address { return offered(n.Node, snap) },
		Refresh: func(ctx context.Context, addrs []pci.Address) (*device.Snapshot, error) {
			return inventory.Rescan(ctx, n.FS, snap, addrs)
		},
		Append:  func(context.Context, ...ledger.Event) (string, error) { return "", nil },
		Observe: func([]finding.Finding) {}, Changed: func() {}, Log: log,
	})
	m.Look(ctx, snap)
	n.Failing = idsOf(m.Failing)
	return nil
}

// offered returns the functions that the node's config gives to tenants.
func offered(cfg *v1alpha1.NodeConfig, snap *device.Snapshot) []pci.Address {
	var all []pci.Address
	for _, f := range nodeconfig.Select(cfg, snap).Ours() {
		all = append(all, f.Address)
	}
	return all
}

// idsOf returns the ids of the checks that fail for a function.
func idsOf(failing func(pci.Address) []finding.Failure) func(pci.Address) []string {
	return func(addr pci.Address) []string {
		var ids []string
		for _, f := range failing(addr) {
			ids = append(ids, f.ID)
		}
		return ids
	}
}

// openMonitor makes the monitor of the node. It judges by what the plugin itself
// reads; a ledger that can't be written does not keep it from it.
func (s *service) openMonitor() {
	a := &s.run.audit
	profile, _ := finding.ProfileNamed(a.profile) // validated
	s.monitor = monitor.New(monitor.Config{
		FS: s.node.FS, Profile: profile, Waivers: a.waiverFile(s.opts.node.Root, s.log).read, Counts: isolation.Severity(a.counts),
		Offered: func(snap *device.Snapshot) []pci.Address { return offered(s.node.Node, snap) },
		Refresh: s.watcher.Refresh, Append: s.node.History.Append, Observe: s.metrics.ObserveAudit, Changed: s.wake, Log: s.log,
		Every: a.every, Pause: monitor.DefaultPause,
	})
	s.publisher.Failing = s.monitor.Failing
	s.node.Failing = idsOf(s.monitor.Failing)
}

func checkIDs() []string {
	var ids []string
	for _, c := range check.Catalogue() {
		ids = append(ids, c.ID)
	}
	return ids
}
