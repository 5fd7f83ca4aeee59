package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kata-vfio/kata-vfio/pkg/audit/archive"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/audit/fleet"
	"github.com/kata-vfio/kata-vfio/pkg/cli/command"
	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
)

const diffExitCodes = "Exit codes:\n" +
	"  0  no new or more severe failure at the severity of --fail-on or worse\n" +
	"  1  a file could not be read, or the output could not be written\n" +
	"  2  the command line or a file that it names is wrong\n" +
	"  3  a failure is new or more severe, at the severity of --fail-on or worse"

func diffCommand(t *tree) *cobra.Command {
	j := newJudging(command.Formats{"table", "json", "yaml"})
	cmd := &cobra.Command{
		Use:   "diff OLD NEW",
		Short: "Show what changed between two archives or reports",
		Long: "diff compares two nodes, or one node at two times: new failures, changes of state, severity or reach, and findings\n" +
			"that are gone. OLD and NEW are archives of `collect`, which this version's rules judge,\n" +
			"or reports of `node -o json`, which are taken as they are. Findings that pass in both are left out.\n" +
			"\n" +
			diffExitCodes,
		Example: "  kata-vfio-audit diff monday.tgz tuesday.tgz\n  kata-vfio-audit diff before.json after.json -o json",
		Args:    command.ExactArgs(2, "two archives or reports"),
		PreRunE: func(*cobra.Command, []string) error { return j.check() },
		RunE: func(cmd *cobra.Command, args []string) error {
			var reports [2]*finding.Report
			for i, name := range args {
				r, err := t.readReport(cmd.Context(), name, j)
				if err != nil {
					return err
				}
				reports[i] = r
			}
			return j.printChanges(cmd.OutOrStdout(), finding.Compare(reports[0], reports[1]))
		},
	}
	j.flags(cmd)
	return cmd
}

// readReport judges an archive, or reads a report.
func (t *tree) readReport(ctx context.Context, name string, j *judging) (*finding.Report, error) {
	if !archive.Is(name) {
		return nil, command.Usagef("%s is not a file; diff wants archives of `collect` or reports of `node -o json`", name)
	}
	file, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("open report: %w", err)
	}
	defer func() { _ = file.Close() }()
	r := bufio.NewReader(file)
	// gzip's magic number (RFC 1952): an archive. Reports are JSON.
	if magic, _ := r.Peek(2); string(magic) == "\x1f\x8b" {
		t.root = name
		doc, err := t.judge(ctx, j, j.checks)
		if err != nil {
			return nil, err
		}
		return doc.Report, nil
	}
	report := &finding.Report{}
	if err := json.NewDecoder(io.LimitReader(r, fleet.MaxBytes)).Decode(report); err != nil {
		return nil, fmt.Errorf("read report %s: it is neither an archive nor a report of `node -o json`: %w", name, err)
	}
	if err := fleet.KnownReport(report); err != nil {
		return nil, fmt.Errorf("read report %s: %w", name, err)
	}
	return report, nil
}

// printChanges prints the changes and returns the error with their exit code.
func (j *judging) printChanges(stdout io.Writer, d *finding.Diff) error {
	var b strings.Builder
	var err error
	switch j.format {
	case "json":
		err = output.JSON(&b, "diff", d)
	case "yaml":
		err = output.YAML(&b, "diff", d)
	default:
		width := 0
		if j.file == "" {
			width = output.TableWidth(stdout)
		}
		err = j.diffTable(&b, d, width)
	}
	if err != nil {
		return err
	}
	if err := deliver([]byte(b.String()), j.file, stdout); err != nil {
		return err
	}
	worse := 0
	for i := range d.Changes {
		if c := &d.Changes[i]; c.Worse && c.New.State == finding.Fail && c.New.Severity.Compare(j.failAt) <= 0 {
			worse++
		}
	}
	if worse > 0 {
		return &verdictError{code: exitFindings, text: fmt.Sprintf("new or more severe findings of severity %s or worse: %d", j.failAt, worse)}
	}
	return nil
}

// diffTable is for people: one line for each change.
func (j *judging) diffTable(w io.Writer, d *finding.Diff, width int) error {
	rows := [][]string{{"CHANGE", "SEVERITY", "CHECK", "STATE", "OBJECT", "FINDING"}}
	count := map[finding.Kind]int{}
	for i := range d.Changes {
		c := &d.Changes[i]
		f := c.Finding()
		count[c.Kind]++
		// The summary below counts all changes, also those that are too mild to be shown.
		if f.Severity.Compare(j.show) > 0 {
			continue
		}
		rows = append(rows, []string{string(c.Kind), string(f.Severity), f.ID, states(c), about(f), f.Text})
	}
	if len(rows) > 1 {
		if _, err := fmt.Fprintf(w, "%s\n\n", strings.Join(output.Columns(rows, width, "STATE", "OBJECT"), "\n")); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(w, "%d new, %d changed, %d gone, %d as before, between %s and %s\n", count[finding.New], count[finding.Changed],
		count[finding.Gone], d.Same, output.Visible(d.Old.Time), output.Visible(d.New.Time))
	return err
}

// states returns the older and the newer state.
func states(c *finding.Change) string {
	switch {
	case c.Old == nil:
		return string(c.New.State)
	case c.New == nil:
		return "was " + string(c.Old.State)
	}
	if c.Old.State != c.New.State {
		return fmt.Sprintf("%s, was %s", c.New.State, c.Old.State)
	}
	if c.Old.Exposure != c.New.Exposure {
		return fmt.Sprintf("%s, %s, was %s", c.New.State, c.New.Exposure, c.Old.Exposure)
	}
	return string(c.New.State)
}

func about(f *finding.Finding) string {
	switch {
	case f.Object != "":
		return f.Object
	case f.Device != nil:
		return f.Device.String()
	}
	return "node"
}
