package main

import (
	"io"
	"testing"

	"github.com/spf13/cobra"

	"github.com/kata-vfio/kata-vfio/test/docs"
)

// What the documents tell people to run must be there.
func TestDocumentsRunCommandsThatExist(t *testing.T) {
	docs.CheckCommands(t, "kata-vfio-plugin", func() *cobra.Command { return newCommand(io.Discard, io.Discard) }, docs.All(t)...)
}
