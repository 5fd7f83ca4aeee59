package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/writer"
	"github.com/kata-vfio/kata-vfio/pkg/cli/command"
	"github.com/kata-vfio/kata-vfio/pkg/fabric"
)

// modulesCommand captures which GPU is where on the board of a fabric.
func modulesCommand(o *options) *cobra.Command {
	var write bool
	var from string
	cmd := &cobra.Command{
		Use:   "modules",
		Short: "Show, or save, which GPU is where on a board with NVSwitches",
		Long: "modules asks nvidia-smi for the Module ID of each GPU, while NVIDIA's driver has all of them: before bootstrap keeps it off, or\n" +
			"after a boot without. Fabric Manager names the GPUs of a partition by it, and no file of the kernel shows it. With --write it saves\n" +
			"the map to /" + bootstrap.ModulesFile + ", with the machine's name and the GPUs' serial numbers; a machine with others does not\n" +
			"use it. Boards of the A100 need none.\n\nExit codes:\n  0  the map is printed, or saved\n  1  there is none, or it could not be saved\n  2  the command line is wrong",
		Example: "  kata-vfio-bootstrap modules --write\n  nvidia-smi -q | kata-vfio-bootstrap modules --from -",
		Args:    command.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
		PreRunE: o.check,
		RunE: func(cmd *cobra.Command, _ []string) error {
			text, err := querySMI(cmd.Context(), from, cmd.InOrStdin())
			if err != nil {
				return err
			}
			e, err := o.open()
			if err != nil {
				return err
			}
			m, err := capture(cmd.Context(), e, text, write)
			if err = errors.Join(err, e.Close()); err != nil {
				return err
			}
			return o.print(cmd.OutOrStdout(), m, func(out *printer) { printModules(out, m, write) })
		},
	}
	cmd.Flags().BoolVar(&write, "write", false, "save the map on the node")
	cmd.Flags().StringVar(&from, "from", "", "the output of nvidia-smi -q in a `file`; - is standard input. Without it, the node's nvidia-smi runs")
	formats().Flag(cmd, &o.format)
	return cmd
}

func capture(ctx context.Context, e *bootstrap.Engine, text string, write bool) (*fabric.Map, error) {
	m, err := e.Modules(ctx, text)
	if err != nil || !write {
		return m, err
	}
	_, err = e.SaveModules(ctx, m)
	return m, err
}

// mostSMI is more than nvidia-smi prints of sixteen GPUs.
const mostSMI = 4 << 20

// querySMI returns the output of `nvidia-smi -q`.
func querySMI(ctx context.Context, from string, stdin io.Reader) (string, error) {
	switch from {
	case "":
		ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("it did not end within a minute"))
		defer cancel()
		text, err := writer.Output(ctx, "nvidia-smi", "-q")
		if err != nil {
			return "", fmt.Errorf("nvidia-smi -q failed: %w; NVIDIA's driver must have the GPUs", err)
		}
		return string(text), nil
	case "-":
		text, err := io.ReadAll(io.LimitReader(stdin, mostSMI))
		return string(text), err
	}
	f, err := os.Open(from)
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(io.LimitReader(f, mostSMI))
	return string(text), errors.Join(err, f.Close())
}

func printModules(out *printer, m *fabric.Map, written bool) {
	rows := [][]string{{"MODULE", "ADDRESS", "SERIAL NUMBER", "UUID"}}
	for _, p := range m.Places {
		rows = append(rows, []string{strconv.Itoa(p.Module), p.Address.String(), p.Serial, p.UUID})
	}
	out.table(rows)
	if written {
		out.line("Saved in /%s.", bootstrap.ModulesFile)
	}
}
