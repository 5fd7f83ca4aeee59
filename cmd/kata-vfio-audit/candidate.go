package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kata-vfio/kata-vfio/pkg/audit"
	"github.com/kata-vfio/kata-vfio/pkg/audit/check"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/blueprint"
	"github.com/kata-vfio/kata-vfio/pkg/cli/command"
	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
)

// bare are the flags of an audit before bootstrap.
type bare struct {
	candidate bool
	blueprint string
}

const candidateHelp = "--candidate judges a node before kata-vfio-bootstrap has run: what bootstrap would change, which failures that repairs,\n" +
	"and which remain, each with its fix. It runs the checks again on the files as bootstrap would leave them. Checks whose\n" +
	"answer only a reboot shows (IOMMU groups) are listed, and neither pass nor fail. Exit codes count what would remain;\n" +
	"3 also means that a problem prevents bootstrap's changes, and 4 that a check waits for the reboot.\n"

func (b *bare) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVar(&b.candidate, "candidate", false, "judge the node as kata-vfio-bootstrap would leave it; formats: "+strings.Join(audit.CandidateFormats(), ", "))
	command.OnceVarP(f, &b.blueprint, "blueprint", "f", "with --candidate: the blueprint; - is standard input (default: the node's own, or the default blueprint)")
	_ = cmd.MarkFlagFilename("blueprint", "yaml", "yml", "json")
}

func (b *bare) check(cmd *cobra.Command, j *judging) error {
	switch {
	case !b.candidate && b.blueprint != "":
		return command.Usagef("--blueprint needs --candidate: an audit of the node as it is has no blueprint")
	case !b.candidate:
		return nil
	case cmd.Flags().Changed("every"):
		return command.Usagef("--candidate runs once: remove --every")
	case !slices.Contains(audit.CandidateFormats(), j.format):
		return command.Usagef("--candidate has no format %s: use one of %s", j.format, strings.Join(audit.CandidateFormats(), ", "))
	}
	return nil
}

// assess judges the node as bootstrap would leave it.
func (t *tree) assess(cmd *cobra.Command, j *judging, b *bare) error {
	node, err := t.open()
	if err != nil {
		return err
	}
	defer func() { _ = node.Close() }()
	if node.manifest != nil {
		return command.Usagef("--candidate needs a node's root or a copy of its whole tree: %s is an archive, which lacks the boot loader's and Kata's files", t.root)
	}
	engine := bootstrap.ReadOnly(node.fs)
	plan, source, err := b.plan(cmd.Context(), engine)
	if err != nil {
		return err
	}
	c, err := t.candidate(cmd.Context(), j, node, plan, source)
	if err != nil {
		return err
	}
	return j.conclude(cmd, c)
}

// plan returns bootstrap's plan, and the source of its blueprint.
func (b *bare) plan(ctx context.Context, e *bootstrap.Engine) (p *bootstrap.Plan, source string, err error) {
	wanted, source, err := b.read(e)
	if err != nil {
		return nil, "", err
	}
	if p, err = e.Plan(ctx, wanted); err != nil {
		return nil, "", fmt.Errorf("plan as kata-vfio-bootstrap does: %w", err)
	}
	return p, source, nil
}

func (b *bare) read(e *bootstrap.Engine) (*blueprint.Blueprint, string, error) {
	text, source, err := e.Blueprint()
	if b.blueprint != "" {
		var given []byte
		given, err = command.ReadArgument(os.Stdin, b.blueprint, blueprint.MaxSize)
		text, source = string(given), b.blueprint
	}
	switch {
	case err != nil:
		return nil, "", fmt.Errorf("read the blueprint: %w", err)
	case source == "":
		return blueprint.Default(), "the default", nil
	}
	parsed, err := blueprint.Parse([]byte(text))
	if err != nil {
		return nil, "", command.Usagef("%s: %w", source, err)
	}
	return parsed, source, nil
}

// candidate audits the node as it is, and as it would be.
func (t *tree) candidate(ctx context.Context, j *judging, node *opened, plan *bootstrap.Plan, source string) (*audit.Candidate, error) {
	n, err := t.look(ctx, node.fs)
	if err != nil {
		return nil, err
	}
	now := time.Now().UTC()
	o := check.Options{Profile: j.wantedProfile, Waivers: j.accepted, Today: now.Format(time.DateOnly)}
	r := check.Run(n, j.checks, o)
	r.Subject = node.subject(n, now)
	if j.name != "" {
		r.Subject.Name = j.name
	}
	r.RuleFiles = j.rules.Files
	of := &audit.CandidateNode{FS: node.fs, Snapshot: n.Snapshot, Report: r, Checks: j.checks, Plan: plan, Blueprint: source, Ask: askContainerd}
	return audit.JudgeCandidate(ctx, of, o, j.failAt), nil
}

// conclude prints the answer, and returns the error with its exit code.
func (j *judging) conclude(cmd *cobra.Command, c *audit.Candidate) error {
	var text strings.Builder
	stdout := cmd.OutOrStdout()
	o := audit.CandidateOptions{Show: j.show}
	if j.file == "" {
		o.Color, o.Width = output.Colorful(stdout), output.Width(stdout)
	}
	if err := audit.WriteCandidate(&text, c, j.format, o); err != nil {
		return err
	}
	if err := deliver([]byte(text.String()), j.file, stdout); err != nil {
		return err
	}
	switch {
	case slices.ContainsFunc(c.Failing(), isLedgerFailure):
		return &verdictError{code: exitLedger, text: "the ledger failed its verification: `kata-vfio-audit ledger verify` shows where"}
	case c.Verdict == audit.Unfit && len(c.Failing()) == 0:
		return &verdictError{code: exitFindings, text: "the node is unfit until you solve what prevents bootstrap's changes"}
	case c.Verdict == audit.Unfit:
		return &verdictError{code: exitFindings, text: "the node is unfit, also after bootstrap"}
	case j.strict && c.Undetermined():
		return &verdictError{code: exitUndetermined, text: "some checks could not tell (--strict)"}
	}
	return nil
}
