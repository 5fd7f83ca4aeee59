package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kata-vfio/kata-vfio/pkg/cli/command"
	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/serving"
	"github.com/kata-vfio/kata-vfio/pkg/prepare"
	"github.com/kata-vfio/kata-vfio/pkg/prepare/effects"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// Exit codes, as the help documents them.
const (
	exitFailed      = command.Failed
	exitUsage       = command.Usage
	exitRefused     = 3
	exitInUse       = 4
	exitQuarantined = 5
)

const exitCodes = `Exit codes:
  0  done
  1  something failed; the message says what is left to do
  2  the command line or an input file is wrong; nothing was touched
  3  the claim is refused, with the reason; nothing was touched
  4  a process has the device open; nothing was touched
  5  the reset of a device could not be proven: it is quarantined`

// exitCode returns the exit code for an error.
func exitCode(err error) int {
	var (
		refused     *rule.RefusedError
		inUse       *effects.InUseError
		quarantined *prepare.QuarantinedError
		draining    *drainingError
		some        *someRefusedError
	)
	switch {
	case errors.As(err, &draining) && draining.quarantined():
		return exitQuarantined
	case errors.As(err, &draining):
		return exitInUse
	case errors.As(err, &refused) || errors.As(err, &some):
		return exitRefused
	case errors.As(err, &inUse):
		return exitInUse
	case errors.As(err, &quarantined):
		return exitQuarantined
	}
	return command.ExitCode(err)
}

// newCommand returns the command tree. Results go to stdout, progress to stderr.
func newCommand(stdout, stderr io.Writer) *cobra.Command {
	var opts options
	cmd := &cobra.Command{
		Use:   "kata-vfio-plugin",
		Short: "Give PCI functions to Kata VMs: the DRA plugin, and the same by hand",
		Long: "kata-vfio-plugin binds the PCI functions of a ResourceClaim to VFIO, writes the CDI spec that\n" +
			"hands them to a Kata VM, and takes them back, reset, with registers as before;\n" +
			"memory is not checked.\n\n" +
			"`run` serves the kubelet. The other commands do the same work by hand, without a cluster.\n\n" + exitCodes,
		Args: command.NoSubcommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	command.Setup(cmd, stdout, stderr)
	opts.register(cmd)
	cmd.AddCommand(
		planCommand(&opts), prepareCommand(&opts), unprepareCommand(&opts), statusCommand(&opts),
		recoverCommand(&opts), provisionCommand(&opts), drainCommand(&opts), undrainCommand(&opts), quarantineCommand(&opts),
		templateCommand(&opts), runCommand(&opts), command.ExplainCommand("kata-vfio-plugin", exitCodes), serving.ProbeCommand("kata-vfio-plugin"),
	)
	command.AddVersion(cmd, version())
	return cmd
}

// fail writes an error to w and returns the exit code. Each reason of a refusal is on its own line, with its fix below. The errors
// that a refusal is joined with follow as others do.
func fail(w io.Writer, err error) int {
	for _, one := range parts(err) {
		if refused, ok := errors.AsType[*rule.RefusedError](one); ok {
			printRefusal(w, refused)
			continue
		}
		command.Fail("kata-vfio-plugin", exitCode)(w, one)
	}
	return exitCode(err)
}

// printRefusal prints the reasons of a refusal. Text that it quotes from a node or a file is escaped for terminals.
func printRefusal(w io.Writer, refused *rule.RefusedError) {
	var text strings.Builder
	fmt.Fprintf(&text, "kata-vfio-plugin: %s is refused:\n", refused.Subject)
	for i := range refused.Verdicts {
		r := &refused.Verdicts[i]
		fmt.Fprintf(&text, "  %s: %s (%s)\n      fix: %s\n", r.Device, r.Text, r.Code, r.Fix)
	}
	fmt.Fprint(w, output.VisibleLines(text.String()))
}

// parts returns a refusal and the errors that it is joined with; an error without a refusal as it is.
func parts(err error) []error {
	if _, refused := errors.AsType[*rule.RefusedError](err); !refused {
		return []error{err}
	}
	for at := err; at != nil; at = errors.Unwrap(at) {
		switch joined := at.(type) { //nolint:errorlint // errors.As would not say which of the two comes first
		case *rule.RefusedError:
			return []error{err}
		case interface{ Unwrap() []error }:
			var all []error
			for _, one := range joined.Unwrap() {
				all = append(all, parts(one)...)
			}
			return all
		}
	}
	return []error{err}
}
