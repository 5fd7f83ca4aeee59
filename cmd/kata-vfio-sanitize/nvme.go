package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kata-vfio/kata-vfio/pkg/cli/command"
	"github.com/kata-vfio/kata-vfio/pkg/sanitize"
	"github.com/kata-vfio/kata-vfio/pkg/sanitizer"
)

const nvmeLong = "It makes one namespace of all capacity if the controller manages namespaces, writes markers, erases, and\n" +
	"checks that no marker can be read. After zeros were written, and with --verify all, it reads all blocks.\n" +
	"The method auto is crypto or user-data if the controller has Format NVM, otherwise write-zeroes.\n" +
	"\n"

// Values of --verify.
const (
	verifySample = "sample"
	verifyAll    = "all"
)

// nvmeCommand returns the command nvme.
func nvmeCommand(o *options) *cobra.Command {
	var method, verify string
	cmd := &cobra.Command{
		Use:   "nvme",
		Short: "Erase the namespaces of an NVMe controller",
		Long:  nvmeLong + exitCodes,
		Example: `  kata-vfio-sanitize nvme
  kata-vfio-sanitize nvme --device 0000:00:05.0 --method write-zeroes --timeout 4h`,
		Args: command.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			n, err := nvmeOptions(o, method, verify)
			if err != nil {
				return err
			}
			return o.sanitize(cmd.Context(), cmd.OutOrStdout(), func(ctx context.Context) (*sanitize.Result, error) {
				return sanitizer.NVMe(ctx, n)
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&method, "method", string(sanitizer.Auto), "how to erase: "+strings.Join(methods(), ", "))
	f.StringVar(&verify, "verify", verifySample, fmt.Sprintf("what to read afterwards: %s (some blocks), %s", verifySample, verifyAll))
	o.addTimeout(f, time.Hour)
	// The only error is a flag that does not exist.
	_ = cmd.RegisterFlagCompletionFunc("method", cobra.FixedCompletions(methods(), cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("verify", cobra.FixedCompletions([]string{verifySample, verifyAll}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// methods returns the values of --method.
func methods() []string {
	var names []string
	for _, m := range sanitizer.Methods() {
		names = append(names, string(m))
	}
	return names
}

// nvmeOptions checks the flags.
func nvmeOptions(o *options, method, verify string) (sanitizer.NVMeOptions, error) {
	if err := o.complete(); err != nil {
		return sanitizer.NVMeOptions{}, err
	}
	if !slices.Contains(methods(), method) {
		return sanitizer.NVMeOptions{}, command.Usagef("--method %q: want one of %s", method, strings.Join(methods(), ", "))
	}
	if verify != verifySample && verify != verifyAll {
		return sanitizer.NVMeOptions{}, command.Usagef("--verify %q: want %s or %s", verify, verifySample, verifyAll)
	}
	return sanitizer.NVMeOptions{Options: o.common, Method: sanitizer.Method(method), VerifyAll: verify == verifyAll}, nil
}
