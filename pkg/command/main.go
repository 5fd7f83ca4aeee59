package command

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// Exit codes that mean the same for every program. A program's own begin at 3.
const (
	// Failed is the exit code where nothing more precise is known.
	Failed = 1
	// Usage is the exit code for a [UsageError].
	Usage = 2
)

// Main runs a program and ends the process with its exit code; it does not
// return. The context of run ends with the first SIGINT or SIGTERM. Of an error
// of run, fail says on standard error what went wrong, and returns the exit code.
func Main(run func(context.Context) error, fail func(stderr io.Writer, err error) int) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		os.Exit(fail(os.Stderr, err))
	}
	os.Exit(0)
}
