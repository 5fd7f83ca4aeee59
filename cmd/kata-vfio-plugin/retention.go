package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/kata-vfio/kata-vfio/pkg/cli/command"
	"github.com/kata-vfio/kata-vfio/pkg/ledger/writer"
)

// retention are the flags that say how much of the ledger `run` keeps. No other command has them, or drops events: it does not know
// what `run` was told to keep, and dropped events are gone for good.
type retention struct {
	age   time.Duration
	bytes int64
}

func (r *retention) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.DurationVar(&r.age, "ledger-retention", writer.DefaultRetain, "how long the ledger keeps events, in the time that the node runs; their hashes stay; 0 keeps them forever")
	f.Int64Var(&r.bytes, "ledger-max-bytes", writer.DefaultRetainBytes, "size of the ledger above which namespaces that use more than their share lose their oldest events, except for the hashes; 0 is unlimited")
}

// validate refuses negative limits, which would drop all events except for the newest file.
func (r *retention) validate() error {
	if r.age < 0 {
		return command.Usagef("--ledger-retention %v: want a positive duration such as 8760h, or 0 to keep events forever", r.age)
	}
	if r.bytes < 0 {
		return command.Usagef("--ledger-max-bytes %d: want a positive number of bytes, or 0 for no limit", r.bytes)
	}
	return nil
}

// limit sets the retention of a ledger.
func (r *retention) limit(c *writer.Config) { c.Retain, c.RetainBytes = r.age, r.bytes }
