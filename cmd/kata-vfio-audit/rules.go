package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/kata-vfio/kata-vfio/pkg/audit/check"
	"github.com/kata-vfio/kata-vfio/pkg/audit/cluster"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/cli/command"
)

// allRules returns every rule that a waiver, or a person, may name.
func allRules() []finding.Rule { return append(check.RulesOf(check.Catalogue()), cluster.Rules()...) }

func ruleIDs() []string {
	var ids []string
	for _, r := range allRules() {
		ids = append(ids, r.ID)
	}
	return ids
}

// oneRule is for the Args of a command that takes one rule's id.
func oneRule(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return command.Usagef("want the id of one check, as IOM-003; see `%s --help`", cmd.CommandPath())
	}
	if _, ok := ruleNamed(args[0]); !ok {
		return command.Usagef("there is no check %q; `kata-vfio-audit checks` lists them", args[0])
	}
	return nil
}

// ruleNamed returns the rule of an id, however its letters are written.
func ruleNamed(id string) (finding.Rule, bool) {
	for _, r := range allRules() {
		if strings.EqualFold(r.ID, id) {
			return r, true
		}
	}
	return finding.Rule{}, false
}

// completeRule completes ids.
func completeRule(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	var ids []cobra.Completion
	if len(args) == 0 {
		for _, r := range allRules() {
			ids = append(ids, cobra.CompletionWithDesc(r.ID, r.Title))
		}
	}
	return ids, cobra.ShellCompDirectiveNoFileComp
}
