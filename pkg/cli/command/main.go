package command

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/kata-vfio/kata-vfio/pkg/cli/terminal"
)

// Exit codes that mean the same for every program. A program's own begin at 3.
const (
	// Failed is the exit code where nothing more precise is known.
	Failed = 1
	// Usage is the exit code for a [UsageError].
	Usage = 2
)

// Run is a program without its process: it does what args, without the
// program's name, ask for, until it is done or ctx ends.
type Run func(ctx context.Context, args []string, stdout, stderr io.Writer) error

// Tree is the [Run] of a tree of commands, which is made anew for each. The
// commands find the context in theirs.
func Tree(root func(stdout, stderr io.Writer) *cobra.Command) Run {
	return func(ctx context.Context, args []string, stdout, stderr io.Writer) error {
		cmd := root(stdout, stderr)
		cmd.SetArgs(args)
		return cmd.ExecuteContext(ctx)
	}
}

// Main runs a program and ends the process with its exit code; it does not
// return. The context of run ends with the first SIGINT or SIGTERM. Of an error
// of run, fail says on standard error what went wrong, and returns the exit code.
func Main(run Run, fail func(stderr io.Writer, err error) int) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		os.Exit(fail(os.Stderr, err))
	}
	os.Exit(0)
}

// Fail is for [Main] where an error is told in one line, behind the program's
// name. What it quotes, from a node or a file, does nothing on a terminal.
func Fail(name string, exitCode func(error) int) func(io.Writer, error) int {
	return func(stderr io.Writer, err error) int {
		fmt.Fprintf(stderr, "%s: %s\n", name, terminal.VisibleLines(err.Error()))
		return exitCode(err)
	}
}
