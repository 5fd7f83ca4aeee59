package guestnet

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"syscall"

	"github.com/vishvananda/netlink"
)

// errorf returns an error about the target's interface.
func (t *target) errorf(format string, args ...any) error {
	return fmt.Errorf("%s, interface %s: %w", t.device, &t.link, fmt.Errorf(format, args...))
}

// rename renames the interfaces. An interface whose name another target needs gets a temporary name first, so that two
// can exchange names.
func (r *run) rename(ctx context.Context) error {
	links, err := r.kernel.links(ctx)
	if err != nil {
		return err
	}
	for _, t := range r.targets {
		if err := r.checkName(t, links); err != nil {
			return err
		}
	}
	for _, t := range r.targets {
		if !t.renames() || !slices.ContainsFunc(r.targets, func(o *target) bool { return o.device.Network.Interface == t.link.name }) {
			continue
		}
		// At most 15 characters (IFNAMSIZ): the index has room for six digits.
		aside := fmt.Sprintf("kata-vfio%d", t.link.index)
		if err := r.change(ctx, t, "rename to "+aside, func(handle *netlink.Handle) error { return setName(handle, t.link.index, aside) }); err != nil {
			return err
		}
	}
	for _, t := range r.targets {
		if err := r.renameOne(ctx, t); err != nil {
			return err
		}
	}
	return nil
}

// renames reports whether the target's interface gets another name.
func (t *target) renames() bool {
	return t.device.Network.Interface != "" && t.device.Network.Interface != t.link.name
}

// checkName refuses a name if an interface that keeps it exists.
func (r *run) checkName(t *target, links []link) error {
	name := t.device.Network.Interface
	i := slices.IndexFunc(links, func(l link) bool { return l.name == name || slices.Contains(l.altNames, name) })
	if !t.renames() || i < 0 {
		return nil
	}
	holder := &links[i]
	// Only a name is given up by a rename. An alternative name stays with its interface.
	leaves := slices.ContainsFunc(r.targets, func(o *target) bool { return o.link.index == holder.index && o.renames() })
	if holder.name == name && leaves {
		return nil
	}
	return t.errorf("the name %q is taken by %s; ask for another", name, holder)
}

func (r *run) renameOne(ctx context.Context, t *target) error {
	if !t.renames() {
		return nil
	}
	name := t.device.Network.Interface
	if err := r.change(ctx, t, "rename to "+name, func(handle *netlink.Handle) error { return setName(handle, t.link.index, name) }); err != nil {
		return err
	}
	t.result.Name.change(name)
	if r.options.DryRun {
		return nil
	}
	// It may have been taken down to be renamed.
	var err error
	t.link, err = r.kernel.link(ctx, t.link.index)
	return err
}

func (r *run) setMTU(ctx context.Context, t *target) error {
	asked := t.device.Network.MTU
	if asked == nil || *asked == t.link.mtu {
		return nil
	}
	err := r.change(ctx, t, fmt.Sprintf("set MTU %d", *asked), func(handle *netlink.Handle) error { return handle.LinkSetMTU(device(t.link.index), *asked) })
	// The guest does not see the PF, so the driver's refusal needs the reason.
	if errors.Is(err, syscall.EINVAL) {
		return fmt.Errorf("%w; a VF takes no more than its PF's MTU allows", err)
	}
	if err == nil {
		t.result.MTU.change(*asked)
	}
	return err
}

func (r *run) setUp(ctx context.Context, t *target) error {
	if t.link.up {
		return nil
	}
	if err := r.change(ctx, t, "set up", func(handle *netlink.Handle) error { return handle.LinkSetUp(device(t.link.index)) }); err != nil {
		return err
	}
	t.result.Up.Value = false
	t.result.Up.change(true)
	return nil
}

// await waits for the links, then for the addresses, which need the links.
func (r *run) await(ctx context.Context) error {
	if !r.options.NoWaitLink {
		if err := r.awaitLinks(ctx); err != nil {
			return err
		}
	}
	return r.awaitAddresses(ctx)
}

func (r *run) awaitLinks(ctx context.Context) error {
	var down []string
	done, err := poll(ctx, r.options.Wait, r.options.Log, func() (string, error) {
		down = nil
		for _, t := range r.targets {
			l, err := r.kernel.link(ctx, t.link.index)
			if err != nil {
				return "", t.errorf("wait for the link: %w", err)
			}
			if !l.carrier {
				down = append(down, printable(l.name))
			}
		}
		if len(down) == 0 {
			return "", nil
		}
		return "link of " + strings.Join(down, ", "), nil
	})
	if err == nil && !done {
		return &NoLinkError{Interfaces: down, Wait: r.options.Wait}
	}
	return err
}

func (r *run) addAddresses(ctx context.Context, t *target) error {
	present, err := r.kernel.addresses(ctx, t.link.index)
	if err != nil {
		return t.errorf("%w", err)
	}
	for _, asked := range t.addresses {
		i := slices.IndexFunc(present, func(a address) bool { return a.prefix == asked })
		// The kernel keeps an address that failed duplicate detection (IFA_F_DADFAILED), but does not use it. Only if it is
		// removed and added again, another detection starts.
		missing := i < 0 || present[i].duplicate
		if i >= 0 && missing {
			if err := r.change(ctx, t, "remove duplicate address "+asked.String(), func(handle *netlink.Handle) error {
				return handle.AddrDel(device(t.link.index), kernelAddress(asked))
			}); err != nil {
				return err
			}
		}
		if missing {
			if err := r.addAddress(ctx, t, asked); err != nil {
				return err
			}
		}
		t.result.Addresses = append(t.result.Addresses, Address{Address: asked, Changed: missing})
	}
	return nil
}

func (r *run) addAddress(ctx context.Context, t *target, prefix netip.Prefix) error {
	err := r.change(ctx, t, "add address "+prefix.String(), func(handle *netlink.Handle) error { return handle.AddrAdd(device(t.link.index), kernelAddress(prefix)) })
	// The kernel's answer if disable_ipv6 is set (ipv6_add_addr in net/ipv6/addrconf.c).
	if errors.Is(err, syscall.EACCES) {
		return fmt.Errorf("%w; IPv6 is disabled on the interface (sysctl net.ipv6.conf.*.disable_ipv6)", err)
	}
	return err
}

// awaitAddresses waits until the requested addresses are usable. It ignores interfaces without a link, because
// detection does not end there.
func (r *run) awaitAddresses(ctx context.Context) error {
	var tentative []string
	done, err := poll(ctx, r.options.Wait, r.options.Log, func() (string, error) {
		tentative = nil
		for _, t := range r.targets {
			more, err := r.tentative(ctx, t)
			if err != nil {
				return "", err
			}
			tentative = append(tentative, more...)
		}
		if len(tentative) == 0 {
			return "", nil
		}
		return "duplicate address detection of " + strings.Join(tentative, ", "), nil
	})
	if err == nil && !done {
		return fmt.Errorf("duplicate address detection of %s has not ended after %v; wait longer", strings.Join(tentative, ", "), r.options.Wait)
	}
	return err
}

// tentative returns the target's addresses whose duplicate address detection has not ended. An address that another
// host has is an error.
func (r *run) tentative(ctx context.Context, t *target) ([]string, error) {
	l, err := r.kernel.link(ctx, t.link.index)
	if err != nil {
		return nil, t.errorf("wait for the addresses: %w", err)
	}
	present, err := r.kernel.addresses(ctx, t.link.index)
	if err != nil {
		return nil, t.errorf("wait for the addresses: %w", err)
	}
	var tentative []string
	for _, a := range present {
		switch {
		case !slices.Contains(t.addresses, a.prefix):
		case a.duplicate:
			return nil, t.errorf("another host on the link has %s already (duplicate address detection failed); take it from one of the two", a.prefix.Addr())
		case a.tentative && l.carrier:
			tentative = append(tentative, a.prefix.String())
		}
	}
	return tentative, nil
}

func (r *run) addRoutes(ctx context.Context, t *target) error {
	for _, asked := range t.routes {
		// The routes are read each time, because two requested routes may exclude each other.
		present, err := r.kernel.hops(ctx)
		if err != nil {
			return t.errorf("%w", err)
		}
		there, err := t.has(present, asked)
		if err != nil {
			return err
		}
		if !there {
			if err := r.addRoute(ctx, t, asked); err != nil {
				return err
			}
		}
		t.result.Routes = append(t.result.Routes, RouteResult{Route: asked, Changed: !there})
	}
	return nil
}

// has reports whether the route exists. Another route in its place is an error, because the kernel has one route to a
// network for each metric.
func (t *target) has(present []hop, asked Route) (bool, error) {
	if slices.ContainsFunc(present, func(h hop) bool { return h.route == asked && h.index == t.link.index }) {
		return true, nil
	}
	i := slices.IndexFunc(present, func(h hop) bool {
		return h.route.To == asked.To && h.route.Table == asked.Table && h.route.Metric == asked.Metric
	})
	if i < 0 {
		return false, nil
	}
	return false, t.errorf("add route %s: another route to it has metric %d (%s, on interface number %d); use another metric, or another table",
		asked, asked.Metric, present[i].route, present[i].index)
}

func (r *run) addRoute(ctx context.Context, t *target, asked Route) error {
	err := r.change(ctx, t, "add route "+asked.String(), func(handle *netlink.Handle) error { return handle.RouteAdd(kernelRoute(t.link.index, asked)) })
	// ENETUNREACH is IPv4's answer (fib_check_nh_v4_gw), EHOSTUNREACH IPv6's (ip6_route_check_nh).
	if errors.Is(err, syscall.ENETUNREACH) || errors.Is(err, syscall.EHOSTUNREACH) || errors.Is(err, syscall.EINVAL) {
		return fmt.Errorf("%w; the next hop must be in a network of the interface's addresses", err)
	}
	return err
}

func (r *run) addRules(ctx context.Context, t *target) error {
	present, err := r.kernel.rules(ctx)
	if err != nil {
		return t.errorf("%w", err)
	}
	for _, asked := range t.rules {
		there := slices.Contains(present, asked)
		if !there {
			if err := r.change(ctx, t, "add rule "+asked.String(), func(handle *netlink.Handle) error { return handle.RuleAdd(kernelRule(asked)) }); err != nil {
				return err
			}
		}
		t.result.Rules = append(t.result.Rules, RuleResult{Rule: asked, Changed: !there})
	}
	return nil
}

// observe records the final state of the interfaces, and their unmanaged configuration. In a dry run nothing has
// changed.
func (r *run) observe(ctx context.Context) error {
	// The changes are reported even if the run was canceled.
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
			a.Tentative = slices.ContainsFunc(addresses, func(p address) bool { return p.prefix == a.Address && p.tentative })
		}
		errs = append(errs, linkErr, err)
	}
	return errors.Join(errs...)
}

// unmanaged returns the target's addresses, routes and rules that were not requested.
func (t *target) unmanaged(addresses []address, hops []hop, rules []Rule) Unmanaged {
	u := Unmanaged{Addresses: []netip.Prefix{}, Routes: []Route{}, Rules: []Rule{}}
	for _, a := range addresses {
		// The kernel makes link-local addresses itself.
		if !slices.Contains(t.addresses, a.prefix) && !a.prefix.Addr().IsLinkLocalUnicast() {
			u.Addresses = append(u.Addresses, a.prefix)
		}
	}
	for _, h := range hops {
		if h.index == t.link.index && !h.own && !slices.Contains(t.routes, h.route) {
			u.Routes = append(u.Routes, h.route)
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
