package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kata-vfio/kata-vfio/pkg/audit/archive"
	"github.com/kata-vfio/kata-vfio/pkg/audit/check"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/audit/report"
	"github.com/kata-vfio/kata-vfio/pkg/cli/command"
	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

func checksCommand() *cobra.Command {
	var format, framework string
	var own []string
	formats := command.Formats(report.CatalogueFormats())
	cmd := &cobra.Command{
		Use:   "checks",
		Short: "List the checks, or what they support of a framework",
		Long: "checks lists all checks. With --mapping it lists the controls of a framework that they support, and why:\n" +
			"it does not claim compliance.\n" +
			"\n" +
			readingExitCodes,
		Example: "  kata-vfio-audit checks\n  kata-vfio-audit checks --mapping nist-800-53",
		Args:    command.NoArgs,
		PreRunE: func(*cobra.Command, []string) error { return formats.Check(format) },
		RunE: func(cmd *cobra.Command, _ []string) error {
			all, err := readRules(own)
			if err != nil {
				return err
			}
			if framework == "" {
				return report.WriteCatalogue(cmd.OutOrStdout(), all, format, reportOptions(cmd))
			}
			f, err := frameworkNamed(framework)
			if err != nil {
				return err
			}
			return report.WriteMapping(cmd.OutOrStdout(), f, all.Rules, format, reportOptions(cmd))
		},
	}
	formats.Flag(cmd, &format)
	cmd.Flags().StringVar(&framework, "mapping", "", "list what the checks support of a framework: "+strings.Join(finding.FrameworkIDs(), ", "))
	addRulesFlag(cmd, &own)
	_ = cmd.RegisterFlagCompletionFunc("mapping", cobra.FixedCompletions(finding.FrameworkIDs(), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func frameworkNamed(id string) (*finding.Framework, error) {
	all, err := finding.Frameworks()
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(all, func(f finding.Framework) bool { return f.ID == id })
	if i < 0 {
		return nil, command.Usagef("--mapping %q: want one of %s", id, strings.Join(finding.FrameworkIDs(), ", "))
	}
	return &all[i], nil
}

// oneRule is the Args of a command that takes one rule's id.
func oneRule(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return command.Usagef("want one check's ID, such as IOM-003; see `%s --help`", cmd.CommandPath())
	}
	all, err := flagRules(cmd)
	if err != nil {
		return err
	}
	if _, ok := ruleNamed(all, args[0]); !ok {
		return command.Usagef("there is no check %q; `kata-vfio-audit checks` lists them", args[0])
	}
	return nil
}

// oneRuleOrCode is the Args of a command that takes one check's ID or one code.
func oneRuleOrCode(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return command.Usagef("want one check's ID, such as IOM-003, or one code, such as GroupNotViable; see `%s --help`", cmd.CommandPath())
	}
	texts, err := rule.Texts()
	if err != nil {
		return err
	}
	all, err := flagRules(cmd)
	if err != nil {
		return err
	}
	_, isRule := ruleNamed(all, args[0])
	if _, isCode := rule.Find(texts, args[0]); !isRule && !isCode {
		return command.Usagef("there is no check and no code %q%s; `kata-vfio-audit checks` lists the checks, and the shell completes both",
			args[0], command.SimilarCode(texts, args[0]))
	}
	return nil
}

// explainCode writes the meaning of a code, which [oneRuleOrCode] has found.
func explainCode(cmd *cobra.Command, format, code string) error {
	if cmd.Flags().Changed("root") {
		return command.Usagef("%s is a code: --root goes with a check's ID, and `kata-vfio-audit node` shows what fails", code)
	}
	texts, err := rule.Texts()
	if err != nil {
		return err
	}
	text, _ := rule.Find(texts, code)
	return command.WriteCode(cmd.OutOrStdout(), format, text)
}

// completeRuleOrCode completes IDs and codes.
func completeRuleOrCode(cmd *cobra.Command, args []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
	ids, directive := completeRule(cmd, args, word)
	codes, _ := command.CompleteCodes(cmd, args, word)
	return append(ids, codes...), directive
}

// ruleNamed returns the rule of an id, in any letter case.
func ruleNamed(all *rule.Catalogue, id string) (*rule.Rule, bool) {
	return all.Rule(strings.ToUpper(id))
}

// completeRule completes ids.
func completeRule(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	all, err := flagRules(cmd)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var ids []cobra.Completion
	if len(args) == 0 {
		for _, r := range all.Rules {
			ids = append(ids, cobra.CompletionWithDesc(r.ID, r.Title))
		}
	}
	return ids, cobra.ShellCompDirectiveNoFileComp
}

func evalCommand(t *tree) *cobra.Command {
	j := newJudging(report.Formats())
	cmd := &cobra.Command{
		Use:   "eval ARCHIVE",
		Short: "Judge an archive that collect made",
		Long: "eval judges an archive as `kata-vfio-audit node` judges a node, by the rules of this version. Data that an older\n" +
			"collector did not copy is unknown. Waivers expire by today's date.\n" +
			"The archive is not trusted: eval unpacks it into a private temporary directory, within limits, and removes it.\n" +
			"\n" +
			nodeExitCodes,
		Example: "  kata-vfio-audit collect --file node7.tgz\n  kata-vfio-audit eval node7.tgz -o json",
		Args:    command.ExactArgs(1, "an archive"),
		PreRunE: func(*cobra.Command, []string) error { return j.check() },
		RunE: func(cmd *cobra.Command, args []string) error {
			if !archive.Is(args[0]) {
				return command.Usagef("there is no file %s, or it is a directory; eval wants an archive of `kata-vfio-audit collect`", args[0])
			}
			t.root = args[0]
			return t.report(cmd, j)
		},
	}
	j.flags(cmd)
	return cmd
}

func explainCommand(t *tree) *cobra.Command {
	j := newJudging(nil)
	formats := command.Formats(report.ExplainFormats())
	cmd := &cobra.Command{
		Use:   "explain ID | CODE",
		Short: "Explain a check or a code: what it means, why, how to fix it, and its sources",
		Long: "explain shows what a check asks, why, and how to fix a failure. With --root it also runs the check on a node, and\n" +
			"shows the result and everything that it read: --root / is this machine.\n" +
			"\n" +
			"A code is the reason of a condition or an Event, the value or key of a taint, or the word in parentheses behind a refusal.\n" +
			"explain shows what it means, what to do, and who can do it.\n" +
			"\n" +
			readingExitCodes,
		Example:           "  kata-vfio-audit explain IOM-003\n  kata-vfio-audit explain IOM-003 --root /\n  kata-vfio-audit explain GroupNotViable",
		Args:              oneRuleOrCode,
		ValidArgsFunction: completeRuleOrCode,
		PreRunE: func(*cobra.Command, []string) error {
			if err := formats.Check(j.format); err != nil {
				return err
			}
			return j.checkProfile()
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			r, isRule := ruleNamed(j.rules, args[0])
			if !isRule {
				return explainCode(cmd, j.format, args[0])
			}
			doc, err := t.answers(cmd, j, r.ID)
			if err != nil {
				return err
			}
			return report.WriteExplanation(cmd.OutOrStdout(), r, doc, j.format, reportOptions(cmd))
		},
	}
	formats.Flag(cmd, &j.format)
	j.profileFlags(cmd)
	return cmd
}

// answers returns the node's findings of one rule; nil if the user named no node.
func (t *tree) answers(cmd *cobra.Command, j *judging, id string) (*report.Document, error) {
	if !cmd.Flags().Changed("root") {
		return nil, nil
	}
	is := func(c check.Check) bool { return c.ID == id }
	checks := j.checks
	i := slices.IndexFunc(checks, is)
	if i < 0 {
		return nil, command.Usagef("%s is a check of the cluster, not of a node: run `kata-vfio-audit cluster`", id)
	}
	if checks[i].Review == nil { // a check with a Review judges the findings of all others
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
	formats := command.Formats{"table", "json", "yaml"}
	cmd := &cobra.Command{
		Use:   "profiles",
		Short: "List the profiles and the severities that each changes",
		Long: "profiles lists the profiles of a node, and the checks whose severity each one changes; off: the check does not run.\n" +
			"\n" +
			readingExitCodes,
		Args:    command.NoArgs,
		PreRunE: func(*cobra.Command, []string) error { return formats.Check(format) },
		RunE: func(cmd *cobra.Command, _ []string) error {
			return report.WriteProfiles(cmd.OutOrStdout(), finding.Profiles(), format, reportOptions(cmd))
		},
	}
	formats.Flag(cmd, &format)
	return cmd
}

// reportOptions fit a command's output.
func reportOptions(cmd *cobra.Command) report.Options {
	out := cmd.OutOrStdout()
	return report.Options{Color: output.Colorful(out), Width: output.Width(out)}
}
