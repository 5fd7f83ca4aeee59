package main

import (
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/kata-vfio/kata-vfio/pkg/ledger/writer"
)

// TestOnlyRunDropsEvents: a command that an operator runs by hand opens the ledger without limits, whatever `run` has.
func TestOnlyRunDropsEvents(t *testing.T) {
	var opts options
	root := &cobra.Command{}
	root.AddCommand(prepareCommand(&opts), unprepareCommand(&opts), recoverCommand(&opts), provisionCommand(&opts), drainCommand(&opts),
		undrainCommand(&opts), quarantineCommand(&opts), runCommand(&opts))
	if got := opts.node.Ledger; got.Retain != 0 || got.RetainBytes != 0 {
		t.Errorf("commands keep events for %v and %d bytes, want no limit", got.Retain, got.RetainBytes)
	}
	for _, cmd := range append(root.Commands(), quarantineClearCommand(&opts), acceptFirmwareCommand(&opts)) {
		for _, flag := range []string{"ledger-retention", "ledger-max-bytes"} {
			if got, want := cmd.Flags().Lookup(flag) != nil, cmd.Name() == "run"; got != want {
				t.Errorf("%s has --%s: %t, want %t", cmd.Name(), flag, got, want)
			}
		}
	}
	var c writer.Config
	limits := retention{age: time.Hour, bytes: 4096}
	if limits.limit(&c); c.Retain != time.Hour || c.RetainBytes != 4096 {
		t.Errorf("got a ledger with %v and %d bytes, want those of `run`", c.Retain, c.RetainBytes)
	}
}
