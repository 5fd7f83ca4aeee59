package command

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// Formats are the values that a command's flag --output takes, the first being
// its default.
type Formats []string

// Flag adds --output (-o) to a command, with completion. The command calls
// [Formats.Check] before it works.
func (f Formats) Flag(cmd *cobra.Command, format *string) {
	cmd.Flags().StringVarP(format, "output", "o", f[0], "output format: "+strings.Join(f, ", "))
	// The only error is a flag that does not exist.
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(f, cobra.ShellCompDirectiveNoFileComp))
}

// Check refuses a value that is none of the formats with a [UsageError].
func (f Formats) Check(format string) error {
	if slices.Contains(f, format) {
		return nil
	}
	return Usagef("--output %q: want one of %s", format, strings.Join(f, ", "))
}
