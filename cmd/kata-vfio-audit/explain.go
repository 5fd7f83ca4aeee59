package main

import (
	"slices"

	"github.com/spf13/cobra"

	"github.com/kata-vfio/kata-vfio/pkg/audit/check"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/audit/report"
	"github.com/kata-vfio/kata-vfio/pkg/cli/command"
	"github.com/kata-vfio/kata-vfio/pkg/cli/terminal"
)

func explainCommand(t *tree) *cobra.Command {
	j := newJudging(nil)
	formats := command.Formats(report.ExplainFormats())
	cmd := &cobra.Command{
		Use:   "explain ID",
		Short: "Explain a check: what it asks, why, what to do, and where that is from",
		Long: "explain says all that is known of a check. With --root it asks the node, too, and shows what it answered and\n" +
			"everything that was looked at for it: --root / is this machine.\n\n" + readingExitCodes,
		Example:           "  kata-vfio-audit explain IOM-003\n  kata-vfio-audit explain IOM-003 --root /",
		Args:              oneRule,
		ValidArgsFunction: completeRule,
		PreRunE: func(*cobra.Command, []string) error {
			if err := formats.Check(j.format); err != nil {
				return err
			}
			return j.checkProfile()
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			r, _ := ruleNamed(args[0])
			doc, err := t.answers(cmd, j, r.ID)
			if err != nil {
				return err
			}
			return report.WriteExplanation(cmd.OutOrStdout(), &r, doc, j.format, terminal.Colorful(cmd.OutOrStdout()))
		},
	}
	formats.Flag(cmd, &j.format)
	j.profileFlags(cmd)
	return cmd
}

// answers is what the node says of one rule, nil where the user named no node.
func (t *tree) answers(cmd *cobra.Command, j *judging, id string) (*report.Document, error) {
	if !cmd.Flags().Changed("root") {
		return nil, nil
	}
	is := func(c check.Check) bool { return c.ID == id }
	checks := check.Catalogue()
	i := slices.IndexFunc(checks, is)
	if i < 0 {
		return nil, command.Usagef("%s is asked of a cluster, not of a node: `kata-vfio-audit cluster` has its answer", id)
	}
	if checks[i].Review == nil { // else it is about what all others say
		checks = checks[i : i+1]
	}
	doc, err := t.judge(cmd.Context(), j, checks)
	if err != nil {
		return nil, err
	}
	doc.Findings = slices.DeleteFunc(doc.Findings, func(f finding.Finding) bool { return f.ID != id })
	return doc, nil
}

func profilesCommand() *cobra.Command {
	var format string
	formats := command.Formats{"table", "json"}
	cmd := &cobra.Command{
		Use:     "profiles",
		Short:   "List the profiles, and what checks weigh in each",
		Long:    "profiles lists what a node can be judged as, and the checks whose severity is another then; off: not asked.\n\n" + readingExitCodes,
		Args:    command.NoArgs,
		PreRunE: func(*cobra.Command, []string) error { return formats.Check(format) },
		RunE: func(cmd *cobra.Command, _ []string) error {
			return report.WriteProfiles(cmd.OutOrStdout(), finding.Profiles(), format)
		},
	}
	formats.Flag(cmd, &format)
	return cmd
}
