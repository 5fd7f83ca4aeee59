package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/test/lab/endpoint"
)

// taken is a physical endpoint that a VM has.
type taken struct {
	endpoint.Endpoint
	// Group is the VFIO node that the VM gets it by.
	Group device
}

// endpoints takes the physical endpoints of a sandbox, none if it has no network namespace of its own.
func (n node) endpoints(ctx context.Context, spec *specs.Spec) ([]taken, error) {
	if spec.Linux == nil {
		return nil, nil
	}
	for _, ns := range spec.Linux.Namespaces {
		if ns.Type == specs.NetworkNamespace && ns.Path != "" {
			return n.takeEndpoints(ctx, ns.Path)
		}
	}
	return nil, nil
}

func takeEndpoints(ctx context.Context, netns string) ([]taken, error) {
	found, err := endpoint.Scan(netns)
	if err != nil {
		return nil, err
	}
	var all []taken
	for _, e := range found {
		node, err := e.Take(ctx)
		if err != nil {
			return nil, fmt.Errorf("take the physical endpoint %s: %w", e.Name, err)
		}
		var stat unix.Stat_t
		if err := unix.Stat(node, &stat); err != nil {
			return nil, fmt.Errorf("find the node %s of the physical endpoint %s: %w", node, e.Name, err)
		}
		number := device{Path: node, Major: int64(unix.Major(stat.Rdev)), Minor: int64(unix.Minor(stat.Rdev))}
		all = append(all, taken{e, number})
	}
	return all, nil
}

// delete ends a sandbox's VM and gives back the endpoints that Kata would.
func (n node) delete(ctx context.Context, v vm) error {
	endpoints, err := v.endpoints()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := v.stop(); err != nil {
		return err
	}
	var errs []error
	for _, e := range detached(endpoints) {
		errs = append(errs, e.GiveBack(ctx))
	}
	return errors.Join(errs...)
}

// detached are the endpoints that Kata's Go runtime detaches when a sandbox ends, of two only the second. It ranges over its list of interfaces
// and removes each from that list in place (RemoveEndpoints in virtcontainers/network_linux.go, Kata 4.1.0). The pod's own interface is the first.
func detached(endpoints []taken) []taken {
	all := append([]taken{{}}, endpoints...)
	var gone []taken
	for left, i := all, 0; i < len(all); i++ {
		e := all[i] // what earlier removals have moved here
		at := slices.IndexFunc(left, func(l taken) bool { return l.Name == e.Name })
		if at < 0 {
			continue
		}
		left = append(left[:at], left[at+1:]...) // slices.Delete would clear the end
		gone = append(gone, e)
	}
	return gone[1:]
}
