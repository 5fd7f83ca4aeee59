package main

import (
	"bytes"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/kata-vfio/kata-vfio/pkg/audit/fleet"
	"github.com/kata-vfio/kata-vfio/pkg/audit/report"
	"github.com/kata-vfio/kata-vfio/pkg/cli/command"
	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
)

func fleetCommand() *cobra.Command {
	var format, file, nodeName string
	var in report.Period
	formats := command.Formats(report.FleetFormats())
	cmd := &cobra.Command{
		Use:   "fleet REPORT...|DIRECTORY",
		Short: "Show the posture of many nodes on one page",
		Long: "fleet reads reports of nodes (`node -o json`, directories of them, or the log of `node --every`; - for standard input)\n" +
			"and writes one page: nodes by groups of checks, the worst first, and each node's failures. If a node has several\n" +
			"reports, it compares the oldest with the latest one, or those of the days from --from to --to.\n" +
			"\n" +
			readingExitCodes,
		Example: "  kata-vfio-audit fleet /var/lib/kata-vfio/audit --file fleet.html\n  kata-vfio-audit fleet monday.ndjson tuesday.ndjson -o table\n" +
			"  kata-vfio-audit fleet /var/lib/kata-vfio/audit --from 2026-11-01 --to 2026-11-25 -o table",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return command.Usagef("want reports of nodes; see `%s --help`", cmd.CommandPath())
			}
			return nil
		},
		PreRunE: func(*cobra.Command, []string) error {
			if err := in.Check(); err != nil {
				return command.Usagef("%w", err)
			}
			return formats.Check(format)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			reports, err := fleet.ReadReports(cmd.InOrStdin(), args, nodeName)
			if err != nil {
				return err
			}
			reports, refused := fleet.CredibleReports(reports, time.Now())
			for _, r := range refused {
				if _, err := fmt.Fprintf(cmd.ErrOrStderr(), "warning: node %s (%s) %s\n", output.Visible(r.Report.Subject.Name), r.Report.Subject.Time, r.Why); err != nil {
					return err
				}
			}
			f := report.NewFleet(reports, in)
			if len(f.Nodes) == 0 {
				return command.Usagef("no report is %s: choose other days with --from and --to", in)
			}
			width := 0
			if file == "" {
				width = output.TableWidth(cmd.OutOrStdout())
			}
			var page bytes.Buffer
			if err := f.Write(&page, format, width); err != nil {
				return err
			}
			return deliver(page.Bytes(), file, cmd.OutOrStdout())
		},
	}
	formats.Flag(cmd, &format)
	cmd.Flags().StringVar(&file, "file", "", "write to this file instead of standard output")
	cmd.Flags().StringVar(&in.From, "from", "", "first day whose reports count, such as 2026-11-01 (UTC)")
	cmd.Flags().StringVar(&in.To, "to", "", "last day whose reports count, such as 2026-11-25 (UTC)")
	cmd.Flags().StringVar(&nodeName, "node-name", "", nodeNameUsage)
	return cmd
}
