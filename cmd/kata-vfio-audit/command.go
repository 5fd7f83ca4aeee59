package main

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/kata-vfio/kata-vfio/pkg/command"
)

// Exit codes, as the help documents them.
const (
	exitFailed = command.Failed
	exitUsage  = command.Usage
	// exitFindings: something fails at the severity that was asked about.
	exitFindings = 3
	// exitUndetermined: nothing does, but not all could be told.
	exitUndetermined = 4
	// exitLedger: the ledger, or a bundle of it, does not verify.
	exitLedger = 5
)

const exitCodes = `Exit codes:
  0  done, whatever the verdicts say
  1  the node or tree could not be read, or the output not written
  2  the command line is wrong`

// newCommand returns the command tree. Results go to stdout, warnings to stderr.
func newCommand(stdout, stderr io.Writer) *cobra.Command {
	var t tree
	cmd := &cobra.Command{
		Use:   "kata-vfio-audit",
		Short: "Show a node's PCI functions and how well each is isolated",
		Long: "kata-vfio-audit reads a node, or a captured copy of one, and says of every PCI function whether a VM\n" +
			"that has it is kept apart from the rest of the node: why not, by which evidence, and what to do.\n" +
			"It changes nothing. Run it as root: the kernel shows ACS and ATS to nobody else.\n\n" + exitCodes,
		Args: command.NoSubcommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	command.Setup(cmd, stdout, stderr)
	cmd.PersistentFlags().StringVar(&t.root, "root", "/", "the node's root: / or a directory that holds sys, proc, dev and lib")
	cmd.AddCommand(nodeCommand(&t), clusterCommand(), podCommand(&t), claimCommand(&t), deviceCommand(&t), whoCommand(&t), neighboursCommand(&t), verifyCommand(), devicesCommand(&t), topologyCommand(&t), command.Version(cmd.Name()+" "+command.Build()))
	return cmd
}
