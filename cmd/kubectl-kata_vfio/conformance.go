package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/audit/fleet"
	"github.com/kata-vfio/kata-vfio/pkg/cli/command"
	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
)

func conformanceCommand(s *session) *cobra.Command {
	formats := command.Formats{"table", "json", "yaml"}
	var format, file, version string
	cmd := &cobra.Command{
		Use:   "conformance",
		Short: "Write the evidence for the Kubernetes AI conformance of a platform",
		Long: "conformance reads from the API server what the cluster shows of the Kubernetes AI conformance profile, for each\n" +
			"requirement: what was checked, what was observed, and the commands that repeat it. RESULT is shown, not shown\n" +
			"(with the reason and what to do), or not ours (another part of the platform provides it). It changes nothing and\n" +
			"certifies nothing. --cluster-report is the report of `kata-vfio-audit cluster -o json`, at most a day old, without which\n" +
			"secure_accelerator_access is not shown. The command lists objects of all namespaces, also nodes, DaemonSets, autoscalers\n" +
			"and admission policies.\n" +
			"\n" +
			exitCodeHelp("conformance"),
		Example: "  kata-vfio-audit cluster -o json > cluster.json\n  kubectl kata-vfio conformance --cluster-report cluster.json\n  kubectl kata-vfio conformance --cluster-report cluster.json -o yaml > evidence.yaml",
		Args:    command.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
		PreRunE: func(*cobra.Command, []string) error {
			if _, ok := fleet.ProfileNamed(version); version != "" && !ok {
				return command.Usagef("--profile %.32q: want one of %s", version, strings.Join(fleet.Versions(), ", "))
			}
			return formats.Check(format)
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			state, err := s.survey(cmd, file)
			if err != nil {
				return err
			}
			report, out := fleet.JudgeConformance(state, chosenProfile(version, state)), cmd.OutOrStdout()
			done, err := output.Document(out, format, "evidence", report)
			if !done {
				err = writeLines(out, append(conformanceTable(report).Lines(output.TableWidth(out), output.Colorful(out)), conformanceTodo(report, output.Width(out), output.Colorful(out))...))
			}
			if lacking := report.Lacking(fleet.Must); err == nil && len(lacking) > 0 {
				return &verdictError{"requirements of level MUST that are not shown: " + strings.Join(lacking, ", ")}
			}
			return err
		},
	}
	formats.Flag(cmd, &format)
	cmd.Flags().StringVar(&version, "profile", "", "profile of this Kubernetes version: "+strings.Join(fleet.Versions(), ", ")+" (default: that of the cluster's version)")
	_ = cmd.RegisterFlagCompletionFunc("profile", cobra.FixedCompletions(fleet.Versions(), cobra.ShellCompDirectiveNoFileComp)) // the flag is there
	cmd.Flags().StringVar(&file, "cluster-report", "", "report of kata-vfio-audit cluster -o json, at most a day old; - for standard input")
	return cmd
}

// chosenProfile returns the profile of a version, or that of the cluster.
func chosenProfile(version string, state *fleet.ConformanceState) fleet.Profile {
	if p, ok := fleet.ProfileNamed(version); ok {
		return p
	}
	return fleet.ProfileFor(state.Kubernetes)
}

// survey lists the objects for the evidence.
func (s *session) survey(cmd *cobra.Command, file string) (*fleet.ConformanceState, error) {
	audit, err := clusterReport(cmd, file, s.now())
	if err != nil {
		return nil, err
	}
	client, _, err := s.connect()
	if err != nil {
		return nil, err
	}
	state, err := listForConformance(cmd.Context(), client, s.now)
	if err != nil {
		return nil, err
	}
	state.Audit = audit
	return state, nil
}

// clusterReport reads the report of `kata-vfio-audit cluster`; nil without a file.
func clusterReport(cmd *cobra.Command, file string, now time.Time) (*finding.Report, error) {
	if file == "" {
		return nil, nil
	}
	data, err := command.ReadArgument(cmd.InOrStdin(), file, fleet.MaxBytes)
	if err != nil {
		return nil, err
	}
	r := &finding.Report{}
	if err := json.Unmarshal(data, r); err != nil {
		return nil, command.Usagef("--cluster-report %s: want the report of `kata-vfio-audit cluster -o json`: %w", file, err)
	}
	if r.Subject.Kind != "cluster" {
		return nil, command.Usagef("--cluster-report %s is about a %.32q, want the report of `kata-vfio-audit cluster -o json`", file, r.Subject.Kind)
	}
	if err := fleet.KnownReport(r); err != nil {
		return nil, command.Usagef("--cluster-report %s: %w", file, err)
	}
	at, err := time.Parse(time.RFC3339, r.Subject.Time)
	if err != nil {
		return nil, command.Usagef("--cluster-report %s: its time is invalid: %w", file, err)
	}
	if age := now.Sub(at); age > fleet.MaxAge || age < -fleet.ClockSkew {
		return nil, command.Usagef("--cluster-report %s is of %s, want one of the last day: run `kata-vfio-audit cluster -o json`", file, r.Subject.Time)
	}
	// The file's own summary is not trusted: it is counted from the findings.
	r.Finish()
	return r, nil
}

// conformanceTable has a row for each requirement.
func conformanceTable(r *fleet.ConformanceReport) *output.Table {
	t := &output.Table{Titles: []string{"REQUIREMENT", "LEVEL", "RESULT", "WHAT"}}
	for i := range r.Requirements {
		q := &r.Requirements[i]
		c := cells(requirementName(q), string(q.Level), string(q.Result), what(q))
		c[2].Color = map[fleet.Result]output.Color{fleet.Shown: output.Green, fleet.NotShown: output.Yellow}[q.Result]
		t.Rows = append(t.Rows, c)
	}
	return t
}

// conformanceTodo returns the lines below the table: the profile, and the fixes, within the width.
func conformanceTodo(r *fleet.ConformanceReport, width int, color bool) []string {
	lines := []string{"", fmt.Sprintf("profile %s of %s, Kubernetes %s; -o yaml has all evidence, and commands that repeat it", r.Profile.Version, r.Profile.Date, output.Visible(r.Kubernetes))}
	title := []string{"", output.Paint(color, output.Bold, "What to do")}
	for i := range r.Requirements {
		if q := &r.Requirements[i]; q.Fix != "" {
			lines, title = append(append(lines, title...), indented("  - ", "    ", q.ID+": "+q.Fix, width)...), nil
		}
	}
	return lines
}

// requirementName returns the requirement's ID. If the requirement is not in the current profile, the name also says until
// which profile it was.
func requirementName(q *fleet.Requirement) string {
	if q.Until == "" {
		return q.ID
	}
	return q.ID + " (until " + q.Until + ")"
}

// what returns the most important fact about a requirement in one line. The result depends on the last of the evidence.
func what(q *fleet.Requirement) string {
	switch {
	case q.Reason != "":
		return q.Reason
	case q.Provider != "":
		return q.Provider
	}
	return q.Evidence[len(q.Evidence)-1]
}
