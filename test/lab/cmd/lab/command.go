package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/kata-vfio/kata-vfio/test/lab"
	"github.com/kata-vfio/kata-vfio/test/lab/image"
)

// machineFlags are the flags of the commands that boot a machine.
type machineFlags struct {
	vfio    string
	args    []string
	noIOMMU bool
	console bool
}

func command() *cobra.Command {
	root := &cobra.Command{
		Use:           "lab",
		Short:         "Boot a machine with an IOMMU, SR-IOV and GPU stand-ins, under software emulation",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(buildCommand(), runCommand(), shellCommand(), pruneCommand())
	return root
}

func buildCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "build",
		Short: "Build the image, if the cache has none for this source, and print its directory",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			img, err := image.Ensure(cmd.Context(), cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), img.Dir)
			return err
		},
	}
}

func pruneCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "prune",
		Short: "Remove the images of other sources from the cache",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			removed, err := image.Prune()
			for _, path := range removed {
				_, printErr := fmt.Fprintln(cmd.OutOrStdout(), "removed", path)
				err = errors.Join(err, printErr)
			}
			return err
		},
	}
}

func runCommand() *cobra.Command {
	var flags machineFlags
	cmd := &cobra.Command{
		Use:   "run COMMAND [ARGUMENT...]",
		Short: "Boot a machine, run a command in it, and stop it",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return flags.with(cmd, func(ctx context.Context, m *lab.Machine) error {
				return attach(ctx, cmd, m, args)
			})
		},
	}
	cmd.Flags().SetInterspersed(false)
	flags.register(cmd)
	return cmd
}

func shellCommand() *cobra.Command {
	var flags machineFlags
	cmd := &cobra.Command{
		Use:   "shell",
		Short: "Boot a machine and read commands for its shell from the standard input",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return flags.with(cmd, func(ctx context.Context, m *lab.Machine) error {
				cmd.PrintErrf("the machine's /host is %s; end with Ctrl-D\n", m.Share())
				return attach(ctx, cmd, m, []string{"/bin/bash"})
			})
		},
	}
	flags.register(cmd)
	return cmd
}

func (f *machineFlags) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.vfio, "vfio", image.IOMMUFD, "VFIO modules: iommufd or legacy")
	cmd.Flags().StringArrayVar(&f.args, "kernel-arg", nil, "argument for the kernel's command line (repeatable)")
	cmd.Flags().BoolVar(&f.noIOMMU, "no-iommu", false, "boot without intel_iommu=on")
	cmd.Flags().BoolVar(&f.console, "console", false, "print the console at the end")
}

// with boots a machine for the duration of do.
func (f *machineFlags) with(cmd *cobra.Command, do func(context.Context, *lab.Machine) error) error {
	start := time.Now()
	m, err := lab.Start(cmd.Context(), lab.Config{
		VFIO: f.vfio, KernelArgs: f.args, WithoutIOMMU: f.noIOMMU, Progress: cmd.ErrOrStderr(),
	})
	if err != nil {
		return err
	}
	defer m.Stop()
	cmd.PrintErrf("ready %.1fs after the start\n", time.Since(start).Seconds())
	err = do(cmd.Context(), m)
	if !f.console {
		return err
	}
	text, consoleErr := m.Console()
	_, printErr := cmd.ErrOrStderr().Write(text)
	return errors.Join(err, consoleErr, printErr)
}

// attach runs a command with this process's input and output.
func attach(ctx context.Context, cmd *cobra.Command, m *lab.Machine, args []string) error {
	c := m.Command(ctx, args[0], args[1:]...)
	c.Stdin, c.Stdout, c.Stderr = os.Stdin, cmd.OutOrStdout(), cmd.ErrOrStderr()
	return c.Run()
}
