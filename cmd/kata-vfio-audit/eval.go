package main

import (
	"github.com/spf13/cobra"

	"github.com/kata-vfio/kata-vfio/pkg/audit/archive"
	"github.com/kata-vfio/kata-vfio/pkg/audit/report"
	"github.com/kata-vfio/kata-vfio/pkg/cli/command"
)

func evalCommand(t *tree) *cobra.Command {
	j := newJudging(report.Formats())
	cmd := &cobra.Command{
		Use:   "eval ARCHIVE",
		Short: "Judge a node by an archive that collect made",
		Long: "eval does with an archive what `kata-vfio-audit node` does with a node, by the rules of this version. What the\n" +
			"archive does not tell, since an older collector did not look, is unknown. Dates of waivers are held against today.\n" +
			"The archive is not trusted: it is unpacked into a private directory for temporary files, within limits, and removed.\n\n" + nodeExitCodes,
		Example: "  kata-vfio-audit collect -f node7.tgz\n  kata-vfio-audit eval node7.tgz -o json",
		Args:    command.ExactArgs(1, "an archive"),
		PreRunE: func(*cobra.Command, []string) error { return j.check() },
		RunE: func(cmd *cobra.Command, args []string) error {
			if !archive.Is(args[0]) {
				return command.Usagef("%s is no file; eval wants an archive of `kata-vfio-audit collect`", args[0])
			}
			t.root = args[0]
			return t.report(cmd, j)
		},
	}
	j.flags(cmd)
	return cmd
}
