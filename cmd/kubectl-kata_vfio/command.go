package main

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/kata-vfio/kata-vfio/pkg/cli/command"
)

// Exit codes, as the help documents them.
const (
	// exitFindings: `audit` was asked, and something fails.
	exitFindings = 3
	// exitForbidden: the user may not list what the command shows.
	exitForbidden = 4
	// exitNotFound: there is no such claim, pod, node or device.
	exitNotFound = 5
)

const exitCodes = `Exit codes:
  0  done; with --watch, ended by a signal
  1  the API server could not be asked, or the output not written
  2  the command line, the kubeconfig, or a file that is named, is wrong
  3  audit: something fails at the severity of --fail-on or worse
  4  you may not list what the command shows
  5  there is no such claim, pod, node or device`

// root returns the command tree. Results go to stdout, warnings to stderr.
func (s *session) root(stdout, stderr io.Writer) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "kubectl-kata_vfio",
		Short: "Show who has which PCI device, how claims fare, and why",
		Long: "kubectl kata-vfio shows through the API server the devices that kata-vfio's nodes publish, who has which, how claims\n" +
			"fare, what fails the audit, and why something is as it is. It needs get, list and watch, no more: of claims, pods and\n" +
			"events, which the role `view` gives in a namespace, and of ResourceSlices for what nodes publish (the chart's\n" +
			"ClusterRole kata-vfio-view).\n\n" + exitCodes,
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl kata-vfio"},
		Args:        command.NoSubcommand,
		RunE:        func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	command.Setup(cmd, stdout, stderr)
	s.kube.AddAll(cmd)
	cmd.AddCommand(
		devicesCommand(s), claimsCommand(s), topologyCommand(s), auditCommand(s), explainCommand(s),
		completionCommand(), command.Version("kubectl-kata_vfio "+command.Build()),
	)
	return cmd
}
