package main

import (
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kata-vfio/kata-vfio/pkg/check"
	"github.com/kata-vfio/kata-vfio/pkg/check/monitor"
	"github.com/kata-vfio/kata-vfio/pkg/command"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/finding"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
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
	profiles := finding.ProfileNames()
	f := cmd.Flags()
	f.StringVar(&a.profile, "audit-profile", profiles[0], "what the node is for, by which the audit's checks weigh: "+strings.Join(profiles, ", "))
	f.StringVar(&a.counts, "audit-taint", string(isolation.High), "least severity at which a check that fails taints devices and refuses claims:\n"+strings.Join(weights(), ", "))
	f.StringVar(&a.waivers, "audit-waivers", "", "file of accepted failures (YAML; see `kata-vfio-audit waive`), read at each look\n(default: <root>/etc/kata-vfio/waivers.yaml if it is there)")
	f.DurationVar(&a.every, "audit-every", monitor.DefaultEvery, "how often to look where nothing is heard of a change")
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
	if _, ok := finding.ProfileNamed(a.profile); !ok {
		return command.Usagef("--audit-profile %q: there is no such profile", a.profile)
	}
	if !slices.Contains(weights(), a.counts) {
		return command.Usagef("--audit-taint %q: want one of %s", a.counts, strings.Join(weights(), ", "))
	}
	if a.every < time.Second || a.every > seldom {
		return command.Usagef("--audit-every %v: want a second or more, and %v at most: the alert KataVFIOAuditStale waits half an hour", a.every, seldom)
	}
	return nil
}

func (s *service) waiverFile() *waiverFile {
	if path := s.run.audit.waivers; path != "" {
		return &waiverFile{path: path, log: s.log}
	}
	return &waiverFile{path: filepath.Join(s.opts.node.Root, "etc/kata-vfio/waivers.yaml"), optional: true, log: s.log}
}

// openMonitor makes the monitor of the node. It judges by what the plugin itself
// reads; a ledger that can't be written does not keep it from it.
func (s *service) openMonitor() {
	a := &s.run.audit
	profile, _ := finding.ProfileNamed(a.profile) // validated
	s.monitor = monitor.New(monitor.Config{
		FS: s.node.FS, Profile: profile, Waivers: s.waiverFile().read, Counts: isolation.Severity(a.counts),
		Offered: func(snap *device.Snapshot) []pci.Address {
			var all []pci.Address
			for _, f := range nodeconfig.Select(s.node.Config.Node, snap).Ours() {
				all = append(all, f.Address)
			}
			return all
		},
		Append: s.node.History.Append, Observe: s.metrics.ObserveAudit, Changed: s.wake, Log: s.log,
		Every: a.every, Pause: monitor.DefaultPause,
	})
	s.publisher.Failing = s.monitor.Failing
	s.node.Failing = func(addr pci.Address) []string {
		var ids []string
		for _, f := range s.monitor.Failing(addr) {
			ids = append(ids, f.ID)
		}
		return ids
	}
}

func checkIDs() []string {
	var ids []string
	for _, c := range check.Catalogue() {
		ids = append(ids, c.ID)
	}
	return ids
}
