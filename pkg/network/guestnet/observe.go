package guestnet

import (
	"context"
	"errors"
	"net/netip"
	"slices"
)

// observe notes how the interfaces are in the end, and what they have beyond
// what is asked. A dry run sees them as they were.
func (r *run) observe(ctx context.Context) error {
	// What was done is reported though the run was cancelled.
	ctx = context.WithoutCancel(ctx)
	hops, hopsErr := r.kernel.hops(ctx)
	rules, rulesErr := r.kernel.rules(ctx)
	errs := []error{hopsErr, rulesErr}
	for _, t := range r.targets {
		l, linkErr := r.kernel.link(ctx, t.link.index)
		addresses, err := r.kernel.addresses(ctx, t.link.index)
		t.result.Carrier = l.carrier
		t.result.Unmanaged = t.unmanaged(addresses, hops, rules)
		for i := range t.result.Addresses {
			a := &t.result.Addresses[i]
			a.Tentative = slices.ContainsFunc(addresses, func(p address) bool { return p.Prefix == a.Address && p.tentative })
		}
		errs = append(errs, linkErr, err)
	}
	return errors.Join(errs...)
}

// unmanaged returns what of all there is belongs to the target and is not
// asked.
func (t *target) unmanaged(addresses []address, hops []hop, rules []Rule) Unmanaged {
	u := Unmanaged{Addresses: []netip.Prefix{}, Routes: []Route{}, Rules: []Rule{}}
	for _, a := range addresses {
		if !slices.Contains(t.addresses, a.Prefix) && !a.Addr().IsLinkLocalUnicast() {
			u.Addresses = append(u.Addresses, a.Prefix)
		}
	}
	for _, h := range hops {
		if h.index == t.link.index && !h.own && !slices.Contains(t.routes, h.Route) {
			u.Routes = append(u.Routes, h.Route)
		}
	}
	for _, rule := range rules {
		ours := slices.ContainsFunc(t.addresses, func(a netip.Prefix) bool { return a.Addr() == rule.From })
		if ours && !slices.Contains(t.rules, rule) {
			u.Rules = append(u.Rules, rule)
		}
	}
	return u
}
