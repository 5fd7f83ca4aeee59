package guestnet

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"syscall"
)

func (r *run) addAddresses(ctx context.Context, t *target) error {
	present, err := r.kernel.addresses(ctx, t.link.index)
	if err != nil {
		return t.errorf("%w", err)
	}
	for _, asked := range t.addresses {
		i := slices.IndexFunc(present, func(a address) bool { return a.Prefix == asked })
		missing := i < 0 || present[i].duplicate
		if i >= 0 && missing {
			if err := r.change(ctx, t, "remove duplicate address "+asked.String(), func() error {
				return r.kernel.deleteAddress(t.link.index, asked)
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
	err := r.change(ctx, t, "add address "+prefix.String(), func() error { return r.kernel.addAddress(t.link.index, prefix) })
	if errors.Is(err, syscall.EACCES) {
		return fmt.Errorf("%w; IPv6 is disabled on the interface (sysctl net.ipv6.conf.*.disable_ipv6)", err)
	}
	return err
}

// awaitAddresses waits until the asked addresses may be used. Interfaces
// without a link are left out: detection does not end there.
func (r *run) awaitAddresses(ctx context.Context) error {
	var tentative []string
	done, err := poll(ctx, r.Wait, r.Log, func() (string, error) {
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
		return fmt.Errorf("duplicate address detection of %s has not ended after %v; wait longer", strings.Join(tentative, ", "), r.Wait)
	}
	return err
}

// tentative returns the target's addresses whose detection has not ended. It
// is an error when another host has one of them.
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
		case !slices.Contains(t.addresses, a.Prefix):
		case a.duplicate:
			return nil, t.errorf("another host on the link has %s already (duplicate address detection failed); take it from one of the two", a.Addr())
		case a.tentative && l.carrier:
			tentative = append(tentative, a.String())
		}
	}
	return tentative, nil
}
