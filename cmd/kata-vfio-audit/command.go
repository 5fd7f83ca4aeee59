package main

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/kata-vfio/kata-vfio/pkg/cli/command"
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

// allExitCodes are those of all commands; each documents its own.
const allExitCodes = `Exit codes:
  0  nothing fails that was asked about; of commands that only show, always
  1  the node, tree or file could not be read, or the output not written
  2  the command line, or a file that it names, is wrong
  3  something fails at the severity of --fail-on or worse
  4  nothing does, but with --strict: some checks could not tell
  5  the ledger does not verify`

const readingExitCodes = `Exit codes:
  0  done
  1  the node or tree could not be read, or the output not written
  2  the command line, or a file that it names, is wrong`

const exitCodes = `Exit codes:
  0  done, whatever the verdicts say
  1  the node or tree could not be read, or the output not written
  2  the command line is wrong`

// newCommand returns the command tree. Results go to stdout, warnings to stderr.
func newCommand(stdout, stderr io.Writer) *cobra.Command {
	var t tree
	cmd := &cobra.Command{
		Use:   "kata-vfio-audit",
		Short: "Judge how well a node keeps the tenants of its PCI devices apart",
		Long: "kata-vfio-audit reads a node, or a captured copy of one, and says whether VMs that have PCI devices are kept\n" +
			"apart from each other and from the node: what is wrong, who is in reach, by which evidence, and what to do.\n" +
			"It changes nothing. Run it as root: the kernel shows ACS and ATS to nobody else.\n\n" + allExitCodes,
		Args: command.NoSubcommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	command.Setup(cmd, stdout, stderr)
	cmd.PersistentFlags().StringVar(&t.root, "root", "/", "the node's root: / or a directory that holds sys, proc, dev and lib, or an archive of collect")
	cmd.AddCommand(
		nodeCommand(&t), explainCommand(&t), checksCommand(), profilesCommand(), waiveCommand(), devicesCommand(&t), topologyCommand(&t), sandboxesCommand(&t), handlersCommand(&t),
		clusterCommand(), collectCommand(&t), gatherCommand(&t), evalCommand(&t), diffCommand(&t),
		podCommand(&t), claimCommand(&t), deviceCommand(&t), whoCommand(&t), neighboursCommand(&t), ledgerCommand(&t), verifyCommand(),
		command.Version(cmd.Name()+" "+command.Build()),
	)
	return cmd
}
