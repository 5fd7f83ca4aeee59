// Package commandtest checks what the commands of all programs have in common.
package commandtest

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Check fails the test where the help of a command or the formats of its output are not as everywhere else.
func Check(t *testing.T, root *cobra.Command) {
	t.Helper()
	if root.Flags().Lookup("version") == nil {
		t.Errorf("%s lacks --version", root.Name())
	}
	each(root, func(cmd *cobra.Command) {
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			// A text in backquotes is the value's name: of those in a flag's usage, the first must be one.
			if value, _ := pflag.UnquoteUsage(f); strings.ContainsAny(value, " \n") {
				t.Errorf("%s --%s: the help calls its value %q", cmd.CommandPath(), f.Name, value)
			}
		})
		formats := formatsOf(cmd)
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

func formatsOf(cmd *cobra.Command) []string {
	complete, ok := cmd.GetFlagCompletionFunc("output")
	if !ok {
		return nil
	}
	formats, _ := complete(cmd, nil, "")
	return formats
}
