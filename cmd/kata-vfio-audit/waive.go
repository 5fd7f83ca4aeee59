package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/cli/command"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

func waiveCommand() *cobra.Command {
	var (
		w    finding.Waiver
		file string
		own  []string
	)
	cmd := &cobra.Command{
		Use:   "waive ID --scope SCOPE --until DAY --reason TEXT --author NAME",
		Short: "Write a waiver: accept a failure for a time",
		Long: "waive prints a waiver. With --waivers it adds the waiver to that file and keeps the comments. A waived check still runs\n" +
			"and is shown as waived; from the day after --until its failure counts again.\n" +
			"\n" +
			readingExitCodes,
		Example: "  kata-vfio-audit waive IOM-013 --scope 0000:3b:00.0 --until 2027-03-31 \\\n" +
			"    --reason 'firmware, SEC-1234' --author alice@example.org --waivers waivers.yaml",
		Args:              oneRule,
		ValidArgsFunction: completeRule,
		RunE: func(cmd *cobra.Command, args []string) error {
			all, err := readRules(own)
			if err != nil {
				return err
			}
			r, _ := ruleNamed(all, args[0])
			w.Rule = r.ID
			return writeWaiver(cmd.OutOrStdout(), w, file, rule.IDs(all.Rules))
		},
	}
	f := cmd.Flags()
	f.StringVar(&w.Scope, "scope", "", "what the waiver is for: a device address, an object, node for a failure of the whole node, or * for all")
	f.StringVar(&w.Until, "until", "", "last day, such as 2027-03-31")
	f.StringVar(&w.Reason, "reason", "", "why the failure is acceptable")
	f.StringVar(&w.Author, "author", "", "who accepts it")
	f.StringVar(&file, "waivers", "", "file to add the waiver to; created if missing")
	addRulesFlag(cmd, &own)
	needed := []string{"scope", "until", "reason", "author"}
	for _, name := range needed {
		_ = cmd.MarkFlagRequired(name)
	}
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		missing := slices.DeleteFunc(slices.Clone(needed), func(name string) bool { return cmd.Flags().Changed(name) })
		if len(missing) > 0 {
			return command.Usagef("a waiver needs --%s; see `%s --help`", strings.Join(missing, ", --"), cmd.CommandPath())
		}
		return nil
	}
	return cmd
}

// writeWaiver adds the waiver to the file atomically, or prints it.
func writeWaiver(stdout io.Writer, w finding.Waiver, file string, rules []string) error {
	var content []byte
	if file != "" {
		var err error
		if content, err = readWaivers(file); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	changed, err := finding.AddWaivers(content, w, rules)
	if err != nil {
		return command.Usagef("waive %s: %w", w.Rule, err)
	}
	// AddWaivers has refused an --until that is not a day. Days can be compared as text.
	if today := time.Now().UTC().Format(time.DateOnly); w.Until < today {
		return command.Usagef("waive %s: --until %s has passed (today is %s, in UTC): the waiver would accept nothing", w.Rule, w.Until, today)
	}
	if file == "" {
		_, err = stdout.Write(changed)
	} else {
		err = renameio.WriteFile(file, changed, 0o644, renameio.WithExistingPermissions())
	}
	if err != nil {
		return fmt.Errorf("write waiver: %w", err)
	}
	return nil
}

// readWaivers reads the file that --waivers names, up to the largest size.
func readWaivers(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, command.Usagef("--waivers: %w", err)
	}
	defer func() { _ = f.Close() }()
	content, err := io.ReadAll(io.LimitReader(f, finding.MaxWaivers+1))
	if err != nil {
		return nil, command.Usagef("--waivers: %w", err)
	}
	return content, nil
}

// loadWaivers reads and validates the file of waivers. It returns none if file is empty. rules are the IDs of the rules that a
// waiver may name.
func loadWaivers(file string, rules []string) ([]finding.Waiver, error) {
	if file == "" {
		return nil, nil
	}
	content, err := readWaivers(file)
	if err != nil {
		return nil, err
	}
	waivers, err := finding.ParseWaivers(content, rules)
	if err != nil {
		return nil, command.Usagef("--waivers %s: %w", file, err)
	}
	return waivers, nil
}
