package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/cli/command"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/node"
	"github.com/kata-vfio/kata-vfio/pkg/nodeconfig"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/plugin"
	"github.com/kata-vfio/kata-vfio/pkg/prepare/effects"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// options are the flags that all commands share.
type options struct {
	node   node.Config
	config string
	// sanitizers is the file of the sanitizing stages.
	sanitizers string
	output     string
}

// register adds the flags of all commands.
func (o *options) register(cmd *cobra.Command) {
	f := cmd.PersistentFlags()
	f.StringVar(&o.node.Root, "root", "/", "the node's root: a directory that holds sys, proc, dev, lib, run and var")
	f.StringVar(&o.config, "config", "", "the node's NodeConfig file (default: <root>/"+facts.NodeConfigFile+" if it exists,\notherwise every GPU and VF is managed, on demand)")
	f.StringVar(&o.sanitizers, "sanitizers", "", "the file of the cluster's sanitizing stages, kind Sanitizers\n(default: <root>/"+v1alpha1.SanitizersFile+" if it exists)")
	f.StringVarP(&o.output, "output", "o", "table", "output format: table, json or yaml")
	f.StringVar(&o.node.StateDir, "state-dir", node.DefaultStateDir, "directory of the journal, below the root")
	complete(cmd, "root", cobra.FixedCompletions(nil, cobra.ShellCompDirectiveFilterDirs))
	complete(cmd, "config", yamlFiles)
	complete(cmd, "sanitizers", yamlFiles)
	complete(cmd, "output", cobra.FixedCompletions([]string{"table", "json", "yaml"}, cobra.ShellCompDirectiveNoFileComp))
}

// registerWork adds the flags of the commands that work on the node.
func (o *options) registerWork(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.node.RunDir, "run-dir", node.DefaultRunDir, "directory of locks, below the root")
	f.StringVar(&o.node.CDIDir, "cdi-dir", node.DefaultCDIDir, "directory in which the runtimes read CDI specs (/var/run/cdi), below the root")
	f.StringVar(&o.node.Ledger.Dir, "ledger-dir", "", "directory of the ledger, below the root (default: ledger in --state-dir)")
	f.BoolVar(&o.node.Ledger.Pseudonyms, "ledger-pseudonyms", false, "replace the names of namespaces, pods and claims in the ledger with a keyed hash; the key is stored beside the ledger")
	f.DurationVar(&o.node.WriteLimit, "write-limit", node.DefaultWriteLimit, "how long one write to sysfs may take before the function is fenced; a reset may take six times as long")
}

// waitFlag adds the flag of commands that wait for a device's holder.
func waitFlag(cmd *cobra.Command, usual time.Duration) *time.Duration {
	return cmd.Flags().Duration("holder-wait", usual, "how long to wait for a process that has the device open to end")
}

// complete sets the shell's completion for a flag's value.
func complete(cmd *cobra.Command, flag string, values cobra.CompletionFunc) {
	_ = cmd.RegisterFlagCompletionFunc(flag, values) // fails only for an unknown flag, or a second call
}

// yamlFiles offers files for a claim or a config.
func yamlFiles(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return []cobra.Completion{"yaml", "yml", "json"}, cobra.ShellCompDirectiveFilterFileExt
}

// resolve checks the options and reads the node's config.
func (o *options) resolve() error {
	if err := o.validate(); err != nil {
		return err
	}
	var err error
	if o.node.Node, err = o.nodeConfig(); err != nil {
		return err
	}
	o.node.Sanitizers, err = o.stages()
	return err
}

// look opens the node for a command that changes nothing.
func (o *options) look() (*node.Node, error) {
	if err := o.resolve(); err != nil {
		return nil, err
	}
	return o.lookResolved()
}

// lookChecked is look with a node that refuses functions for which checks fail.
func (o *options) lookChecked(ctx context.Context, checks *auditing) (*node.Node, error) {
	if err := o.resolve(); err != nil {
		return nil, err
	}
	if err := o.askChecks(ctx, checks); err != nil {
		return nil, err
	}
	return o.lookResolved()
}

// openChecked is open with a node that refuses functions for which checks fail.
func (o *options) openChecked(ctx context.Context, checks *auditing, observe func(effects.Event)) (*node.Node, error) {
	if err := o.resolveWork(); err != nil {
		return nil, err
	}
	if err := o.askChecks(ctx, checks); err != nil {
		return nil, err
	}
	o.node.Observe = observe
	return node.Open(o.node)
}

// askChecks runs the checks of the audit on the node once, so that it refuses what `run` would refuse now.
func (o *options) askChecks(ctx context.Context, checks *auditing) error {
	fsys, err := sysfs.Open(o.node.Root)
	if err != nil {
		return &command.UsageError{Err: err}
	}
	failures, warnings, err := checks.checks().Gate(ctx, fsys, o.node.Node, o.node.Root)
	if err != nil {
		return errors.Join(err, fsys.Close())
	}
	for _, w := range warnings {
		fmt.Fprintf(checks.stderr(), "warning: %s\n", w)
	}
	o.node.Checks = failures
	return fsys.Close()
}

func (o *options) lookResolved() (*node.Node, error) {
	n, err := node.Look(o.node)
	if err != nil {
		return nil, &command.UsageError{Err: err}
	}
	return n, nil
}

// open opens the node for a command that works on it. Observe is called for each step.
func (o *options) open(observe func(effects.Event)) (*node.Node, error) {
	if err := o.resolveWork(); err != nil {
		return nil, err
	}
	o.node.Observe = observe
	return node.Open(o.node)
}

// resolveWork is resolve for a command that works on the node.
func (o *options) resolveWork() error {
	if err := o.resolve(); err != nil {
		return err
	}
	if err := writable(o.node.Root); err != nil {
		return err
	}
	o.node.Ledger.Actor = ledger.Actor{Component: "kata-vfio-plugin", Version: version(), PID: os.Getpid()}
	if o.node.Ledger.Node == "" {
		o.node.Ledger.Node = nodeName()
	}
	return nil
}

// nodeName returns the node's name if no flag sets it.
func nodeName() string {
	if name := os.Getenv("NODE_NAME"); name != "" {
		return name
	}
	// The kubelet registers a node by its host name unless --hostname-override or a cloud provider sets another.
	name, err := os.Hostname()
	if err != nil {
		return "unknown"
	}
	return name
}

// records returns the node's journal for reading. A root that does not exist is an error, because a wrong path must not look like an
// idle node.
func (o *options) records() (*journal.Store, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	if _, err := os.Stat(o.node.Root); err != nil {
		return nil, command.Usagef("open the node's root: %w", err)
	}
	return o.node.Records(), nil
}

// nodeConfig reads the node's config: the flag's file, the file at the default path, or the built-in default.
func (o *options) nodeConfig() (*v1alpha1.NodeConfig, error) {
	path := o.config
	if path == "" {
		path = filepath.Join(o.node.Root, facts.NodeConfigFile)
	}
	data, err := os.ReadFile(path)
	// Only the file at the default path may be missing: the default config selects every GPU, and a typing error must not.
	if errors.Is(err, fs.ErrNotExist) && o.config == "" {
		return nodeconfig.Default(), nil
	}
	if err != nil {
		return nil, command.Usagef("read the node config: %w", err)
	}
	cfg, err := v1alpha1.DecodeNodeConfig(data)
	if err != nil {
		return nil, command.Usagef("node config %s: %w", path, err)
	}
	return cfg, nil
}

// stages reads the document of sanitizing stages: the flag's file, or the file at the default path, which need not exist.
func (o *options) stages() (*v1alpha1.Sanitizers, error) {
	path := o.sanitizers
	if path == "" {
		path = filepath.Join(o.node.Root, v1alpha1.SanitizersFile)
	}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) && o.sanitizers == "" {
		return nil, nil
	}
	if err != nil {
		return nil, command.Usagef("read the sanitizing stages: %w", err)
	}
	s, err := v1alpha1.DecodeSanitizers(data)
	if err != nil {
		return nil, command.Usagef("sanitizing stages %s: %w", path, err)
	}
	return s, nil
}

// validate checks the flags beyond the flag parser's own checks.
func (o *options) validate() error {
	switch o.output {
	case "table", "json", "yaml":
		return nil
	}
	return command.Usagef("--output %q: want table, json or yaml", o.output)
}

// auditing are the flags of the checks that `run` runs.
type auditing struct {
	profile string
	counts  string
	waivers string
	// stderr returns the command's standard error, for warnings about the waivers.
	stderr func() io.Writer
	every  time.Duration
}

func (a *auditing) register(cmd *cobra.Command) {
	a.registerGate(cmd)
	cmd.Flags().DurationVar(&a.every, "audit-every", plugin.DefaultMonitorEvery, "how often to run the checks without a change of the node")
}

// registerGate registers the flags that say which failures refuse claims.
func (a *auditing) registerGate(cmd *cobra.Command) {
	a.stderr = cmd.ErrOrStderr
	profiles := finding.ProfileNames()
	f := cmd.Flags()
	f.StringVar(&a.profile, "audit-profile", profiles[0], "the node's use, which sets the severity of the audit's checks: "+strings.Join(profiles, ", "))
	f.StringVar(&a.counts, "audit-taint", string(rule.High), "least severity at which a check that fails taints devices and refuses claims:\n"+strings.Join(weights(), ", "))
	f.StringVar(&a.waivers, "audit-waivers", "", "`file` of accepted failures (YAML; see `kata-vfio-audit waive`), read before each run of the checks\n(default: <root>/etc/kata-vfio/waivers.yaml if it exists)")
	complete(cmd, "audit-profile", cobra.FixedCompletions(profiles, cobra.ShellCompDirectiveNoFileComp))
	complete(cmd, "audit-taint", cobra.FixedCompletions(weights(), cobra.ShellCompDirectiveNoFileComp))
	complete(cmd, "audit-waivers", yamlFiles)
}

// seldom is the longest time between two runs of the checks. The chart's alert waits twice as long.
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

// checks returns the checks according to the validated flags.
func (a *auditing) checks() plugin.Checks {
	// validateGate has refused an unknown profile.
	profile, _ := finding.ProfileNamed(a.profile)
	return plugin.Checks{Profile: profile, Counts: rule.Severity(a.counts), Waivers: a.waivers}
}

// plugging are the flags of how the RuntimeClass' VMs get their devices.
type plugging struct {
	hot       bool
	windowMiB uint32
}

func (p *plugging) register(f *pflag.FlagSet) {
	f.BoolVar(&p.hot, "hot-plug", false, "the RuntimeClass hot-plugs: accept a container whose sandbox booted without its device")
	f.Uint32Var(&p.windowMiB, "hot-plug-window", plan.FirmwareWindow>>20,
		"with --hot-plug: how many MiB a running VM has for the 32-bit BARs of a function; larger BARs are refused;\n0 refuses none")
}

// window returns the memory space that a VM has for a function's 32-bit BARs, in bytes; 0 for no limit.
func (p *plugging) window() uint64 {
	if !p.hot {
		return 0
	}
	return uint64(p.windowMiB) << 20
}
