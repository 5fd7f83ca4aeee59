package main

import (
	"context"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kata-vfio/kata-vfio/pkg/audit"
	"github.com/kata-vfio/kata-vfio/pkg/audit/facts"
	"github.com/kata-vfio/kata-vfio/pkg/cli/command"
)

func sandboxesCommand(t *tree) *cobra.Command {
	var format string
	formats := command.Formats{"table", "json", "yaml"}
	cmd := &cobra.Command{
		Use:   "sandboxes [NAMESPACE/POD]",
		Short: "Show Kata's own view: its sandboxes, their VMs, and where devices are in the guest",
		Long: "sandboxes lists what Kata writes down of its sandboxes (/run/vc/sbs, /run/kata) with the VMM that runs, the\n" +
			"functions of the node in each, where they are in the guest, and which claims have them by the plugin's journal.\n" +
			"`kata-vfio-audit node` judges the same: VFIO-019 and VFIO-020.\n\n" +
			"IN THE GUEST is the PCI path: the slot of each bridge from the root bus on, and the device's own. Kata 4.1.0 does not\n" +
			"write it down; it is worked out from QEMU's command line, and is - where that does not tell it. The Rust runtime\n" +
			"writes down neither the VMM's PID nor devices other than physical endpoints: these come from the processes alone.\n\n" + exitCodes,
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
			return all.Write(cmd.OutOrStdout(), format)
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

// sandboxes reads the node, and warns of what could not be read.
func (t *tree) sandboxes(ctx context.Context, warnings io.Writer, namespace, pod string) (*audit.Sandboxes, error) {
	node, err := t.open()
	if err != nil {
		return nil, err
	}
	defer func() { _ = node.Close() }()
	s, err := t.scan(ctx, node.FS)
	if err != nil {
		return nil, err
	}
	all := audit.SandboxesOf(facts.New(node.FS, s), namespace, pod)
	for _, text := range all.Unread {
		if err := warn(warnings, text); err != nil {
			return nil, err
		}
	}
	return all, nil
}
