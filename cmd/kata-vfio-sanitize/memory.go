package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kata-vfio/kata-vfio/pkg/cli/command"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sanitize"
	"github.com/kata-vfio/kata-vfio/pkg/sanitizer"
)

const memoryLong = "It fills the device's memory with a random pattern, verifies all of it, writes zeros and verifies them,\n" +
	"through the memory BARs. It unbinds the guest's driver first. Memory that no BAR shows is not reached:\n" +
	"say with --expect-bytes how much there is.\n" +
	"\n"

// memoryCommand returns the command memory.
func memoryCommand(o *options) *cobra.Command {
	var bars []int
	var bytes string
	cmd := &cobra.Command{
		Use:   "memory",
		Short: "Wipe the memory that a device's BARs show",
		Long:  memoryLong + exitCodes,
		Example: `  kata-vfio-sanitize memory --expect-bytes 16Gi
  kata-vfio-sanitize memory --device 0000:00:05.0 --bar 0 --timeout 30m`,
		Args: command.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			m, err := memoryOptions(o, bars, bytes)
			if err != nil {
				return err
			}
			return o.sanitize(cmd.Context(), cmd.OutOrStdout(), func(ctx context.Context) (*sanitize.Result, error) {
				return sanitizer.Memory(ctx, m)
			})
		},
	}
	f := cmd.Flags()
	f.IntSliceVar(&bars, "bar", nil, "number of a memory BAR to wipe; repeat it for several (default: all that are prefetchable)")
	f.StringVar(&bytes, "expect-bytes", "", "how much memory the device has, such as 16Gi; more than the BARs show is Unknown")
	o.addTimeout(f, 10*time.Minute)
	return cmd
}

// memoryOptions checks the flags.
func memoryOptions(o *options, bars []int, bytes string) (sanitizer.MemoryOptions, error) {
	if err := o.complete(); err != nil {
		return sanitizer.MemoryOptions{}, err
	}
	m := sanitizer.MemoryOptions{Options: o.common, BARs: bars}
	named := map[int]bool{}
	for _, n := range bars {
		if n < 0 || n >= pci.MaxBARs || named[n] {
			return m, command.Usagef("--bar %d: want numbers from 0 to %d, each once", n, pci.MaxBARs-1)
		}
		named[n] = true
	}
	if bytes == "" {
		return m, nil
	}
	quantity, err := resource.ParseQuantity(bytes)
	if err != nil || quantity.Sign() <= 0 || quantity.Value() <= 0 {
		return m, command.Usagef("--expect-bytes %q: want a quantity such as 16Gi", bytes)
	}
	m.ExpectBytes = uint64(quantity.Value())
	return m, nil
}
