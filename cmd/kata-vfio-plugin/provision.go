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

// provisionCommand provisions VFs once, as `run` does at start.
func provisionCommand(opts *options) *cobra.Command {
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "provision",
		Short: "Create the VFs that the node's config names",
		Long: "provision sets the number of VFs and the eswitch mode of each PF in the node config's virtualFunctions, as `run` does at\n" +
			"start. Host drivers do not bind the VFs. A PF with a VF in use keeps its VFs; the output says why.\n\n" + exitCodes,
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
		provisions, err := n.Maintainer.Provisions(cmd.Context())
		return provisions, errors.Join(err, n.Close())
	}
	n, err := o.open(o.progress(cmd.ErrOrStderr()))
	if err != nil {
		return nil, err
	}
	provisions, err := n.Maintainer.Provision(cmd.Context())
	return provisions, errors.Join(err, n.Close())
}

// refusals returns an error for the rules that were refused.
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
		case p.Failed: // its VFs may be gone
			result = "failed"
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

// amount returns a number of VFs, with the eswitch mode if one is configured: "4 switchdev".
func amount(vfs int, mode string) string {
	return strings.TrimSpace(strconv.Itoa(vfs) + " " + mode)
}
