package main

import (
	"io"
	"testing"

	"github.com/spf13/cobra"

	"github.com/kata-vfio/kata-vfio/test/docs"
)

// The commands in the documents must exist.
func TestDocumentsRunCommandsThatExist(t *testing.T) {
	docs.CheckCommands(t, "kata-vfio-plugin", func() *cobra.Command { return newCommand(io.Discard, io.Discard) }, docs.All(t)...)
}
