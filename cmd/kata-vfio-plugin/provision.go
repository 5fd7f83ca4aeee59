package main

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kata-vfio/kata-vfio/pkg/cli/command"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
)

// provisionCommand does once what `run` does at start about VFs.
func provisionCommand(opts *options) *cobra.Command {
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "provision",
		Short: "Give PFs the VFs that the node's config names",
		Long: "provision brings each PF of virtualFunctions in the node's config to its number of VFs and its eswitch mode, as\n" +
			"`run` does at start, with host drivers kept away from the VFs. A PF of which a VF is in use keeps its VFs as they\n" +
			"are, with the reason.\n\n" + exitCodes,
		Args: command.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
		Example: "  kata-vfio-plugin provision --config /etc/kata-vfio/node.yaml --dry-run\n  kata-vfio-plugin provision -o json | jq -r '.[] | select(.refused) | .pf'",
		RunE: func(cmd *cobra.Command, _ []string) error {
			provisions, err := opts.provision(cmd, dryRun)
			if err != nil {
				return err
			}
			if err := printProvisions(cmd.OutOrStdout(), opts.output, provisions, dryRun); err != nil {
				return err
			}
			return refusals(provisions)
		},
	}
	opts.registerWork(cmd)
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "show what would change and touch nothing")
	return cmd
}

func (o *options) provision(cmd *cobra.Command, dryRun bool) ([]plan.Provision, error) {
	if dryRun {
		n, err := o.look()
		if err != nil {
			return nil, err
		}
		provisions, err := n.Provisions(cmd.Context())
		return provisions, errors.Join(err, n.Close())
	}
	n, err := o.open(progress(cmd.ErrOrStderr()))
	if err != nil {
		return nil, err
	}
	provisions, err := n.Provision(cmd.Context())
	return provisions, errors.Join(err, n.Close())
}

// refusals is the error of those that were refused.
func refusals(provisions []plan.Provision) error {
	var errs []error
	for i := range provisions {
		if provisions[i].Refused != "" {
			errs = append(errs, errors.New(provisions[i].String()))
		}
	}
	return errors.Join(errs...)
}

// printProvisions prints one row for each rule.
func printProvisions(w io.Writer, format string, provisions []plan.Provision, dryRun bool) error {
	if done, err := document(w, format, list(provisions)); done {
		return err
	}
	if len(provisions) == 0 {
		_, err := fmt.Fprintln(w, "The node's config names no virtualFunctions.")
		return err
	}
	rows := [][]string{{"PF", "RULE", "HAD", "WANTED", "RESULT"}}
	for i := range provisions {
		p := &provisions[i]
		result := "changed"
		switch {
		case dryRun && p.Due():
			result = "would change"
		case p.Refused != "":
			result = "left as it is"
		case p.Right():
			result = "right"
		}
		address := "-"
		if p.PF != (pci.Address{}) {
			address = p.PF.String()
		}
		rows = append(rows, []string{address, p.Rule, amount(p.Have, p.HaveMode), amount(p.Want, p.WantMode), result})
	}
	return table(w, rows)
}

// amount is a number of VFs, and the mode that they are in where one is asked
// for: "4 switchdev".
func amount(vfs int, mode string) string {
	return strings.TrimSpace(strconv.Itoa(vfs) + " " + mode)
}
