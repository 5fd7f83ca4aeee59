package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kata-vfio/kata-vfio/pkg/audit/check"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/audit/report"
	"github.com/kata-vfio/kata-vfio/pkg/cli/command"
	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

func rulesCommand(t *tree) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rules",
		Short: "Test your own rules",
		Args:  command.NoSubcommand,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(rulesTestCommand(t))
	return cmd
}

// ownRulesHelp describes the files of rules.
const ownRulesHelp = "A rule of your own compares settings of a node's kernel with values:\n" +
	"\n" +
	"  rules:\n" +
	"    - id: ORG-001                # ORG-001 to ORG-999\n" +
	"      title: Ensure that root can't start another kernel\n" +
	"      severity: high             # critical, high, medium, low, info\n" +
	"      why: It would boot without the checks of Secure Boot.\n" +
	"      fix: put `kernel.kexec_load_disabled=1` into /etc/sysctl.d\n" +
	"      settings:                  # each must be in order\n" +
	"        - sysctl: kernel.kexec_load_disabled\n" +
	"          values: [\"1\"]          # the good values\n" +
	"        - parameter: kvm_intel.nested\n" +
	"          values: [\"N\"]\n" +
	"          absent: accept         # a node without the module is in order; without this line it fails\n" +
	"        - argument: mitigations  # of the kernel's command line\n" +
	"          forbidden: [\"off\"]     # instead of values: the bad ones; \"*\" is every value\n" +
	"\n" +
	"A rule may also have verify (a command by which a person sees the same) and sources (a list of texts).\n"

func rulesTestCommand(t *tree) *cobra.Command {
	var format string
	var expected []string
	formats := command.Formats{"table", "json", "yaml"}
	cmd := &cobra.Command{
		Use:   "test FILE|DIRECTORY...",
		Short: "Check files of your own rules, and judge a node or an archive by these rules only",
		Long: "test reads your own rules, and refuses what the audit would refuse. With --root, it judges a node (--root /) or an archive of\n" +
			"`collect` by them, and by nothing else. --expect makes it a test: it fails if a rule has another result.\n" +
			"\n" +
			ownRulesHelp +
			"\n" +
			"Exit codes:\n" +
			"  0  the rules are in order, and have the results of --expect\n" +
			"  1  the node or archive could not be read, or the output could not be written\n" +
			"  2  the command line or a rule is wrong\n" +
			"  3  a rule has another result than --expect says",
		Example: "  kata-vfio-audit rules test rules.yaml\n  kata-vfio-audit rules test rules.yaml --root node7.tgz --expect ORG-001=pass --expect ORG-002=fail",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return command.Usagef("want a file of rules; see `%s --help`", cmd.CommandPath())
			}
			return nil
		},
		PreRunE: func(*cobra.Command, []string) error { return formats.Check(format) },
		RunE: func(cmd *cobra.Command, args []string) error {
			j := &judging{profile: finding.ProfileNames()[0], ownRules: args}
			if err := j.checkProfile(); err != nil {
				return err
			}
			want, err := readExpected(j.rules, expected, cmd.Flags().Changed("root"))
			if err != nil {
				return err
			}
			if !cmd.Flags().Changed("root") {
				own := &rule.Catalogue{Rules: organizationRules(j.rules), Own: j.rules.Own, Files: j.rules.Files}
				return writeOwnRules(cmd.OutOrStdout(), own, format, output.TableWidth(cmd.OutOrStdout()))
			}
			doc, err := t.judge(cmd.Context(), j, slices.DeleteFunc(j.checks, func(c check.Check) bool { return c.Rule.Group() != rule.OwnGroup }))
			if err != nil {
				return err
			}
			if err := writeResults(cmd, doc, want, format); err != nil {
				return err
			}
			return compareResults(doc.Findings, want)
		},
	}
	formats.Flag(cmd, &format)
	cmd.Flags().StringArrayVar(&expected, "expect", nil, "`ID=STATE`: the result that a rule must have, such as ORG-001=fail; may be repeated")
	return cmd
}

// readExpected returns the states of --expect, by rule.
func readExpected(all *rule.Catalogue, expected []string, hasNode bool) (map[string]finding.State, error) {
	if len(expected) > 0 && !hasNode {
		return nil, command.Usagef("--expect needs --root: name the node or the archive that the rules judge")
	}
	want := map[string]finding.State{}
	for _, e := range expected {
		id, state, ok := strings.Cut(e, "=")
		switch _, twice := want[id]; {
		case !ok || !slices.Contains(finding.States(), finding.State(state)):
			return nil, command.Usagef("--expect %q: want ID=STATE with one of the states %v", e, finding.States())
		case !slices.Contains(rule.IDs(organizationRules(all)), id):
			return nil, command.Usagef("--expect %q: the files have no rule %q", e, id)
		case twice:
			return nil, command.Usagef("--expect %q: %s is expected twice", e, id)
		}
		want[id] = finding.State(state)
	}
	return want, nil
}

// organizationRules returns the rules of the organization.
func organizationRules(all *rule.Catalogue) []rule.Rule {
	return slices.DeleteFunc(all.OfNodes(), func(r rule.Rule) bool { return r.Group() != rule.OwnGroup })
}

// writeOwnRules lists rules that are in order.
func writeOwnRules(w io.Writer, own *rule.Catalogue, format string, width int) error {
	if done, err := output.Document(w, format, "rules", map[string]any{"rules": own.Rules, "ruleFiles": own.Files}); done {
		return err
	}
	rows := [][]string{{"ID", "SEVERITY", "SETTINGS", "CHECK"}}
	for i := range own.Own {
		var names []string
		for _, s := range own.Own[i].Rule.Settings {
			names = append(names, s.Name)
		}
		r := &own.Own[i].Rule
		rows = append(rows, []string{r.ID, string(r.Severity), output.Visible(strings.Join(names, ", ")), output.Visible(r.Title)})
	}
	_, err := fmt.Fprintf(w, "%s\n\n%s in order; --root judges a node or an archive by them\n",
		strings.Join(output.Columns(rows, width, "SETTINGS"), "\n"), output.Count(len(own.Own), "rule"))
	return err
}

// writeResults writes the result of each rule.
func writeResults(cmd *cobra.Command, doc *report.Document, want map[string]finding.State, format string) error {
	out := cmd.OutOrStdout()
	if done, err := output.Document(out, format, "report", doc.Report); done {
		return err
	}
	rows := [][]string{{"ID", "RESULT", "EXPECTED", "FINDING"}}
	states := worstStates(doc.Findings)
	for _, id := range slices.Sorted(maps.Keys(states)) {
		var texts []string
		for i := range doc.Findings {
			if f := &doc.Findings[i]; f.ID == id {
				texts = append(texts, strings.TrimSuffix(f.Text+" ("+f.Pending+")", " ()"))
			}
		}
		rows = append(rows, []string{id, string(states[id]), string(want[id]), output.Visible(strings.Join(texts, "; "))})
	}
	_, err := fmt.Fprintln(out, strings.Join(output.Columns(rows, output.TableWidth(out)), "\n"))
	return err
}

// worstStates returns the result of each rule: the worst of its findings.
func worstStates(findings []finding.Finding) map[string]finding.State {
	states := map[string]finding.State{}
	for i := range findings {
		f := &findings[i]
		// The worst state sorts first.
		if was, ok := states[f.ID]; !ok || f.State.Compare(was) < 0 {
			states[f.ID] = f.State
		}
	}
	return states
}

// compareResults returns an error that names the rules whose result is not the expected one.
func compareResults(findings []finding.Finding, want map[string]finding.State) error {
	states := worstStates(findings)
	var wrong []string
	for _, id := range slices.Sorted(maps.Keys(want)) {
		if states[id] != want[id] {
			wrong = append(wrong, fmt.Sprintf("%s is %s, want %s", id, states[id], want[id]))
		}
	}
	if len(wrong) > 0 {
		return &verdictError{code: exitFindings, text: strings.Join(wrong, "; ")}
	}
	return nil
}
