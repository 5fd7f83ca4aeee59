package main

import (
	"bytes"
	"fmt"
	"io"

	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"

	"github.com/kata-vfio/kata-vfio/pkg/audit"
	"github.com/kata-vfio/kata-vfio/pkg/audit/topology"
	"github.com/kata-vfio/kata-vfio/pkg/cli/command"
	"github.com/kata-vfio/kata-vfio/pkg/cli/terminal"
)

func topologyCommand(t *tree) *cobra.Command {
	var format, file string
	formats := command.Formats{"svg", "dot", "tree"}
	cmd := &cobra.Command{
		Use:   "topology",
		Short: "Draw the PCIe tree with IOMMU groups and verdicts",
		Long: "topology draws the node's PCIe tree: NUMA nodes, root buses, ports, switches and functions, IOMMU groups as\n" +
			"outlines, verdicts as colour and symbol, and which GPU and NIC belong together. The SVG stands alone and opens\n" +
			"in any browser; hover over a function to read what is wrong. dot is for Graphviz, tree for a terminal.\n" +
			"Functions are judged as `devices` judges them.\n\n" + exitCodes,
		Example: "  kata-vfio-audit topology --file node.svg",
		Args:    command.NoArgs,
		PreRunE: func(*cobra.Command, []string) error { return formats.Check(format) },
		RunE: func(cmd *cobra.Command, _ []string) error {
			inv, err := t.read(cmd.Context(), cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			var drawing bytes.Buffer
			if err := writeTopology(&drawing, inv, format, file == "" && terminal.Colorful(cmd.OutOrStdout())); err != nil {
				return err
			}
			return deliver(drawing.Bytes(), file, cmd.OutOrStdout())
		},
	}
	formats.Flag(cmd, &format)
	cmd.Flags().StringVar(&file, "file", "", "write to this file instead of standard output")
	return cmd
}

func writeTopology(w io.Writer, inv *audit.Inventory, format string, color bool) error {
	switch format {
	case "dot":
		return topology.WriteDOT(w, inv)
	case "tree":
		return topology.WriteTree(w, topology.Tree(inv), color)
	}
	return topology.WriteSVG(w, topology.Arrange(inv))
}

// deliver writes the drawing to the file, whole or not at all, or to stdout.
func deliver(drawing []byte, file string, stdout io.Writer) error {
	if file == "" {
		_, err := stdout.Write(drawing)
		if err != nil {
			return fmt.Errorf("write drawing: %w", err)
		}
		return nil
	}
	if err := renameio.WriteFile(file, drawing, 0o644); err != nil {
		return fmt.Errorf("write drawing to %s: %w", file, err)
	}
	return nil
}
