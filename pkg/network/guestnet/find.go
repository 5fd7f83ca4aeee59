package guestnet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// How an interface was found.
const (
	byMAC  = "mac"
	byGUID = "portGUID"
	byPCI  = "pci"
)

// find waits until every target has its interface. It changes nothing.
func (r *run) find(ctx context.Context) error {
	var links []link
	var missing []string
	found, err := poll(ctx, r.options.Wait, r.options.Log, func() (string, error) {
		var err error
		if links, err = r.kernel.links(ctx); err != nil {
			return "", err
		}
		missing, err = r.match(links)
		if len(missing) > 0 {
			return "interface for " + strings.Join(missing, "; "), err
		}
		return "", err
	})
	if err != nil {
		return fmt.Errorf("find the interfaces: %w", err)
	}
	if !found {
		return &NotFoundError{Missing: missing, Seen: describe(links), Wait: r.options.Wait}
	}
	return nil
}

// match assigns each target its interface, and returns the targets without one.
func (r *run) match(links []link) (missing []string, err error) {
	owner := map[int]*target{}
	for _, t := range r.targets {
		found, how, err := t.pick(links, r.options.SysRoot)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", t.device, err)
		}
		if found == nil {
			missing = append(missing, fmt.Sprintf("%s (%s)", t.device, t.device.sought()))
			continue
		}
		if other := owner[found.index]; other != nil {
			return nil, inputErrorf("interface %s is that of both %s and %s", found, other.device, t.device)
		}
		owner[found.index] = t
		t.found(*found, how)
	}
	return missing, nil
}

// pick returns the target's interface, or nil if it does not exist.
func (t *target) pick(links []link, sysRoot string) (found *link, how string, err error) {
	if t.device.MAC != nil {
		if found, err = only(links, func(l *link) bool {
			// A bond or a tool in the guest can give the interface another address. The permanent one stays.
			return bytes.Equal(l.mac, t.device.MAC) || bytes.Equal(l.permanent, t.device.MAC)
		}); found != nil || err != nil {
			return found, byMAC, err
		}
	}
	if t.device.PortGUID != nil {
		if found, err = only(links, func(l *link) bool { return bytes.Equal(l.portGUID(), t.device.PortGUID) }); found != nil || err != nil {
			return found, byGUID, err
		}
	}
	if t.device.PCI == nil {
		return nil, "", nil
	}
	names, err := listInterfaces(sysRoot, *t.device.PCI)
	if err != nil {
		return nil, "", err
	}
	found, err = only(links, func(l *link) bool { return slices.Contains(names, l.name) })
	return found, byPCI, err
}

// only returns the one matching interface, nil if none matches, and an error if several do.
func only(links []link, wanted func(*link) bool) (*link, error) {
	var found []link
	for i := range links {
		if wanted(&links[i]) {
			found = append(found, links[i])
		}
	}
	switch len(found) {
	case 0:
		return nil, nil
	case 1:
		return &found[0], nil
	}
	return nil, inputErrorf("several interfaces could be it: %s", strings.Join(describe(found), ", "))
}

// listInterfaces returns the names of a function's interfaces. There are none until the driver creates them.
func listInterfaces(sysRoot string, a pci.Address) ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(sysRoot, "bus/pci/devices", a.String(), "net"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the interfaces of %s: %w", a, err)
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, nil
}

// describe names interfaces for a message.
func describe(links []link) []string {
	if len(links) == 0 {
		return []string{"no interface"}
	}
	names := make([]string, len(links))
	for i := range links {
		names[i] = links[i].String()
	}
	return names
}

// found records the target's interface before any change.
func (t *target) found(l link, how string) {
	t.link = l
	t.result = Interface{
		Claim: t.device.Claim, Request: t.device.Request, Device: t.device.Name,
		FoundBy: how, MAC: l.mac.String(), PCI: l.pci, Carrier: l.carrier,
		Name: Setting[string]{Value: l.name}, MTU: Setting[int]{Value: l.mtu}, Up: Setting[bool]{Value: l.up},
		Addresses: []Address{}, Routes: []RouteResult{}, Rules: []RuleResult{},
	}
	if how == byPCI && l.pci == "" {
		t.result.PCI = t.device.PCI.String()
	}
}
