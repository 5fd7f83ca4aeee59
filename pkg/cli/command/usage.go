package command

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
)

// UsageError marks an error of the command line or of a file that it names: the
// user can do something about it, and nothing was touched.
type UsageError struct{ Err error }

func (e *UsageError) Error() string { return e.Err.Error() }

// Unwrap returns what is wrong.
func (e *UsageError) Unwrap() error { return e.Err }

// Usagef returns a [UsageError] in words.
func Usagef(format string, args ...any) error {
	return &UsageError{Err: fmt.Errorf(format, args...)}
}

// ExitCode returns [Usage] for an error that is or wraps a [UsageError], else
// [Failed].
func ExitCode(err error) int {
	if _, ok := errors.AsType[*UsageError](err); ok {
		return Usage
	}
	return Failed
}

// Setup makes cmd, the root of a program's commands, write to stdout and
// stderr, leave the telling of errors to [Main], and return a [UsageError] for
// flags that it does not know.
func Setup(cmd *cobra.Command, stdout, stderr io.Writer) {
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	cmd.SetOut(stdout)
	cmd.SetErr(stderr)
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		return Usagef("%w; see `%s --help`", err, cmd.Name())
	})
}

// NoSubcommand refuses a word that is no command; it is for the Args of a root
// that only has commands.
func NoSubcommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return Usagef("unknown command %q; see `%s --help`", args[0], cmd.CommandPath())
}

// NoArgs refuses positional arguments; it is for the Args of a command.
func NoArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return Usagef("unexpected argument %q; see `%s --help`", strings.Join(args, " "), cmd.CommandPath())
}
