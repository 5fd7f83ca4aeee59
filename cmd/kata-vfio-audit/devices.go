package main

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/kata-vfio/kata-vfio/pkg/audit"
	"github.com/kata-vfio/kata-vfio/pkg/audit/topology"
	"github.com/kata-vfio/kata-vfio/pkg/cli/command"
	"github.com/kata-vfio/kata-vfio/pkg/cli/terminal"
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
			"(✓ a claim for it is prepared, ! likewise and with a grave note, ✗ claims are refused; no mark for what the node\n" +
			"itself uses), and then what to do, the worst last. \"not selected\" is what the node config leaves alone: it is not\n" +
			"published.\n\n" +
			"The verdicts are those of the plugin's plan and of the taints in its ResourceSlices. They go by the config that the\n" +
			"plugin says it uses (/run/kata-vfio/published.json), else by /etc/kata-vfio/node.yaml, else by the default one; by the\n" +
			"journal's records, marks and drains; and by the checks of the audit that the plugin says fail. Where no plugin runs,\n" +
			"`kata-vfio-audit node` asks the checks. A warning says what could not be read.\n\n" +
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
