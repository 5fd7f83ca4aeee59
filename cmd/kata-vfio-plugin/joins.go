package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/node"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
)

// joins is what joins functions of the node: exclusive domains, and an NVLink fabric.
type joins struct {
	domains []plan.DomainState
	fabric  *plan.FabricState
}

// findJoins returns what joins functions, by the config that the plugin uses, or else by the node's own.
func (o *options) findJoins(ctx context.Context, published *facts.Published) (joins, error) {
	config, stages := published.Config, published.Sanitizers
	if config == nil {
		var err error
		if config, err = o.nodeConfig(); err != nil {
			return joins{}, err
		}
		if stages, err = o.stages(); err != nil {
			return joins{}, err
		}
	}
	if hasFabric := config != nil && config.Fabric != nil; !hasFabric && !config.HasExclusive() {
		return joins{}, nil
	}
	looking := o.node
	looking.Node, looking.Sanitizers = config, stages
	n, err := node.Look(looking)
	if err != nil {
		return joins{}, err
	}
	all, err := readJoins(ctx, n)
	return all, errors.Join(err, n.Close())
}

func readJoins(ctx context.Context, n *node.Node) (joins, error) {
	snap, err := n.Parts.Inventory.Snapshot(ctx)
	if err != nil {
		return joins{}, err
	}
	known, err := n.Preparer.PlanNode(ctx, snap)
	if err != nil {
		return joins{}, err
	}
	return joins{known.Domains(), known.Fabric()}, nil
}

// printDomains prints the tenant of each exclusive domain, and what is free there.
func printDomains(w io.Writer, all []plan.DomainState) error {
	for i := range all {
		if _, err := fmt.Fprintf(w, "\n%s\n", domainSentence(&all[i])); err != nil {
			return err
		}
	}
	return nil
}

// domainSentence is "Exclusive switch 0000:21:00.0: tenant 0123456789abcdef has 0000:23:00.0; kept for it: 0000:24:00.0".
func domainSentence(d *plan.DomainState) string {
	held := make([]pci.Address, len(d.Tenancies))
	for i := range d.Tenancies {
		held[i] = d.Tenancies[i].Function
	}
	has, rest := " has ", "; kept for it: "
	switch d.Tenant {
	case "":
		return fmt.Sprintf("Exclusive %s: no tenant has it; free: %s", d.Domain, fewAddresses(d.Free))
	case plan.SeveralTenants:
		has, rest = " have ", "; no claim can get: "
	case plan.UnknownTenant:
		rest = "; no claim can get: "
	}
	return fmt.Sprintf("Exclusive %s: ", d.Domain) + plan.TenantWords(d.Tenant) + has + fewAddresses(held) + rest + fewAddresses(d.Free)
}

// printFabric prints the partitions of the NVLink fabric.
func printFabric(w io.Writer, s *plan.FabricState) error {
	if s == nil {
		return nil
	}
	lines := strings.Join(append([]string{s.Words()}, s.Notes()...), "\n  ")
	if _, err := fmt.Fprintf(w, "\n%s\n", lines); err != nil || len(s.Partitions) == 0 {
		return err
	}
	return table(w, s.Rows(), "MODULES")
}

// fewAddresses lists addresses for people: "none", or the first and the number of the others.
func fewAddresses(all []pci.Address) string {
	const most = 8
	if len(all) == 0 {
		return "none"
	}
	var words []string
	for _, a := range all[:min(len(all), most)] {
		words = append(words, a.String())
	}
	if more := len(all) - most; more > 0 {
		words = append(words, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(words, ", ")
}
