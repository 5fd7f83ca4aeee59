package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// Exit codes, as the help documents them.
const (
	exitFailed = 1
	exitUsage  = 2
)

const exitCodes = `Exit codes:
  0  done, whatever the verdicts say
  1  the node or tree could not be read, or the output not written
  2  the command line is wrong`

// usageError marks an error of the command line.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

// exitCode returns the exit code for an error.
func exitCode(err error) int {
	if _, ok := errors.AsType[*usageError](err); ok {
		return exitUsage
	}
	return exitFailed
}

// newCommand returns the command tree. Results go to stdout, warnings to stderr.
func newCommand(ctx context.Context, stdout, stderr io.Writer) *cobra.Command {
	var t tree
	cmd := &cobra.Command{
		Use:   "kata-vfio-audit",
		Short: "Show a node's PCI functions and how well each is isolated",
		Long: "kata-vfio-audit reads a node, or a captured copy of one, and says of every PCI function whether a VM\n" +
			"that has it is kept apart from the rest of the node: why not, by which evidence, and what to do.\n" +
			"It changes nothing. Run it as root: the kernel shows ACS and ATS to nobody else.\n\n" + exitCodes,
		Args:          noSubcommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	cmd.SetOut(stdout)
	cmd.SetErr(stderr)
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		return &usageError{fmt.Errorf("%w; see `kata-vfio-audit --help`", err)}
	})
	cmd.PersistentFlags().StringVar(&t.root, "root", "/", "the node's root: / or a directory that holds sys, proc, dev and lib")
	cmd.AddCommand(devicesCommand(ctx, &t), topologyCommand(ctx, &t), versionCommand())
	return cmd
}

// noSubcommand refuses a word that is no command.
func noSubcommand(_ *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return &usageError{fmt.Errorf("unknown command %q; see `kata-vfio-audit --help`", args[0])}
}

// noArgs refuses positional arguments.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return &usageError{fmt.Errorf("unexpected argument %q; see `%s --help`", strings.Join(args, " "), cmd.CommandPath())}
}

// formatFlag adds -o with the given choices, the first being the default.
func formatFlag(cmd *cobra.Command, format *string, choices ...string) {
	cmd.Flags().StringVarP(format, "output", "o", choices[0], "output format: "+strings.Join(choices, ", "))
	complete := cobra.FixedCompletions(choices, cobra.ShellCompDirectiveNoFileComp)
	// The only error is a flag that does not exist.
	_ = cmd.RegisterFlagCompletionFunc("output", complete)
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if slices.Contains(choices, *format) {
			return nil
		}
		return &usageError{fmt.Errorf("--output %q: want one of %s", *format, strings.Join(choices, ", "))}
	}
}

// versionCommand prints the version that the build recorded.
func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			version := "unknown"
			if info, ok := debug.ReadBuildInfo(); ok {
				version = fmt.Sprintf("%s (%s)", info.Main.Version, info.GoVersion)
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), "kata-vfio-audit", version)
			return err
		},
	}
}
