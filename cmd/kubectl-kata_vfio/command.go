package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/kata-vfio/kata-vfio/pkg/audit/fleet"
	"github.com/kata-vfio/kata-vfio/pkg/cli/command"
)

// root returns the command tree. Results go to stdout, warnings to stderr.
func (s *session) root(stdout, stderr io.Writer) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "kubectl-kata_vfio",
		Short: "Show PCI devices, their claims, and why a claim or device is in its state",
		Long: "kubectl kata-vfio shows through the API server the devices that kata-vfio's nodes publish, the claims that have them,\n" +
			"failed audit checks, and why a claim, pod or device is in its state. It needs only get, list and watch: of claims,\n" +
			"pods and events, which the role `view` grants in a namespace, and of ResourceSlices (the chart's ClusterRole\n" +
			"kata-vfio-view).\n" +
			"\n" +
			exitCodes(),
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl kata-vfio"},
		Args:        command.NoSubcommand,
		RunE:        func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	command.Setup(cmd, stdout, stderr)
	s.kube.AddAll(cmd)
	cmd.AddCommand(
		statusCommand(s), devicesCommand(s), claimsCommand(s), topologyCommand(s), auditCommand(s), explainCommand(s), conformanceCommand(s),
		classesCommand(s), lintCommand(s), sysdumpCommand(s), testCommand(s), drainCommand(s), undrainCommand(s), quarantineCommand(s),
		completionCommand(),
	)
	command.AddVersion(cmd, "kubectl kata-vfio "+command.Build())
	return cmd
}

// completionScript is the program that kubectl runs to complete a plugin's command line:
// kubectl_complete-<plugin> on the PATH, with the output of cobra's __complete.
const completionScript = "#!/bin/sh\nexec kubectl kata-vfio __complete \"$@\"\n"

func completionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "completion",
		Short: "Print the script that lets kubectl complete this plugin's command lines",
		Long: "completion prints a script for a file kubectl_complete-kata_vfio on the PATH. kubectl runs the file if its own completion\n" +
			"is set up (`kubectl completion --help`).",
		Example: "  kubectl kata-vfio completion > ~/.local/bin/kubectl_complete-kata_vfio && chmod +x ~/.local/bin/kubectl_complete-kata_vfio",
		Args:    command.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, err := fmt.Fprint(cmd.OutOrStdout(), completionScript); err != nil {
				return fmt.Errorf("write script: %w", err)
			}
			return nil
		},
	}
}

// completionLimit is the time that a completion may wait for a list.
const completionLimit = 3 * time.Second

// complete lists the objects for a completion, and returns their names. It returns none if
// the cluster can't be read, because a completion can't show an error.
func (s *session) complete(cmd *cobra.Command, w want, names func(*fleet.State) []string) ([]string, cobra.ShellCompDirective) {
	client, namespace, err := s.connect()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completionLimit)
	defer cancel()
	// Each Tab runs the program: the limit keeps the shell usable when the API server does not answer.
	w.namespace, w.now = namespace, s.now
	state, err := w.read(ctx, client)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	found := names(state)
	slices.Sort(found)
	return slices.Compact(found), cobra.ShellCompDirectiveNoFileComp
}

// completeNodes completes a flag by nodes that publish something.
func (s *session) completeNodes(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return s.complete(cmd, want{needs: []fleet.Kind{fleet.Slices}}, (*fleet.State).Nodes)
}

// completeNode completes the one argument.
func (s *session) completeNode(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return s.completeNodes(cmd, args, word)
}

// completeExplain offers the namespace's claims and pods, and devices.
func (s *session) completeExplain(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	w := want{also: []fleet.Kind{fleet.Claims, fleet.Classes, fleet.Pods, fleet.Slices}}
	return s.complete(cmd, w, func(state *fleet.State) []string {
		var names []string
		for _, c := range state.ClaimRows() {
			names = append(names, c.Name)
		}
		for _, p := range state.Cluster.Pods() {
			names = append(names, p.Object.Name)
		}
		for _, d := range state.Devices() {
			names = append(names, d.Node+"/"+d.Name)
		}
		return names
	})
}
