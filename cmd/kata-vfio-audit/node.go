package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kata-vfio/kata-vfio/pkg/audit"
	"github.com/kata-vfio/kata-vfio/pkg/audit/report"
	"github.com/kata-vfio/kata-vfio/pkg/check"
	"github.com/kata-vfio/kata-vfio/pkg/command"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/finding"
	"github.com/kata-vfio/kata-vfio/pkg/inventory"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
)

// judging is what the commands that judge have in common.
type judging struct {
	profile, waivers string
	severity, failOn string
	strict           bool
	format, file     string
	formats          command.Formats
	profileOf        finding.Profile
	show, gate       isolation.Severity
	accepted         []finding.Waiver
}

func nodeCommand(t *tree) *cobra.Command {
	j := newJudging(report.Formats())
	cmd := &cobra.Command{
		Use:   "node",
		Short: "Judge a node by every check that it can answer",
		Long: "node asks the node every check of the catalogue and says what it found, the worst first, who is in reach of it,\n" +
			"what to do, and how to see it by hand. It reads only. What it can't tell is unknown, never good.\n\n" + nodeExitCodes,
		Example: "  kata-vfio-audit node\n  kata-vfio-audit node -o json | jq '.findings[] | select(.state==\"fail\")'",
		Args:    command.NoArgs,
		PreRunE: func(*cobra.Command, []string) error { return j.check() },
		RunE: func(cmd *cobra.Command, _ []string) error {
			doc, err := t.judge(cmd.Context(), j)
			if err != nil {
				return err
			}
			return j.finish(cmd.OutOrStdout(), doc)
		},
	}
	j.flags(cmd)
	return cmd
}

const nodeExitCodes = `Exit codes:
  0  nothing fails at the severity of --fail-on or worse
  1  the node could not be read, or the output not written
  2  the command line or a file that it names is wrong
  3  something fails at the severity of --fail-on or worse
  4  nothing does, but with --strict: some checks could not tell`

func newJudging(formats []string) *judging { return &judging{formats: formats} }

func (j *judging) flags(cmd *cobra.Command) {
	var profiles []string
	for _, p := range finding.Profiles() {
		profiles = append(profiles, p.Name)
	}
	f := cmd.Flags()
	f.StringVar(&j.profile, "profile", profiles[0], "what the node is for: "+strings.Join(profiles, ", "))
	f.StringVar(&j.severity, "severity", "low", "least severity to show: "+severityWords())
	f.StringVar(&j.failOn, "fail-on", "high", "least severity whose failures make the exit code 3: "+severityWords())
	f.BoolVar(&j.strict, "strict", false, "exit code 4 where nothing fails but some checks could not tell")
	f.StringVar(&j.waivers, "waivers", "", "file of accepted failures (YAML)")
	f.StringVar(&j.file, "file", "", "write to this file in place of standard output")
	j.formats.Flag(cmd, &j.format)
	for flag, words := range map[string][]string{"profile": profiles, "severity": strings.Split(severityWords(), ", "), "fail-on": strings.Split(severityWords(), ", ")} {
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
	}
}

func severityWords() string {
	var words []string
	for _, s := range finding.Severities() {
		words = append(words, string(s))
	}
	return strings.Join(words, ", ")
}

// check refuses what can't be meant before anything is read.
func (j *judging) check() error {
	if err := j.formats.Check(j.format); err != nil {
		return err
	}
	var ok bool
	if j.profileOf, ok = finding.ProfileNamed(j.profile); !ok {
		return command.Usagef("--profile %q: there is no such profile; see `kata-vfio-audit node --help`", j.profile)
	}
	for flag, value := range map[string]string{"severity": j.severity, "fail-on": j.failOn} {
		if !slices.Contains(finding.Severities(), isolation.Severity(value)) {
			return command.Usagef("--%s %q: want one of %s", flag, value, severityWords())
		}
	}
	j.show, j.gate = isolation.Severity(j.severity), isolation.Severity(j.failOn)
	return nil
}

// judge reads the node and asks all checks.
func (t *tree) judge(ctx context.Context, j *judging) (*report.Document, error) {
	fsys, err := t.open()
	if err != nil {
		return nil, err
	}
	defer func() { _ = fsys.Close() }()
	names, err := loadNames(fsys)
	if err != nil {
		return nil, err
	}
	s, err := inventory.Scan(ctx, fsys, inventory.WithNames(names))
	if err != nil {
		return nil, fmt.Errorf("read the node below %s: %w", t.root, err)
	}
	now := time.Now().UTC()
	n := facts.New(fsys, s)
	checks := check.Catalogue()
	r := check.Run(n, checks, check.Options{Profile: j.profileOf, Waivers: j.accepted, Today: now.Format(time.DateOnly)})
	r.Subject = finding.Subject{
		Kind: "node", Name: n.Read("proc/sys/kernel/hostname").Value, Root: t.root, BootID: s.Host.BootID, Kernel: s.Host.Kernel,
		Time: now.Format(time.RFC3339), Version: command.Build(),
	}
	doc := &report.Document{Report: r, Inventory: audit.NewInventory(s)}
	for i := range checks {
		doc.Rules = append(doc.Rules, checks[i].Rule)
	}
	return doc, nil
}

// finish prints the document and turns what it says into the exit code.
func (j *judging) finish(stdout io.Writer, doc *report.Document) error {
	var b strings.Builder
	o := report.Options{Show: j.show, Color: j.file == "" && colorful(stdout)}
	if err := report.Write(&b, doc, j.format, o); err != nil {
		return err
	}
	if err := deliver([]byte(b.String()), j.file, stdout); err != nil {
		return err
	}
	switch failing := doc.Failing(j.gate); {
	case len(failing) > 0:
		return &verdictError{code: exitFindings, text: fmt.Sprintf("%d findings of severity %s or worse", len(failing), j.gate)}
	case j.strict && doc.Undetermined():
		return &verdictError{code: exitUndetermined, text: "some checks could not tell (--strict)"}
	}
	return nil
}

// verdictError ends the program with the exit code of a verdict. Nothing went
// wrong.
type verdictError struct {
	code int
	text string
}

func (e *verdictError) Error() string { return e.text }
