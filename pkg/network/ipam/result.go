package ipam

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
)

// Result is what a plugin has given.
type Result struct {
	// Addresses are in CIDR form, at least one.
	Addresses []string
	// Routes are those that the plugin's configuration names. A gateway of an
	// address is the next hop of routes that name none, and no route by itself.
	Routes []v1alpha1.GuestRoute
}

// newResult reads a plugin's result. Its DNS is left out: a pod has the
// cluster's.
func newResult(raw types.Result) (*Result, error) {
	r, err := types100.GetResult(raw)
	if err != nil {
		return nil, err
	}
	if len(r.IPs) == 0 {
		return nil, errors.New("it has no address")
	}
	out := &Result{}
	var v4, v6 netip.Addr
	for _, ip := range r.IPs {
		prefix, err := netip.ParsePrefix(ip.Address.String())
		if err != nil {
			return nil, fmt.Errorf("%q is no address with a prefix length", ip.Address.String())
		}
		out.Addresses = append(out.Addresses, prefix.String())
		gateway, _ := netip.AddrFromSlice(ip.Gateway) // none is the zero address
		switch gateway = gateway.Unmap(); {
		case prefix.Addr().Is4() && !v4.IsValid():
			v4 = gateway
		case prefix.Addr().Is6() && !v6.IsValid():
			v6 = gateway
		}
	}
	for _, route := range r.Routes {
		guest, err := guestRoute(route, v4, v6)
		if err != nil {
			return nil, fmt.Errorf("route to %s: %w", route.Dst.String(), err)
		}
		out.Routes = append(out.Routes, guest)
	}
	return out, nil
}

// guestRoute reads one route. What it says beyond a guest's route is an error,
// since without that it would be another route.
func guestRoute(r *types.Route, v4, v6 netip.Addr) (v1alpha1.GuestRoute, error) {
	if r.MTU != 0 || r.AdvMSS != 0 || r.Table != nil || r.Scope != nil {
		return v1alpha1.GuestRoute{}, errors.New("mtu, advmss, table and scope can't be had here; network.mtu and network.table of a VFConfig are for the whole interface")
	}
	to, err := netip.ParsePrefix(r.Dst.String())
	if err != nil {
		return v1alpha1.GuestRoute{}, err
	}
	via, _ := netip.AddrFromSlice(r.GW)
	via = via.Unmap()
	switch {
	case !via.IsValid() && to.Addr().Is4():
		via = v4
	case !via.IsValid():
		via = v6
	}
	guest := v1alpha1.GuestRoute{To: to.String()}
	if to.Bits() == 0 {
		guest.To = v1alpha1.DefaultRoute
	}
	if via.IsValid() {
		guest.Via = via.String()
	}
	if r.Priority != 0 {
		guest.Metric = &r.Priority
	}
	return guest, nil
}
