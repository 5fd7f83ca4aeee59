package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"

	"github.com/kata-vfio/kata-vfio/pkg/audit"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/cli/command"
	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

func devicesCommand(t *tree) *cobra.Command {
	var (
		format, failOn string
		style          audit.Style
	)
	formats := command.Formats{"table", "wide", "json", "yaml", "dot"}
	cmd := &cobra.Command{
		Use:   "devices",
		Short: "List the PCI functions with their isolation verdicts",
		Long: "devices lists the node's PCI functions by IOMMU group with their isolation verdicts (✓ a claim for it is prepared,\n" +
			"! prepared, with a serious note, ✗ claims are refused; no mark for functions that the node uses, or that the node config does\n" +
			"not select), and then how to fix them, the worst last. \"not selected\" is a function that no rule of the node config\n" +
			"selects, so that the plugin does not publish it.\n" +
			"\"not sliced\" is a VF of a GPU that gpuSlices of the node config does not name, and \"stays on host\" a PF whose vendor supports VMs with its VFs only.\n" +
			"\"boundary\" is what separates a slice from the other tenants of its GPU: hardwareSlice or scheduler.\n" +
			"\n" +
			"The verdicts match the plugin's plan and the taints in its ResourceSlices. They depend on the config that the plugin\n" +
			"uses (/run/kata-vfio/published.json), else /etc/kata-vfio/node.yaml, else the default one; on the records, marks and\n" +
			"drains in the journal; and on the audit checks that the plugin reports as failed. Where no plugin has published since\n" +
			"the boot, devices runs the checks of the plugin's defaults, with the waivers in /etc/kata-vfio/waivers.yaml. Warnings\n" +
			"name what could not be read.\n" +
			"\n" +
			"Of an NVLink fabric, both show the partitions: those that are active and of which claim, those that are free, and what\n" +
			"blocks the others; or why none is known.\n" +
			"\n" +
			"wide adds NEAR: the NIC nearest to a GPU, or the GPU nearest to a NIC, and what they share. A terminal that is too narrow\n" +
			"for a table lacks its least important columns, and the output names them; in a pipe all are there.\n" +
			"\n" +
			"json and yaml contain every function, bridges included, as {\"devices\": [...]}; `reasons` are objects with\n" +
			"code, severity, text, fix and evidence, and empty for an isolated function; `refusals` say why a claim for the\n" +
			"function is refused.\n" +
			"\n" +
			"With --fail-on, the exit code is 3 if a claim can't get a function that the node config selects, for a reason of that\n" +
			"severity or a worse one. `kata-vfio-audit node` then has the same exit code (VFIO-024).\n" +
			"\n" +
			exitCodes + "\n  3  with --fail-on: no claim can get a function that the node config selects",
		Example: "  kata-vfio-audit devices\n" +
			"  kata-vfio-audit devices -o json | jq -r '.devices[] | select(.type==\"gpu\" and (.isolated|not)) | .address'",
		Args:    command.NoArgs,
		PreRunE: func(*cobra.Command, []string) error { return errors.Join(formats.Check(format), checkFailOn(failOn)) },
		RunE: func(cmd *cobra.Command, _ []string) error {
			inv, err := t.read(cmd.Context(), cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			style.Color, style.Width, style.Terminal = output.Colorful(out), output.Width(out), output.TableWidth(out)
			if err := writeDevices(out, inv, format, style); err != nil {
				return err
			}
			return devicesVerdict(inv, rule.Severity(failOn))
		},
	}
	formats.Flag(cmd, &format)
	cmd.Flags().BoolVar(&style.Bridges, "all", false, "list bridges in table and wide too")
	cmd.Flags().StringVar(&failOn, "fail-on", "", "exit code 3 if a selected function is refused with this severity or a worse one: "+finding.SeverityWords())
	_ = cmd.RegisterFlagCompletionFunc("fail-on", cobra.FixedCompletions(strings.Split(finding.SeverityWords(), ", "), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func checkFailOn(value string) error {
	if value != "" && !slices.Contains(finding.Severities(), rule.Severity(value)) {
		return command.Usagef("--fail-on %q: want one of %s", value, finding.SeverityWords())
	}
	return nil
}

// devicesVerdict returns the same exit code as `node` for the same functions. Without a severity, it does not fail.
func devicesVerdict(inv *audit.Inventory, failOn rule.Severity) error {
	if failOn == "" {
		return nil
	}
	if refused := inv.Unclaimable(failOn); len(refused) > 0 {
		return &verdictError{code: exitFindings, text: fmt.Sprintf("selected functions that no claim can get, for severity %s or worse: %d", failOn, len(refused))}
	}
	return nil
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
		return audit.WriteDOT(w, inv, audit.Everything)
	}
	return inv.WriteTable(w, style)
}

func handlersCommand(t *tree) *cobra.Command {
	var format string
	formats := command.Formats{"text", "json", "yaml"}
	cmd := &cobra.Command{
		Use:   "handlers",
		Short: "Show the runtime handlers that run Kata, with the settings that matter",
		Long: "handlers lists the handlers by which containerd and CRI-O run Kata, and Kata's settings of each: the base file, then\n" +
			"the drop-ins of config.d, merged as Kata merges them, and Kata's defaults where no file sets a value.\n" +
			"`kata-vfio-audit cluster --node-report` compares them with the RuntimeClasses (K8S-029).\n" +
			"\n" +
			exitCodes,
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
	s, err := t.scan(ctx, node.fs)
	if err != nil {
		return nil, err
	}
	return audit.NewHandlers(facts.New(node.fs, s)), nil
}

func sandboxesCommand(t *tree) *cobra.Command {
	var format string
	formats := command.Formats{"table", "json", "yaml"}
	cmd := &cobra.Command{
		Use:   "sandboxes [NAMESPACE/POD]",
		Short: "Show Kata's sandboxes, their VMs, and where devices are in the guest",
		Long: "sandboxes lists the sandboxes that Kata recorded (/run/vc/sbs, /run/kata) with their running VMMs, the functions in\n" +
			"each, the functions' addresses in the guest, and the claims that own them in the plugin's journal.\n" +
			"`kata-vfio-audit node` judges the same data: VFIO-019 and VFIO-020.\n" +
			"\n" +
			"IN THE GUEST is the PCI path: the slot of each bridge from the root bus on, then the device's slot. Kata 4.1.0 does not\n" +
			"record it, so the command derives it from QEMU's command line, and shows - where it can't. The Rust runtime records\n" +
			"neither the VMM's PID nor devices other than physical endpoints: these come from the processes.\n" +
			"\n" +
			exitCodes,
		Example: "  kata-vfio-audit sandboxes\n  kata-vfio-audit sandboxes team-a/train -o json",
		Args:    cobra.MaximumNArgs(1),
		PreRunE: func(*cobra.Command, []string) error { return formats.Check(format) },
		RunE: func(cmd *cobra.Command, args []string) error {
			namespace, pod, err := podNamed(args)
			if err != nil {
				return err
			}
			all, err := t.sandboxes(cmd.Context(), cmd.ErrOrStderr(), namespace, pod)
			if err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			return all.Write(out, format, output.TableWidth(out))
		},
	}
	formats.Flag(cmd, &format)
	return cmd
}

// podNamed reads the argument; without one the names are empty.
func podNamed(args []string) (namespace, pod string, err error) {
	if len(args) == 0 {
		return "", "", nil
	}
	namespace, pod, ok := strings.Cut(args[0], "/")
	if !ok || namespace == "" || pod == "" || strings.Contains(pod, "/") {
		return "", "", command.Usagef("pod %q: want NAMESPACE/POD", args[0])
	}
	return namespace, pod, nil
}

// sandboxes reads the node, and warns of unreadable files.
func (t *tree) sandboxes(ctx context.Context, warnings io.Writer, namespace, pod string) (*audit.Sandboxes, error) {
	node, err := t.open()
	if err != nil {
		return nil, err
	}
	defer func() { _ = node.Close() }()
	s, err := t.scan(ctx, node.fs)
	if err != nil {
		return nil, err
	}
	all := audit.NewSandboxes(facts.New(node.fs, s), namespace, pod)
	return all, warnOnce(warnings, all.Unread)
}

func topologyCommand(t *tree) *cobra.Command {
	var (
		format, file string
		all          bool
	)
	formats := command.Formats{"svg", "dot", "tree"}
	cmd := &cobra.Command{
		Use:   "topology",
		Short: "Draw the PCIe tree with IOMMU groups and verdicts",
		Long: "topology draws the node's PCIe tree: NUMA nodes, root buses, ports, switches and functions, IOMMU groups as\n" +
			"outlines, verdicts as color and symbol, and pairs of near GPUs and NICs. The SVG opens in any browser without other\n" +
			"files; hover over a function to see what is wrong. dot is for Graphviz, tree for a terminal. Of an NVLink fabric, tree\n" +
			"lists the partitions, and svg and dot show those that are active.\n" +
			"The verdicts are those of `devices`.\n" +
			"\n" +
			"Of a node with more than 512 functions, it shows root buses with refused functions as far as there is room, and the\n" +
			"counts of the others. --all draws every function.\n" +
			"\n" +
			exitCodes,
		Example: "  kata-vfio-audit topology --file node.svg",
		Args:    command.NoArgs,
		PreRunE: func(*cobra.Command, []string) error { return formats.Check(format) },
		RunE: func(cmd *cobra.Command, _ []string) error {
			inv, err := t.read(cmd.Context(), cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			var drawing bytes.Buffer
			detail := audit.Folded
			if all {
				detail = audit.Everything
			}
			width := 0
			if file == "" {
				width = output.TableWidth(cmd.OutOrStdout())
			}
			if err := writeTopology(&drawing, inv, detail, format, width, file == "" && output.Colorful(cmd.OutOrStdout())); err != nil {
				return err
			}
			return deliver(drawing.Bytes(), file, cmd.OutOrStdout())
		},
	}
	formats.Flag(cmd, &format)
	cmd.Flags().StringVar(&file, "file", "", "write to this file instead of standard output")
	cmd.Flags().BoolVar(&all, "all", false, "show every function of a node with very many")
	return cmd
}

func writeTopology(w io.Writer, inv *audit.Inventory, detail audit.Detail, format string, width int, color bool) error {
	switch format {
	case "dot":
		return audit.WriteDOT(w, inv, detail)
	case "tree":
		return output.WriteTree(w, audit.Tree(inv, detail), width, color)
	}
	return audit.WriteSVG(w, audit.Arrange(inv, detail))
}

// deliver writes a drawing or a report to the file atomically, or to stdout.
func deliver(content []byte, file string, stdout io.Writer) error {
	if file == "" {
		_, err := stdout.Write(content)
		if err != nil {
			return fmt.Errorf("write to standard output: %w", err)
		}
		return nil
	}
	if err := renameio.WriteFile(file, content, 0o644); err != nil {
		return fmt.Errorf("write file %s: %w", file, err)
	}
	return nil
}
