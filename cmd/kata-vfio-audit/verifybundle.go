package main

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/kata-vfio/kata-vfio/pkg/audit/report"
	"github.com/kata-vfio/kata-vfio/pkg/cli/command"
)

func verifyCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "verify", Short: "Verify evidence offline", Args: command.NoSubcommand, RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	var key string
	bundle := &cobra.Command{
		Use:   "bundle FILE",
		Short: "Verify a bundle of evidence, without the node and its ledger",
		Long: "verify bundle checks that each event of a bundle is in a ledger whose head the node's key has signed, and that the\n" +
			"events support the tenancies and neighbors that the bundle states. It proves what the bundle contains, not that\n" +
			"nothing was left out. It says nothing about the time before its first event.\n" +
			"\n" +
			"Exit codes:\n" +
			"  0  all of it is proven\n" +
			"  1  the file could not be read\n" +
			"  2  the command line is wrong\n" +
			"  5  something in it is not proven",
		Args: oneArgument("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return verifyBundle(cmd.InOrStdin(), cmd.OutOrStdout(), args[0], key)
		},
	}
	bundle.Flags().StringVar(&key, "key", "", "the node's public key, from a trusted source; without it the bundle's own key proves only that the bundle is consistent")
	cmd.AddCommand(bundle)
	return cmd
}

func verifyBundle(stdin io.Reader, w io.Writer, file, key string) error {
	data, err := command.ReadArgument(stdin, file, maxAnchors)
	if err != nil {
		return err
	}
	if key, err = readKey(key); err != nil {
		return err
	}
	v, err := report.VerifyBundle(data, key)
	if err != nil {
		return &verdictError{code: exitLedger, text: err.Error()}
	}
	return v.Document().Write(w, "text")
}
