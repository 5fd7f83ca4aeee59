package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kata-vfio/kata-vfio/pkg/cli/command"
	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
	"github.com/kata-vfio/kata-vfio/pkg/network/guestnet"
)

// looking has the flags of devices.
type looking struct {
	sys, metadata string
	check, stay   bool
}

// devicesCommand prints what the VM sees. It needs no capability.
func devicesCommand() *cobra.Command {
	var l looking
	cmd := &cobra.Command{
		Use:   "devices",
		Short: "Print the PCI functions that this VM sees, and check that they are those of the pod's claims",
		Long: "devices prints the PCI functions that this VM sees as one line of JSON, and changes nothing. With --check it compares them with the\n" +
			"devices of the claims that the container names: as many functions of each vendor and device ID as the claims give.\n" +
			"`kubectl kata-vfio test` runs it. Exit code 1: they differ. 2: the container names no claim for such a device.",
		Example: "  kata-vfio-guestnet devices --check",
		Args:    command.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := l.look(cmd.OutOrStdout(), cmd.ErrOrStderr()); err != nil {
				return err
			}
			if l.stay {
				<-cmd.Context().Done()
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.BoolVar(&l.check, "check", false, "compare them with the devices of the claims")
	f.BoolVar(&l.stay, "stay", false, "wait for a signal then, so that the pod keeps its devices")
	f.StringVar(&l.metadata, "metadata-dir", guestnet.DefaultMetadataDir, "directory of the device metadata files")
	f.StringVar(&l.sys, "sysfs", "/sys", "directory of sysfs")
	return cmd
}

// look prints the functions, and compares them.
func (l *looking) look(stdout, stderr io.Writer) error {
	tree, err := os.OpenRoot(l.sys)
	if err != nil {
		return fmt.Errorf("open sysfs: %w", err)
	}
	defer tree.Close() //nolint:errcheck // it was only read
	files, ok := tree.FS().(guestnet.Files)
	if !ok {
		return fmt.Errorf("open sysfs: %T reads no links", tree.FS())
	}
	seen, err := guestnet.ReadFunctions(files)
	if err != nil {
		return err
	}
	if err := output.JSONLine(stdout, "functions", seen); err != nil || !l.check {
		return err
	}
	compared, missing, err := seen.Lacking(l.metadata)
	if err != nil {
		return err
	}
	if len(missing) > 0 {
		return fmt.Errorf("the VM sees %s", strings.Join(missing, "; "))
	}
	fmt.Fprintf(stderr, "the VM sees %s of its claims\n", output.Count(compared, "device"))
	return nil
}
