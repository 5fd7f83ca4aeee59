package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kata-vfio/kata-vfio/pkg/audit/check"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/audit/report"
	"github.com/kata-vfio/kata-vfio/pkg/cli/command"
	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/facts/runtimes"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// judging has the flags and state that the commands that judge share.
type judging struct {
	profile, waivers string
	// ownRules are files of the organization's rules, or directories of them.
	ownRules         []string
	severity, failOn string
	strict           bool
	format, file     string
	formats          command.Formats
	wantedProfile    finding.Profile
	show, failAt     rule.Severity
	accepted         []finding.Waiver
	// rules are all rules, and checks those of a node.
	rules  *rule.Catalogue
	checks []check.Check
	// name is the node's name in the cluster, if its hostname differs.
	name string
}

func nodeCommand(t *tree) *cobra.Command {
	j := newJudging(report.Formats())
	var e repeated
	var b bare
	cmd := &cobra.Command{
		Use:   "node",
		Short: "Judge a node by every check that applies to it",
		Long: "node runs every check of the catalogue on the node. It lists the findings, the worst first, with who is in reach,\n" +
			"how to fix them, and how to check by hand. It only reads. What it can't determine is unknown, never good.\n" +
			"\n" +
			"It judges the functions that tenants can get: those that the plugin publishes. If no plugin has published since the\n" +
			"node booted, they are those that /etc/kata-vfio/node.yaml selects, or the default config: every GPU and VF.\n" +
			"The headline says which. Functions that a claim or a VFIO driver has always count.\n" +
			"\n" +
			exposureTable() + "\n" +
			"--severity sets what is shown, and --fail-on what makes the run fail: they are independent, in every format.\n" +
			"Severities depend on the profile: `kata-vfio-audit profiles`.\n" +
			"\n" +
			"--every repeats the audit until a signal ends it: each report is one line of JSON on standard output, for a log off\n" +
			"the node. With --out it also writes NODE.json, replaced atomically. The reader of the reports\n" +
			"(`cluster --node-report`) judges failures: the exit code is 0.\n" +
			"\n" +
			candidateHelp + "\n" +
			profileTable() + "\n" +
			nodeExitCodes,
		Example: "  kata-vfio-audit node\n  kata-vfio-audit node --candidate\n  kata-vfio-audit node -o json | jq '.findings[] | select(.state==\"fail\")'\n" +
			"  kata-vfio-audit node --every 1h --out /var/lib/kata-vfio/audit",
		Args: command.NoArgs,
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			return errors.Join(j.check(), e.check(cmd), b.check(cmd, j))
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case e.every > 0:
				return t.watch(cmd, j, &e)
			case b.candidate:
				return t.assess(cmd, j, &b)
			}
			return t.report(cmd, j)
		},
	}
	j.flags(cmd)
	e.flags(cmd)
	b.flags(cmd)
	cmd.Flags().StringVar(&j.name, "node-name", "", "the node's name in the cluster, for the report (default: its hostname)")
	return cmd
}

const nodeExitCodes = "Exit codes:\n" +
	"  0  no check fails at the severity of --fail-on or worse\n" +
	"  1  the node could not be read, or the output could not be written\n" +
	"  2  the command line or a file that it names is wrong\n" +
	"  3  a check fails at the severity of --fail-on or worse\n" +
	"  4  no check fails, but with --strict: some checks could not tell\n" +
	"  5  a node's ledger does not verify (OBS-001), whatever else fails"

func newJudging(formats []string) *judging { return &judging{formats: formats} }

func (j *judging) flags(cmd *cobra.Command) {
	j.profileFlags(cmd)
	f := cmd.Flags()
	f.StringVar(&j.severity, "severity", "", "least severity to show: "+finding.SeverityWords()+" (default low for people, info for machines)")
	f.StringVar(&j.failOn, "fail-on", "high", "least severity whose failures make the exit code 3: "+finding.SeverityWords())
	f.BoolVar(&j.strict, "strict", false, "exit code 4 if no check fails but some could not tell; checks for a person (manual) do not count")
	f.StringVar(&j.file, "file", "", "write to this file instead of standard output")
	j.formats.Flag(cmd, &j.format)
	for flag, words := range map[string][]string{"severity": strings.Split(finding.SeverityWords(), ", "), "fail-on": strings.Split(finding.SeverityWords(), ", ")} {
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
	}
}

// profileFlags adds the flags that determine the severities of findings.
func (j *judging) profileFlags(cmd *cobra.Command) {
	profiles := finding.ProfileNames()
	f := cmd.Flags()
	f.StringVar(&j.profile, "profile", profiles[0], "the node's purpose: "+strings.Join(profiles, ", "))
	addRulesFlag(cmd, &j.ownRules)
	f.StringVar(&j.waivers, "waivers", "", "`file` of accepted failures (YAML; see `kata-vfio-audit waive`)")
	_ = cmd.RegisterFlagCompletionFunc("profile", cobra.FixedCompletions(profiles, cobra.ShellCompDirectiveNoFileComp))
}

// exposureTable explains the exposures, for the help.
func exposureTable() string {
	var b strings.Builder
	b.WriteString("Each finding says who is in reach of it (\"exposure\" in JSON; \"exposures\" there has these words):\n")
	for _, e := range finding.Exposures() {
		fmt.Fprintf(&b, "  %-18s %s\n", e, e.About())
	}
	return b.String()
}

// profileTable lists the profiles for the help.
func profileTable() string {
	var b strings.Builder
	b.WriteString("Profiles:\n")
	for _, p := range finding.Profiles() {
		fmt.Fprintf(&b, "  %-14s %s\n", p.Name, p.About)
	}
	return b.String()
}

// check refuses contradictory flags before anything is read.
func (j *judging) check() error {
	if err := j.formats.Check(j.format); err != nil {
		return err
	}
	if j.severity == "" {
		j.severity = string(rule.Info)
		// Machines filter themselves, so that they get all.
		if report.ForPeople(j.format) {
			j.severity = string(rule.Low)
		}
	}
	for flag, value := range map[string]string{"severity": j.severity, "fail-on": j.failOn} {
		if !slices.Contains(finding.Severities(), rule.Severity(value)) {
			return command.Usagef("--%s %q: want one of %s", flag, value, finding.SeverityWords())
		}
	}
	if j.name != "" && !isFileName(j.name) {
		return command.Usagef("--node-name %q is not a valid node name", j.name)
	}
	j.show, j.failAt = rule.Severity(j.severity), rule.Severity(j.failOn)
	return j.checkProfile()
}

// checkProfile reads the rules, finds the profile, and reads the waivers.
func (j *judging) checkProfile() (err error) {
	if err := j.rereadRules(); err != nil {
		return err
	}
	var ok bool
	if j.wantedProfile, ok = finding.ProfileNamed(j.profile); !ok {
		return command.Usagef("--profile %q: no such profile; see `kata-vfio-audit profiles`", j.profile)
	}
	return j.rereadWaivers()
}

// rereadRules reads the rules, whose files may change during an audit that runs for months. While a file can't be read, the rules
// that were read before stay.
func (j *judging) rereadRules() error {
	rules, err := readRules(j.ownRules)
	if err != nil {
		return err
	}
	checks, err := check.Of(rules)
	if err != nil {
		return err
	}
	j.rules, j.checks = rules, checks
	return nil
}

// rereadWaivers reads the waivers again, because their file may change during an audit that runs for months. While
// the file can't be read, no waiver counts.
func (j *judging) rereadWaivers() (err error) {
	j.accepted, err = loadWaivers(j.waivers, rule.IDs(j.rules.Rules))
	return err
}

// garbagePercent is the growth of the heap before a collection. An audit needs its data to its end, so collections of
// a small heap find little.
const garbagePercent = 400

// report judges the node by every check, prints the findings, and fails with the exit code of the verdict.
func (t *tree) report(cmd *cobra.Command, j *judging) error {
	if os.Getenv("GOGC") == "" {
		// One audit reads once and ends. `--every` runs for months beside tenants' VMs, and keeps Go's default.
		debug.SetGCPercent(garbagePercent)
	}
	doc, err := t.judge(cmd.Context(), j, j.checks)
	if err != nil {
		return err
	}
	if err := warnOnce(cmd.ErrOrStderr(), slices.Concat([]string{doc.Subject.LeftOut}, doc.Unread, doc.NotAsked, unusedWords(doc.UnusedWaivers))); err != nil {
		return err
	}
	return j.finish(cmd.OutOrStdout(), doc)
}

// unusedWords warns of waivers that accept nothing.
func unusedWords(waivers []finding.Waiver) []string {
	var all []string
	for i := range waivers {
		all = append(all, waivers[i].UnusedWords())
	}
	return all
}

// judge reads the node and runs the checks. For formats that show the past, it also reads the ledger.
func (t *tree) judge(ctx context.Context, j *judging, checks []check.Check) (*report.Document, error) {
	node, err := t.open()
	if err != nil {
		return nil, err
	}
	defer func() { _ = node.Close() }()
	n, err := t.look(ctx, node.fs)
	if err != nil {
		return nil, err
	}
	if node.manifest != nil && node.manifest.Ledger != nil {
		// An archive without a ledger must not look like a node whose ledger was deleted.
		n.WithoutLedger(node.manifest.Ledger.Reason)
	}
	now := time.Now().UTC()
	r := check.Run(n, checks, check.Options{Profile: j.wantedProfile, Waivers: j.accepted, Today: now.Format(time.DateOnly)})
	r.Subject = node.subject(n, now)
	if j.name != "" {
		r.Subject.Name = j.name
	}
	r.RuleFiles = j.rules.Files
	planned, unread := j.planned(n, now)
	doc := &report.Document{Report: r, Node: &planned, Unread: unread, Rules: finding.Rules(checks), Tenancies: report.TenanciesNow(n)}
	if node.manifest != nil {
		doc.NotAsked = notAsked(node.manifest.RuleFiles, j.rules.Files)
	}
	if report.HasHistory(j.format) {
		node.addHistory(ctx, doc, n)
	}
	return doc, nil
}

// planned returns the node as its plugin uses it for plans. If no plugin has recorded which failed checks count, the flags
// decide. Without --waivers, the node's own file of waivers applies.
func (j *judging) planned(n *facts.Node, now time.Time) (plan.Node, []string) {
	g, err := check.DefaultEnforcement(n, j.checks, now.Format(time.DateOnly))
	g.Profile = j.wantedProfile
	if j.waivers != "" {
		// The flag replaces the node's file, so that an unreadable one does not matter.
		g.Waivers, err = j.accepted, nil
	}
	planned, unread := g.Planned(n)
	if err != nil {
		unread = append(unread, err.Error())
	}
	return planned, unread
}

// addHistory adds the ledger's tenancies. If the ledger can't be read, the page says so: the present audit is
// complete without it.
func (o *opened) addHistory(ctx context.Context, doc *report.Document, n *facts.Node) {
	doc.Ledger = &report.Ledger{}
	book, err := o.openLedger()
	if err != nil {
		doc.Ledger.Missing = err.Error()
		return
	}
	defer func() { _ = book.closer.Close() }()
	h, standing, err := book.history(ctx, ledger.Options{})
	if err != nil {
		doc.Ledger.Missing = err.Error()
		return
	}
	doc.Tenancies = report.Tenancies(n, h)
	doc.Ledger.Verification, doc.Ledger.Refusals = standing, h.Refusals
}

// look reads the functions of a node, their tenants, and the settings that PFs impose on VFs.
func (t *tree) look(ctx context.Context, fsys *sysfs.FS) (*facts.Node, error) {
	s, err := t.scan(ctx, fsys)
	if err != nil {
		return nil, err
	}
	n := facts.New(fsys, s)
	n.ReadLinks(ctx)
	runtimes.AskRunning(ctx, n, askContainerd)
	return n, nil
}

const hostnameFile = "proc/sys/kernel/hostname"

// subject returns the subject of the audit. The time of an archive is the time when it was made.
func (o *opened) subject(n *facts.Node, now time.Time) finding.Subject {
	s := finding.Subject{
		Kind: "node", Name: n.Read(hostnameFile).Value, Root: o.root, BootID: n.Snapshot.Host.BootID, Kernel: n.Snapshot.Host.Kernel,
		Time: now.Format(time.RFC3339), Version: command.Build(),
	}
	if o.manifest != nil {
		// Reports are compared by the time of what was read, not of the judgment.
		s.Kind, s.Time, s.LeftOut = "archive", o.manifest.Time, o.manifest.Ledger.String()
	}
	return s
}

// finish prints the document and returns the error with its exit code.
func (j *judging) finish(stdout io.Writer, doc *report.Document) error {
	var b bytes.Buffer
	o := report.Options{Show: j.show, FailOn: j.failAt, Strict: j.strict}
	if j.file == "" {
		o.Color, o.Width = output.Colorful(stdout), output.Width(stdout)
	}
	if err := report.Write(&b, doc, j.format, o); err != nil {
		return err
	}
	if err := deliver(b.Bytes(), j.file, stdout); err != nil {
		return err
	}
	return j.verdict(doc.Report)
}

// verdict returns the error that ends the program with the exit code of the findings; nil if there are none.
func (j *judging) verdict(doc *finding.Report) error {
	switch failing := doc.Failing(j.failAt); {
	// A failure of the ledger comes first: such a ledger may hide the facts that other findings are based on.
	case slices.ContainsFunc(failing, isLedgerFailure):
		return &verdictError{code: exitLedger, text: "the ledger failed its verification: `kata-vfio-audit ledger verify` shows where"}
	case len(failing) > 0:
		return &verdictError{code: exitFindings, text: fmt.Sprintf("findings of severity %s or worse: %d", j.failAt, len(failing))}
	case j.strict && doc.Undetermined():
		return &verdictError{code: exitUndetermined, text: "some checks could not tell (--strict)"}
	}
	return nil
}

// isLedgerFailure reports whether a failure is one of the ledger's verification.
func isLedgerFailure(failing finding.Finding) bool { return failing.ID == finding.LedgerSound }

// verdictError ends the program with the exit code of a verdict. Nothing went
// wrong.
type verdictError struct {
	code int
	text string
}

func (e *verdictError) Error() string { return e.text }
