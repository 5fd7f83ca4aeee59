package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kata-vfio/kata-vfio/pkg/cli/command"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sanitize"
	"github.com/kata-vfio/kata-vfio/pkg/sanitizer"
)

// exitTerminated is the exit code of a program that SIGTERM ends (128 + 15): the plugin then knows that there is no
// answer about the device.
const exitTerminated = 128 + 15

const exitCodes = "Exit codes:\n" +
	"  0    the device is clean\n" +
	"  1    the result could not be written\n" +
	"  2    the command line is wrong\n" +
	"  3    the device is dirty\n" +
	"  4    the device could not be sanitized, or whether it is clean is unknown\n" +
	"  143  a signal ended the program; there is no result"

const long = "kata-vfio-sanitize wipes a device and measures its firmware inside the VM that has the device, between\n" +
	"two tenants. It needs root, the capability SYS_ADMIN, and a guest kernel without lockdown.\n" +
	"\n" +
	"The result is a JSON document. It goes to --result, and as the last line to stdout; progress goes to\n" +
	"stderr. The exit code agrees with the verdict in the result.\n" +
	"\n"

// options are the flags that both commands have.
type options struct {
	device, result string
	common         sanitizer.Options
}

// newCommand returns the command tree. Results go to stdout, progress to stderr.
func newCommand(stdout, stderr io.Writer) *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "kata-vfio-sanitize",
		Short: "Wipe a device and measure its firmware, inside its VM",
		Long:  long + exitCodes,
		Args:  command.NoSubcommand,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	command.Setup(cmd, stdout, stderr)
	f := cmd.PersistentFlags()
	f.StringVar(&o.common.Root, "root", "/", "directory of the VM's sys and dev")
	f.StringVar(&o.device, "device", "", "PCI address in the VM, such as 0000:00:05.0 (default: the only device that is not a part of every VM)")
	f.StringVar(&o.result, "result", "/dev/termination-log", "file that gets the result; if empty, it goes to stdout only")
	o.common.Log = slog.New(slog.NewTextHandler(stderr, nil))
	cmd.AddCommand(memoryCommand(&o), nvmeCommand(&o))
	command.AddVersion(cmd, cmd.Name()+" "+command.Build())
	// The only error is a flag that does not exist.
	_ = cmd.MarkPersistentFlagDirname("root")
	_ = cmd.MarkPersistentFlagFilename("result")
	return cmd
}

// addTimeout adds --timeout, whose default differs.
func (o *options) addTimeout(f *pflag.FlagSet, usual time.Duration) {
	f.DurationVar(&o.common.Timeout, "timeout", usual, "how long it may take; then the result is Unknown, although the device may still hang")
}

// complete checks the flags that both commands have.
func (o *options) complete() error {
	if o.common.Timeout <= 0 {
		return command.Usagef("--timeout %v: want more than 0", o.common.Timeout)
	}
	if o.device == "" {
		return nil
	}
	address, err := pci.ParseAddress(o.device)
	if err != nil {
		return command.Usagef("--device: %w", err)
	}
	o.common.Device = &address
	return nil
}

// sanitize runs a sanitizer and reports its result.
func (o *options) sanitize(ctx context.Context, stdout io.Writer, run func(context.Context) (*sanitize.Result, error)) error {
	if o.common.Root == "/" {
		if err := sanitizer.MakeWritable("/sys"); err != nil {
			o.common.Log.Warn("continue with a read-only /sys", slog.Any("error", err))
		}
	}
	result, err := run(ctx)
	if err != nil {
		return err
	}
	written, err := report(o.result, stdout, result)
	if err != nil {
		return err
	}
	if written.Verdict == sanitize.Clean {
		return nil
	}
	return &verdictError{verdict: written.Verdict, reason: written.Reason}
}

// verdictError says that a device is not clean. The result has been written.
type verdictError struct {
	verdict sanitize.Verdict
	reason  string
}

func (e *verdictError) Error() string { return string(e.verdict) + ": " + e.reason }

// exitCode returns the exit code for an error.
func exitCode(err error) int {
	if e, ok := errors.AsType[*verdictError](err); ok {
		return e.verdict.ExitCode()
	}
	if errors.Is(err, sanitizer.ErrInterrupted) {
		return exitTerminated
	}
	return command.ExitCode(err)
}
