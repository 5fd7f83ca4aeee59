package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding/mapping"
	"github.com/kata-vfio/kata-vfio/pkg/audit/report"
	"github.com/kata-vfio/kata-vfio/pkg/cli/command"
)

func checksCommand() *cobra.Command {
	var format, framework string
	formats := command.Formats(report.CatalogueFormats())
	cmd := &cobra.Command{
		Use:   "checks",
		Short: "List the checks, or what they support of a framework",
		Long: "checks lists all checks. With --mapping it lists the controls of a framework that they support, and why:\n" +
			"it never says that somebody complies.\n\n" + readingExitCodes,
		Example: "  kata-vfio-audit checks\n  kata-vfio-audit checks --mapping nist-800-53",
		Args:    command.NoArgs,
		PreRunE: func(*cobra.Command, []string) error { return formats.Check(format) },
		RunE: func(cmd *cobra.Command, _ []string) error {
			if framework == "" {
				return report.WriteCatalogue(cmd.OutOrStdout(), allRules(), format)
			}
			f, err := frameworkNamed(framework)
			if err != nil {
				return err
			}
			return report.WriteMapping(cmd.OutOrStdout(), f, allRules(), format)
		},
	}
	formats.Flag(cmd, &format)
	cmd.Flags().StringVar(&framework, "mapping", "", "list what the checks support of a framework: "+strings.Join(mapping.IDs(), ", "))
	_ = cmd.RegisterFlagCompletionFunc("mapping", cobra.FixedCompletions(mapping.IDs(), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func frameworkNamed(id string) (*mapping.Framework, error) {
	all, err := mapping.Frameworks()
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(all, func(f mapping.Framework) bool { return f.ID == id })
	if i < 0 {
		return nil, command.Usagef("--mapping %q: want one of %s", id, strings.Join(mapping.IDs(), ", "))
	}
	return &all[i], nil
}
