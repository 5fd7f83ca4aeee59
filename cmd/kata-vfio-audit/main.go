// Command kata-vfio-audit shows a node's PCI functions and judges how well
// each can be kept apart from the others. It reads only: it links no code that
// can write to the kernel.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "kata-vfio-audit:", err)
		os.Exit(exitCode(err))
	}
}

// run executes the command line args.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	cmd := newCommand(ctx, stdout, stderr)
	cmd.SetArgs(args)
	return cmd.ExecuteContext(ctx)
}
