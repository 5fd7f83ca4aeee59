package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/node"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
)

// domainView is an exclusive domain of the node. Its JSON names are stable.
type domainView struct {
	Kind isolation.DomainKind `json:"kind"`
	Name string               `json:"name,omitempty"`
	// Rules are the rules of the node config that make it exclusive.
	Rules []string `json:"rules"`
	// Tenant is the ID of the tenant that has it; empty if it is free. See [plan.DomainState.Tenant].
	Tenant string     `json:"tenant,omitempty"`
	Held   []heldView `json:"held"`
	// Free are the functions that only the tenant can get, or anybody if there is none.
	Free []pci.Address `json:"free"`

	words string
}

// heldView is a function that a tenant has, or had without a sanitizing stage since.
type heldView struct {
	Address pci.Address `json:"address"`
	Tenant  string      `json:"tenant"`
}

func newDomainViews(states []plan.DomainState) []domainView {
	var all []domainView
	for i := range states {
		s := &states[i]
		v := domainView{
			Kind: s.Domain.Kind, Name: s.Domain.Name, Rules: s.Rules, Tenant: s.Tenant(),
			Held: []heldView{}, Free: list(s.Free), words: s.Domain.String(),
		}
		for _, t := range s.Tenancies {
			v.Held = append(v.Held, heldView{t.Function, t.Tenant})
		}
		all = append(all, v)
	}
	return all
}

// exclusiveDomains returns the exclusive domains by the config that the plugin uses, or else by the node's own.
func (o *options) exclusiveDomains(ctx context.Context, published *facts.Published) ([]domainView, error) {
	config, stages := published.Config, published.Sanitizers
	if config == nil {
		var err error
		if config, err = o.nodeConfig(); err != nil {
			return nil, err
		}
		if stages, err = o.stages(); err != nil {
			return nil, err
		}
	}
	if !slices.ContainsFunc(config.Devices, func(r v1alpha1.DeviceRule) bool { return len(r.Exclusive) > 0 }) {
		return nil, nil
	}
	looking := o.node
	looking.Node, looking.Sanitizers = config, stages
	n, err := node.Look(looking)
	if err != nil {
		return nil, err
	}
	states, err := domainsOf(ctx, n)
	return newDomainViews(states), errors.Join(err, n.Close())
}

func domainsOf(ctx context.Context, n *node.Node) ([]plan.DomainState, error) {
	snap, err := n.Inventory.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	known, err := n.PlanNode(snap)
	if err != nil {
		return nil, err
	}
	return known.Domains(), nil
}

// printDomains prints the tenant of each exclusive domain, and what is free there.
func printDomains(w io.Writer, all []domainView) error {
	for i := range all {
		if _, err := fmt.Fprintf(w, "\n%s\n", all[i].sentence()); err != nil {
			return err
		}
	}
	return nil
}

// sentence is "Exclusive switch 0000:21:00.0: tenant 0123456789abcdef has 0000:23:00.0; kept for it: 0000:24:00.0".
func (v *domainView) sentence() string {
	text := "Exclusive " + v.words + ": "
	if v.Tenant == "" {
		return text + "no tenant has it; free: " + fewAddresses(v.Free)
	}
	held := make([]pci.Address, len(v.Held))
	for i := range v.Held {
		held[i] = v.Held[i].Address
	}
	text += plan.TenantWords(v.Tenant) + " has " + fewAddresses(held)
	switch v.Tenant {
	case plan.SeveralTenants:
		text = strings.Replace(text, " has ", " have ", 1) + "; no claim can get: "
	case plan.UnknownTenant:
		text += "; no claim can get: "
	default:
		text += "; kept for it: "
	}
	return text + fewAddresses(v.Free)
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
