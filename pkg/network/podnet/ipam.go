package podnet

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
)

// DefaultLimit is the default time limit for one call of a plugin. The kubelet waits 45 s for all of a pod's claims.
const DefaultLimit = 10 * time.Second

// grace is how long a call may continue after its context ends. host-local needs some milliseconds.
const grace = 2 * time.Second

// noNetns is the CNI_NETNS of every call: plugins require one, and the node has none for the VF. The path must not
// exist: if it is the plugin's own network namespace, a plugin built on CNI's skel package fails after it has allocated
// an address.
const noNetns = "/run/kata-vfio/no-netns"

// Plugins are the node's CNI IPAM plugins. It is safe for concurrent use with different leases.
type Plugins struct {
	// Dirs are the directories of the plugins' binaries, in order of precedence.
	Dirs []string
	// Limit is the time after which a call is killed.
	Limit time.Duration
}

// Find returns an error if the lease's plugin does not exist.
func (p *Plugins) Find(l *plan.Lease) error {
	_, err := p.path(l)
	return err
}

func (p *Plugins) path(l *plan.Lease) (string, error) {
	path, err := invoke.FindInPath(l.Plugin, p.Dirs)
	if err != nil {
		return "", fmt.Errorf("CNI plugin %s is not in %s: install it, or correct cniBinDirs of the node config", l.Plugin, strings.Join(p.Dirs, ", "))
	}
	return path, nil
}

// Add allocates addresses. Call Delete before a second Add for a lease, which CNI forbids otherwise. Call Delete after
// a crash and after an error too, because addresses may be allocated, except after a [PluginError] with Nothing set.
//
// A call that is running when ctx ends gets a grace period: a host-local that is killed between creating its file and
// writing the owner into it leaves an address that can't be released.
func (p *Plugins) Add(ctx context.Context, l *plan.Lease) (*Result, error) {
	if err := ctx.Err(); err != nil {
		return nil, &PluginError{Plugin: l.Plugin, Command: "ADD", Nothing: true, Err: err}
	}
	ctx, cancel := p.inTime(ctx)
	defer cancel()
	path, err := p.path(l)
	if err != nil {
		return nil, &PluginError{Plugin: l.Plugin, Command: "ADD", Nothing: true, Err: err}
	}
	raw, err := invoke.ExecPluginWithResult(ctx, path, l.Config, p.args("ADD", l), &runner{command: "ADD"})
	if _, failed := errors.AsType[*PluginError](err); failed {
		return nil, err
	}
	var result *Result
	if err == nil {
		result, err = newResult(raw)
	}
	if err != nil {
		return nil, &PluginError{Plugin: l.Plugin, Command: "ADD", Err: fmt.Errorf("its result: %w", err)}
	}
	return result, nil
}

// Delete releases addresses. It can be repeated, and a lease without addresses is not an error. It has the same grace
// period as Add.
func (p *Plugins) Delete(ctx context.Context, l *plan.Lease) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("CNI plugin %s DEL: %w", l.Plugin, err)
	}
	ctx, cancel := p.inTime(ctx)
	defer cancel()
	path, err := p.path(l)
	if err != nil {
		return err
	}
	return invoke.ExecPluginWithoutResult(ctx, path, l.Config, p.args("DEL", l), &runner{command: "DEL"})
}

// inTime returns the context of a call, which ends after Limit, or grace after ctx.
func (p *Plugins) inTime(ctx context.Context) (context.Context, context.CancelFunc) {
	call, end := context.WithCancelCause(context.WithoutCancel(ctx))
	limited, cancel := context.WithTimeoutCause(call, p.Limit, fmt.Errorf("no answer within %s", p.Limit))
	stop := context.AfterFunc(ctx, func() {
		select {
		case <-time.After(grace):
			end(context.Cause(ctx))
		case <-limited.Done():
		}
	})
	return limited, func() { stop(); cancel(); end(nil) }
}

func (p *Plugins) args(command string, l *plan.Lease) *invoke.Args {
	return &invoke.Args{
		Command: command, ContainerID: l.Container, NetNS: noNetns, IfName: l.Interface, PluginArgsStr: l.Args,
		Path: strings.Join(p.Dirs, string(filepath.ListSeparator)),
	}
}

// Result is the result of a plugin.
type Result struct {
	// Addresses are in CIDR form. There is at least one.
	Addresses []string
	// Routes are the routes in the plugin's configuration. An address's gateway is the next hop of routes without one,
	// and not a route itself.
	Routes []v1alpha1.GuestRoute
}

// newResult converts a plugin's result. It drops DNS, because a pod has the cluster's.
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
			return nil, fmt.Errorf("%q is not an address with a prefix length", ip.Address.String())
		}
		out.Addresses = append(out.Addresses, prefix.String())
		gateway, _ := netip.AddrFromSlice(ip.Gateway) // zero if there is none
		// net.IP may keep an IPv4 address in 16 bytes, which netip takes for an IPv4-mapped IPv6 address.
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

// guestRoute converts one route. An unsupported property is an error, because without it the route would be a different
// one.
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
	// A route without gw may take a gateway of the result's addresses (CNI SPEC, section 5).
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
