package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/kata-vfio/kata-vfio/pkg/cli/command"
	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
	"github.com/kata-vfio/kata-vfio/pkg/network/guestnet"
)

// Exit codes, as the help documents them.
const (
	exitFailed   = command.Failed
	exitUsage    = command.Usage
	exitNotFound = 3
	exitNoLink   = 4
)

const exitCodes = "Exit codes:\n" +
	"  0  every interface is configured as requested\n" +
	"  1  an operation failed\n" +
	"  2  the command line, the metadata or the config is wrong, or requests something impossible\n" +
	"  3  an interface did not appear in time; nothing was changed\n" +
	"  4  an interface had no link in time; all else is configured"

const long = "kata-vfio-guestnet finds the interface of each VF that the pod's claims give to this VM, by its MAC\n" +
	"or, on InfiniBand, by its port GUID, and sets its name, MTU, addresses, routes and rules. It then\n" +
	"waits for the link. You can run it again: it changes only settings that differ from the request.\n" +
	"\n" +
	"It reads the device metadata that DRA mounts into a container that names the claims in\n" +
	"resources.claims, and needs the capability NET_ADMIN. The result goes to stdout, progress to stderr.\n" +
	"json and yaml say for every item whether it was changed, and list settings of the interface that\n" +
	"nobody requested (\"unmanaged\").\n" +
	"\n"

const example = `  kata-vfio-guestnet
  kata-vfio-guestnet --dry-run -o json
  kata-vfio-guestnet --config networks.yaml --wait 1m

  # networks.yaml
  - mac: "02:00:5e:10:00:01"   # or portGUID, or pci: "0000:02:00.0", the address in the guest
    network:
      interface: net1
      mtu: 9000
      addresses: [192.0.2.10/24, "2001:db8::10/64"]
      routes: [{to: default, via: 192.0.2.1}]
      table: 100`

// exitCode returns the exit code for an error. Of several errors, the one that
// the user can do most about counts.
func exitCode(err error) int {
	if _, ok := errors.AsType[*guestnet.InputError](err); ok {
		return exitUsage
	}
	if _, ok := errors.AsType[*guestnet.NotFoundError](err); ok {
		return exitNotFound
	}
	if _, ok := errors.AsType[*guestnet.NoLinkError](err); ok {
		return exitNoLink
	}
	return command.ExitCode(err)
}

// options are the command's flags.
type options struct {
	metadataDir, config, format string
	network                     guestnet.Options
}

// newCommand returns the command. Results go to stdout, progress to stderr.
func newCommand(stdout, stderr io.Writer) *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:     "kata-vfio-guestnet",
		Short:   "Configure the interfaces of a pod's VFs inside its VM",
		Long:    long + exitCodes,
		Example: example,
		Args:    command.NoArgs,
		PreRunE: func(*cobra.Command, []string) error { return o.check() },
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.network.Log = slog.New(slog.NewTextHandler(stderr, nil))
			return o.configure(cmd.Context(), stdout)
		},
	}
	command.Setup(cmd, stdout, stderr)
	o.addFlags(cmd)
	cmd.AddCommand(devicesCommand())
	command.AddVersion(cmd, cmd.Name()+" "+command.Build())
	return cmd
}

// formats are the output formats.
func formats() command.Formats { return command.Formats{"table", "json", "yaml"} }

func (o *options) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.metadataDir, "metadata-dir", guestnet.DefaultMetadataDir, "directory of the device metadata files")
	f.StringVar(&o.config, "config", "", "file that lists {mac, portGUID or pci, network}, used instead of the metadata")
	f.DurationVar(&o.network.Wait, "wait", 30*time.Second, "how long to wait for the interfaces, and then for their link")
	f.BoolVar(&o.network.NoWaitLink, "no-wait-link", false, "do not wait for the link")
	f.BoolVar(&o.network.DryRun, "dry-run", false, "change nothing, only show what would change")
	formats().Flag(cmd, &o.format)
	// The only error is a flag that does not exist.
	_ = cmd.MarkFlagDirname("metadata-dir")
	_ = cmd.MarkFlagFilename("config", "yaml", "yml", "json")
}

// check refuses flags that are empty or contradict each other.
func (o *options) check() error {
	if err := formats().Check(o.format); err != nil {
		return err
	}
	switch {
	case o.network.Wait < 0:
		return command.Usagef("--wait %v: want no less than 0", o.network.Wait)
	case o.config != "" && o.metadataDir != guestnet.DefaultMetadataDir:
		return command.Usagef("--config and --metadata-dir: set only one of the two")
	}
	return nil
}

// configure configures the interfaces. It writes the results even if some failed.
func (o *options) configure(ctx context.Context, stdout io.Writer) error {
	devices, err := o.devices()
	if err != nil {
		return err
	}
	report, err := guestnet.Configure(ctx, devices, o.network)
	if report == nil {
		return err
	}
	return errors.Join(err, o.write(stdout, report))
}

func (o *options) devices() ([]guestnet.Device, error) {
	if o.config != "" {
		return guestnet.ReadConfig(o.config)
	}
	return guestnet.ReadMetadata(o.metadataDir)
}

func (o *options) write(w io.Writer, report *guestnet.Report) error {
	switch o.format {
	case "json":
		return report.WriteJSON(w)
	case "yaml":
		return report.WriteYAML(w)
	}
	return report.WriteTable(w, output.TableWidth(w))
}
