package main

import (
	"io"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kata-vfio/kata-vfio/test/docs"
)

// The commands in the documents must exist.
func TestDocumentsRunCommandsThatExist(t *testing.T) {
	docs.CheckCommands(t, "kata-vfio-audit", func() *cobra.Command { return newCommand(io.Discard, io.Discard) }, append(docs.All(t), docs.Evidence)...)
}

// Manuals are made of the help: one that had the time in it would make each release another.
func TestHelpShowsNoTime(t *testing.T) {
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if _, err := time.Parse(time.RFC3339, f.DefValue); err == nil {
				t.Errorf("%s: --%s is %s where it is not given", cmd.CommandPath(), f.Name, f.DefValue)
			}
		})
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(newCommand(io.Discard, io.Discard))
}
