package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/kata-vfio/kata-vfio/pkg/audit"
	"github.com/kata-vfio/kata-vfio/pkg/audit/facts"
	"github.com/kata-vfio/kata-vfio/pkg/cli/command"
)

func handlersCommand(t *tree) *cobra.Command {
	var format string
	formats := command.Formats{"text", "json", "yaml"}
	cmd := &cobra.Command{
		Use:   "handlers",
		Short: "Show the runtime handlers that run Kata, with the settings that count",
		Long: "handlers lists what containerd and CRI-O run Kata by, and Kata's settings for each: the base with every drop-in of\n" +
			"config.d over it, as Kata merges them, and Kata's defaults where no file says anything. `kata-vfio-audit cluster\n" +
			"--node-report` compares them with the RuntimeClasses (K8S-029).\n\n" + exitCodes,
		Example: "  kata-vfio-audit handlers\n  kata-vfio-audit handlers -o json",
		Args:    cobra.NoArgs,
		PreRunE: func(*cobra.Command, []string) error { return formats.Check(format) },
		RunE: func(cmd *cobra.Command, _ []string) error {
			all, err := t.handlers(cmd.Context())
			if err != nil {
				return err
			}
			return all.Write(cmd.OutOrStdout(), format)
		},
	}
	formats.Flag(cmd, &format)
	return cmd
}

func (t *tree) handlers(ctx context.Context) (*audit.Handlers, error) {
	node, err := t.open()
	if err != nil {
		return nil, err
	}
	defer func() { _ = node.Close() }()
	s, err := t.scan(ctx, node.FS)
	if err != nil {
		return nil, err
	}
	return audit.HandlersOf(facts.New(node.FS, s)), nil
}
