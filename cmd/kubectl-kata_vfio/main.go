// Command kubectl-kata_vfio is `kubectl kata-vfio`: it shows through the API which claim has which PCI device, the
// states of claims, the failures of the audit and their reasons, the evidence for a platform's conformance, and what
// the cluster would refuse of a tenant's manifests. It only reads from the cluster, except for the pods of its test, and
// writes no file but an archive for support.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/kata-vfio/kata-vfio/pkg/audit/fleet"
	"github.com/kata-vfio/kata-vfio/pkg/cli/command"
)

func main() { command.Main(run, command.Fail("kubectl kata-vfio", exitCode)) }

// run executes the command line args.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	return execute(ctx, newSession(), args, stdout, stderr)
}

func execute(ctx context.Context, s *session, args []string, stdout, stderr io.Writer) error {
	return advised(command.Tree(s.root)(ctx, args, stdout, stderr))
}

// advised says what to do about an API server that did not answer.
func advised(err error) error {
	if _, ok := errors.AsType[*net.OpError](err); ok {
		return fmt.Errorf("%w; the API server did not answer: `kubectl version` shows whether kubectl reaches it", err)
	}
	return err
}

// verdictError is the answer that something is not as it should be. The command itself did what it was asked.
type verdictError struct{ text string }

func (e *verdictError) Error() string { return e.text }

// exitCode returns the exit code for an error.
func exitCode(err error) int {
	if _, ok := errors.AsType[*verdictError](err); ok {
		return exitFindings
	}
	if _, ok := errors.AsType[*forbiddenError](err); ok {
		return exitForbidden
	}
	if _, ok := errors.AsType[*rightsError](err); ok {
		return exitForbidden
	}
	if _, ok := errors.AsType[*fleet.NotFoundError](err); ok {
		return exitNotFound
	}
	if _, ok := errors.AsType[*noViewError](err); ok {
		return exitNotFound
	}
	return command.ExitCode(err)
}
