package command

import "github.com/spf13/cobra"

// ExactArgs refuses more or less than n positional arguments; it is for the Args of a
// command. what says what of: "two archives".
func ExactArgs(n int, what string) cobra.PositionalArgs { return args(n, n, what) }

// MaxArgs refuses more than n positional arguments, as [ExactArgs] does.
func MaxArgs(n int, what string) cobra.PositionalArgs { return args(0, n, "at most "+what) }

func args(least, most int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < least || len(args) > most {
			return Usagef("%s wants %s; see `%s --help`", cmd.CommandPath(), what, cmd.CommandPath())
		}
		return nil
	}
}
