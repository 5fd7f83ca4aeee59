package main

import (
	"bytes"

	"github.com/spf13/cobra"

	"github.com/kata-vfio/kata-vfio/pkg/audit/nodereport"
	"github.com/kata-vfio/kata-vfio/pkg/audit/posture"
	"github.com/kata-vfio/kata-vfio/pkg/cli/command"
)

func fleetCommand() *cobra.Command {
	var format, file string
	formats := command.Formats(posture.Formats())
	cmd := &cobra.Command{
		Use:   "fleet REPORT...|DIRECTORY",
		Short: "Show the posture of many nodes on one page",
		Long: "fleet reads reports of nodes (`node -o json`, directories of them, or the log of `node --every`; - for standard input)\n" +
			"and writes one page: nodes by groups of checks, the worst first, and each node's failures. If a node has several\n" +
			"reports, it compares the oldest with the latest one.\n" +
			"\n" +
			readingExitCodes,
		Example: "  kata-vfio-audit fleet /var/lib/kata-vfio/audit --file fleet.html\n  kata-vfio-audit fleet monday.ndjson tuesday.ndjson -o table",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return command.Usagef("want reports of nodes; see `%s --help`", cmd.CommandPath())
			}
			return nil
		},
		PreRunE: func(*cobra.Command, []string) error { return formats.Check(format) },
		RunE: func(cmd *cobra.Command, args []string) error {
			reports, err := nodereport.Read(cmd.InOrStdin(), args)
			if err != nil {
				return err
			}
			var page bytes.Buffer
			if err := posture.Of(reports).Write(&page, format); err != nil {
				return err
			}
			return deliver(page.Bytes(), file, cmd.OutOrStdout())
		},
	}
	formats.Flag(cmd, &format)
	cmd.Flags().StringVar(&file, "file", "", "write to this file instead of standard output")
	return cmd
}
