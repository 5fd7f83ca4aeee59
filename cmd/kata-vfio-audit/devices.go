package main

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/kata-vfio/kata-vfio/pkg/audit"
	"github.com/kata-vfio/kata-vfio/pkg/audit/topology"
	"github.com/kata-vfio/kata-vfio/pkg/command"
	"github.com/kata-vfio/kata-vfio/pkg/terminal"
)

func devicesCommand(t *tree) *cobra.Command {
	var (
		format string
		style  audit.Style
	)
	formats := command.Formats{"table", "wide", "json", "yaml", "dot"}
	cmd := &cobra.Command{
		Use:   "devices",
		Short: "List the PCI functions with their isolation verdicts",
		Long: "devices lists the node's PCI functions, members of an IOMMU group side by side, with the verdict on each\n" +
			"(✓ a claim for it is prepared if the node config names it, ! likewise and with a grave note, ✗ claims are refused;\n" +
			"no mark for what the node itself uses), and then what to do, the worst last. The plugin's plan, taints and refusals\n" +
			"go by the same judgement.\n" +
			"wide also has NEAR: the NIC that is nearest to a GPU, and the GPU to a NIC, and what they have in common.\n\n" +
			"json and yaml hold every function, bridges included, as {\"devices\": [...]}; `reasons` are objects with\n" +
			"code, severity, text, fix and evidence, and empty for an isolated function; `refusals` are what a claim for the\n" +
			"function is refused for.\n\n" + exitCodes,
		Example: "  kata-vfio-audit devices\n" +
			"  kata-vfio-audit devices -o json | jq -r '.devices[] | select(.type==\"gpu\" and (.isolated|not)) | .address'",
		Args:    command.NoArgs,
		PreRunE: func(*cobra.Command, []string) error { return formats.Check(format) },
		RunE: func(cmd *cobra.Command, _ []string) error {
			inv, err := t.read(cmd.Context(), cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			style.Color = terminal.Colorful(cmd.OutOrStdout())
			return writeDevices(cmd.OutOrStdout(), inv, format, style)
		},
	}
	formats.Flag(cmd, &format)
	cmd.Flags().BoolVar(&style.Bridges, "all", false, "list bridges in table and wide too")
	return cmd
}

func writeDevices(w io.Writer, inv *audit.Inventory, format string, style audit.Style) error {
	switch format {
	case "wide":
		return inv.WriteWide(w, style)
	case "json":
		return inv.WriteJSON(w)
	case "yaml":
		return inv.WriteYAML(w)
	case "dot":
		return topology.WriteDOT(w, inv)
	}
	return inv.WriteTable(w, style)
}
