package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/cli/command"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/ledger/writer"
	"github.com/kata-vfio/kata-vfio/pkg/node"
	"github.com/kata-vfio/kata-vfio/pkg/nodeconfig"
	"github.com/kata-vfio/kata-vfio/pkg/prepare"
)

// options are the flags that all commands share.
type options struct {
	node   node.Config
	config string
	output string
}

// register adds the flags of all commands.
func (o *options) register(cmd *cobra.Command) {
	f := cmd.PersistentFlags()
	f.StringVar(&o.node.Root, "root", "/", "the node's root: a directory that holds sys, proc, dev, lib, run and var")
	f.StringVar(&o.config, "config", "", "the node's NodeConfig file (default: <root>/etc/kata-vfio/node.yaml if it is there,\nelse every GPU and VF is ours, on demand)")
	f.StringVarP(&o.output, "output", "o", "table", "output format: table, json or yaml")
	f.StringVar(&o.node.StateDir, "state-dir", node.DefaultStateDir, "where the journal lies, below the root")
	complete(cmd, "root", cobra.FixedCompletions(nil, cobra.ShellCompDirectiveFilterDirs))
	complete(cmd, "config", yamlFiles)
	complete(cmd, "output", cobra.FixedCompletions([]string{"table", "json", "yaml"}, cobra.ShellCompDirectiveNoFileComp))
}

// registerWork adds the flags of the commands that work on the node.
func (o *options) registerWork(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.node.RunDir, "run-dir", node.DefaultRunDir, "where locks lie, below the root")
	f.StringVar(&o.node.CDIDir, "cdi-dir", node.DefaultCDIDir, "where the runtimes read CDI specs (/var/run/cdi), below the root")
	f.StringVar(&o.node.Ledger.Dir, "ledger-dir", "", "where the ledger lies, below the root (default: ledger in --state-dir)")
	f.DurationVar(&o.node.Ledger.Retain, "ledger-retention", writer.DefaultRetain, "how long the ledger keeps events; their hashes stay; 0 is for ever")
	f.Int64Var(&o.node.Ledger.RetainBytes, "ledger-max-bytes", writer.DefaultRetainBytes, "how large the ledger may be before its oldest events are dropped but for their hashes; 0 is without limit")
	f.BoolVar(&o.node.Ledger.Pseudonyms, "ledger-pseudonyms", false, "replace the names of namespaces, pods and claims in the ledger by a keyed hash, whose key lies beside it")
	f.DurationVar(&o.node.WriteLimit, "write-limit", node.DefaultWriteLimit, "how long one write to sysfs may take before the function is fenced; a reset may take six times as long")
}

// waitFlag adds the flag of the commands that take devices back.
func waitFlag(cmd *cobra.Command, usual time.Duration) *time.Duration {
	return cmd.Flags().Duration("holder-wait", usual, "how long to wait for a process that has the device open to end")
}

// complete sets what the shell offers for a flag's value.
func complete(cmd *cobra.Command, flag string, values cobra.CompletionFunc) {
	_ = cmd.RegisterFlagCompletionFunc(flag, values) // fails only for a flag that is not there, or set twice
}

// yamlFiles offers the files that a claim or a config may be in.
func yamlFiles(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return []cobra.Completion{"yaml", "yml", "json"}, cobra.ShellCompDirectiveFilterFileExt
}

// resolve checks the options and reads the node's config.
func (o *options) resolve() error {
	if err := o.validate(); err != nil {
		return err
	}
	var err error
	o.node.Node, err = o.nodeConfig()
	return err
}

// look opens the node for a command that changes nothing.
func (o *options) look() (*node.Node, error) {
	if err := o.resolve(); err != nil {
		return nil, err
	}
	n, err := node.Look(o.node)
	if err != nil {
		return nil, &command.UsageError{Err: err}
	}
	return n, nil
}

// open opens the node for a command that works on it and tells observe.
func (o *options) open(observe func(prepare.Event)) (*node.Node, error) {
	if err := o.resolve(); err != nil {
		return nil, err
	}
	if err := writable(o.node.Root); err != nil {
		return nil, err
	}
	o.node.Observe = observe
	o.node.Ledger.Actor = ledger.Actor{Component: "kata-vfio-plugin", Version: version(), PID: os.Getpid()}
	if o.node.Ledger.Node == "" {
		o.node.Ledger.Node = nodeName()
	}
	return node.Open(o.node)
}

// nodeName is the node's name where no flag says it.
func nodeName() string {
	if name := os.Getenv("NODE_NAME"); name != "" {
		return name
	}
	name, err := os.Hostname()
	if err != nil {
		return "unknown"
	}
	return name
}

// records returns the node's journal for reading. A root that is not there has
// no claims either, but a wrong path must not read as an idle node.
func (o *options) records() (*journal.Store, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	if _, err := os.Stat(o.node.Root); err != nil {
		return nil, command.Usagef("open the node's root: %w", err)
	}
	return o.node.Records(), nil
}

// nodeConfig reads the node's config: the file that the flag names, the one
// at the usual place, or the default.
func (o *options) nodeConfig() (*v1alpha1.NodeConfig, error) {
	path := o.config
	if path == "" {
		path = filepath.Join(o.node.Root, "etc/kata-vfio/node.yaml")
	}
	data, err := os.ReadFile(path)
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

// validate checks what no flag parser does.
func (o *options) validate() error {
	switch o.output {
	case "table", "json", "yaml":
		return nil
	}
	return command.Usagef("--output %q: want table, json or yaml", o.output)
}
