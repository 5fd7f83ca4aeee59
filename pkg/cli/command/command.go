// Package command has the common parts of the programs' command lines: start and end, errors in the command line, and
// common flags and subcommands.
package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
)

// Exit codes with the same meaning in every program. A program's own codes begin at 3.
const (
	// Failed is the exit code of an error without a more specific code.
	Failed = 1
	// Usage is the exit code of a [UsageError].
	Usage = 2
)

// Run runs a program with args, which do not include the program's name, until it is done or ctx ends.
type Run func(ctx context.Context, args []string, stdout, stderr io.Writer) error

// Tree returns the [Run] of a tree of commands, which root creates for each run. Commands get the context of Run.
func Tree(root func(stdout, stderr io.Writer) *cobra.Command) Run {
	return func(ctx context.Context, args []string, stdout, stderr io.Writer) error {
		cmd := root(stdout, stderr)
		cmd.SetArgs(args)
		return cmd.ExecuteContext(ctx)
	}
}

// Main runs a program and ends the process with its exit code. The context of run ends with the first SIGINT or
// SIGTERM. fail reports an error of run on standard error, and returns the exit code.
func Main(run Run, fail func(stderr io.Writer, err error) int) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		os.Exit(fail(os.Stderr, err))
	}
	os.Exit(0)
}

// Fail returns a function for [Main] that prints an error on one line after the program's name. Text that the error
// quotes from a node or a file is escaped for terminals.
func Fail(name string, exitCode func(error) int) func(io.Writer, error) int {
	return func(stderr io.Writer, err error) int {
		fmt.Fprintf(stderr, "%s: %s%s\n", name, output.VisibleLines(err.Error()), lacksRight(err, os.Geteuid()))
		return exitCode(err)
	}
}

// lacksRight says what ends an error that a user other than root gets for want of a permission; empty if the error is another one or says
// it itself.
func lacksRight(err error, uid int) string {
	says := func(words string) bool { return strings.Contains(err.Error(), words) }
	if uid == 0 || !errors.Is(err, fs.ErrPermission) || says("as root") || says("only root") || says("capability") {
		return ""
	}
	return fmt.Sprintf("; user %d may not do that: run it as root, or as a user who may", uid)
}

// AddVersion adds the subcommand "version" and the flag --version to a program's root command. Both print text, a line
// that names the build.
func AddVersion(root *cobra.Command, text string) {
	show := func(cmd *cobra.Command) error {
		_, err := fmt.Fprintln(cmd.OutOrStdout(), text)
		return err
	}
	root.AddCommand(&cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error { return show(cmd) },
	})
	asked := root.Flags().Bool("version", false, "print the version")
	run := root.RunE
	root.RunE = func(cmd *cobra.Command, args []string) error {
		if *asked {
			return show(cmd)
		}
		return run(cmd, args)
	}
}

// Build returns the versions of the program's module and of Go, as recorded by the linker: "v1.2.3 (go1.26.1)", or
// "unknown".
func Build() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	return fmt.Sprintf("%s (%s)", info.Main.Version, info.GoVersion)
}

// UsageError is an error in the command line or in a file that it names. The user can correct it, and nothing was
// changed.
type UsageError struct{ Err error }

func (e *UsageError) Error() string { return e.Err.Error() }

// Unwrap returns the error without the mark.
func (e *UsageError) Unwrap() error { return e.Err }

// Usagef returns a formatted [UsageError].
func Usagef(format string, args ...any) error {
	return &UsageError{Err: fmt.Errorf(format, args...)}
}

// ExitCode returns [Usage] if the error is or wraps a [UsageError], otherwise [Failed].
func ExitCode(err error) int {
	if _, ok := errors.AsType[*UsageError](err); ok {
		return Usage
	}
	return Failed
}

// Setup configures cmd, a program's root command: it writes to stdout and stderr, leaves the reporting of errors to
// [Main], and returns a [UsageError] for unknown flags.
func Setup(cmd *cobra.Command, stdout, stderr io.Writer) {
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	cmd.SetOut(stdout)
	cmd.SetErr(stderr)
	cmd.SetFlagErrorFunc(wrongFlag)
}

// wrongFlag returns the error for an unknown flag of a command, or for the unknown command that the flag follows.
func wrongFlag(cmd *cobra.Command, err error) error {
	if args := cmd.Flags().Args(); cmd.HasAvailableSubCommands() && len(args) > 0 {
		return NoSubcommand(cmd, args)
	}
	hint := ""
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
		var names []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden {
				names = append(names, f.Name)
			}
		})
		hint = didYouMean("--", similar(unknown.GetSpecifiedName(), names))
	}
	return Usagef("%w%s; see `%s --help`", err, hint, cmd.CommandPath())
}

// similar returns the names that are similar to a wrong one.
func similar(wrong string, names []string) []string {
	// This is Cobra's own measure, which Cobra applies to commands only.
	group := &cobra.Command{SuggestionsMinimumDistance: 2}
	for _, name := range names {
		group.AddCommand(&cobra.Command{Use: name, Run: func(*cobra.Command, []string) {}})
	}
	return group.SuggestionsFor(wrong)
}

// didYouMean asks about names, each with a prefix. It returns "" without names.
func didYouMean(prefix string, names []string) string {
	if len(names) == 0 {
		return ""
	}
	return " (did you mean " + prefix + strings.Join(names, " or "+prefix) + "?)"
}

// NoSubcommand refuses an unknown subcommand. Use it as Args of a root that only has commands.
func NoSubcommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var names []string
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			names = append(names, sub.Name())
		}
	}
	return Usagef("unknown command %q%s; see `%s --help`", args[0], didYouMean("", similar(args[0], names)), cmd.CommandPath())
}

// NoArgs refuses positional arguments. Use it as Args of a command.
func NoArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return Usagef("unexpected argument %q: %s takes none; see `%s --help`", strings.Join(args, " "), cmd.CommandPath(), cmd.CommandPath())
}

// ExactArgs accepts n positional arguments. Use it as Args of a command. what names them: "two archives".
func ExactArgs(n int, what string) cobra.PositionalArgs { return args(n, n, what) }

// MaxArgs accepts at most n positional arguments. See [ExactArgs].
func MaxArgs(n int, what string) cobra.PositionalArgs { return args(0, n, "at most "+what) }

func args(least, most int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < least || len(args) > most {
			return Usagef("%s wants %s; see `%s --help`", cmd.CommandPath(), what, cmd.CommandPath())
		}
		return nil
	}
}

// ReadArgument reads a file that the command line names; "-" is standard input. If it can't be read or has more than
// limit bytes, the error is a [UsageError].
func ReadArgument(stdin io.Reader, name string, limit int64) ([]byte, error) {
	in := stdin
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, Usagef("%w", err)
		}
		defer func() { _ = f.Close() }()
		in = f
	}
	data, err := io.ReadAll(io.LimitReader(in, limit+1))
	if err != nil {
		return nil, Usagef("read %s: %w", name, err)
	}
	if int64(len(data)) > limit {
		return nil, Usagef("%s has more than %d bytes", name, limit)
	}
	return data, nil
}

// Formats are the values of a command's flag --output. The first is the default.
type Formats []string

// Flag adds --output (-o) to a command, with completion. The command calls [Formats.Check] first.
func (f Formats) Flag(cmd *cobra.Command, format *string) {
	cmd.Flags().StringVarP(format, "output", "o", f[0], "output format: "+strings.Join(f, ", "))
	// The only possible error is an unknown flag.
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(f, cobra.ShellCompDirectiveNoFileComp))
}

// Check returns a [UsageError] for any other value.
func (f Formats) Check(format string) error {
	if slices.Contains(f, format) {
		return nil
	}
	return Usagef("--output %q: want one of %s", format, strings.Join(f, ", "))
}
