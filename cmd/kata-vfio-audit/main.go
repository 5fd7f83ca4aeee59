// Command kata-vfio-audit shows a node's PCI functions and judges how well
// each can be kept apart from the others. It reads only: it links no code that
// can write to the kernel.
package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/kata-vfio/kata-vfio/pkg/command"
)

func main() {
	command.Main(func(ctx context.Context) error { return run(ctx, os.Args[1:], os.Stdout, os.Stderr) }, fail)
}

// run executes the command line args.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	cmd := newCommand(ctx, stdout, stderr)
	cmd.SetArgs(args)
	return cmd.ExecuteContext(ctx)
}

// fail says on stderr what went wrong and returns the exit code.
func fail(stderr io.Writer, err error) int {
	fmt.Fprintln(stderr, "kata-vfio-audit:", err)
	return exitCode(err)
}

// exitCode returns the exit code for an error.
func exitCode(err error) int { return command.ExitCode(err) }
