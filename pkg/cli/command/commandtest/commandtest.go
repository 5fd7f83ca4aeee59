// Package commandtest checks the conventions for the commands of all programs.
package commandtest

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Check fails the test if a command's help or output formats differ from the conventions.
func Check(t *testing.T, root *cobra.Command) {
	t.Helper()
	if root.Flags().Lookup("version") == nil {
		t.Errorf("%s lacks --version", root.Name())
	}
	each(root, func(cmd *cobra.Command) {
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			// The first text in backquotes in a flag's usage is the value's name.
			if value, _ := pflag.UnquoteUsage(f); strings.ContainsAny(value, " \n") {
				t.Errorf("%s --%s: the help calls its value %q", cmd.CommandPath(), f.Name, value)
			}
		})
		formats := listFormats(cmd)
		if slices.Contains(formats, "json") && !slices.Contains(formats, "yaml") {
			t.Errorf("%s --output takes json and not yaml: %v", cmd.CommandPath(), formats)
		}
	})
}

func each(cmd *cobra.Command, do func(*cobra.Command)) {
	do(cmd)
	for _, sub := range cmd.Commands() {
		each(sub, do)
	}
}

func listFormats(cmd *cobra.Command) []string {
	complete, ok := cmd.GetFlagCompletionFunc("output")
	if !ok {
		return nil
	}
	formats, _ := complete(cmd, nil, "")
	return formats
}
