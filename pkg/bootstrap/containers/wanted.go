package containers

import (
	"fmt"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/facts"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
)

// Wanted returns what the node's container runtimes need. It is the same for the same
// tree, and what it wants of a node where it was applied is there. The error is of
// options that can't be; what is wrong with the node is a problem among what is
// wanted.
func Wanted(tree state.Tree, o Options) (state.Wanted, error) {
	o, err := o.withDefaults()
	if err != nil {
		return state.Wanted{}, fmt.Errorf("containers: %w", err)
	}
	n := node{tree: tree}
	var all state.Wanted
	parts := []func() (*wants, error){}
	if o.Runtime != RuntimeNone {
		parts = append(parts, func() (*wants, error) { return runtimeWants(n, o) })
	}
	if *o.PodResourcesSocket {
		parts = append(parts, func() (*wants, error) { return socketWants(n) })
	}
	parts = append(parts, func() (*wants, error) { return kubeletWants(n), nil })
	for _, part := range parts {
		w, err := part()
		if err != nil {
			return state.Wanted{}, fmt.Errorf("containers: %w", err)
		}
		join(&all, w.Wanted)
	}
	return all, nil
}

// join adds what a part wants to what others do.
func join(all *state.Wanted, w state.Wanted) {
	all.Files = append(all.Files, w.Files...)
	all.Settings = append(all.Settings, w.Settings...)
	all.Problems = append(all.Problems, w.Problems...)
	all.Facts = append(all.Facts, w.Facts...)
	all.Modules = append(all.Modules, w.Modules...)
}

// runtimeWants is what the container runtime needs, and Kata below it.
func runtimeWants(n node, o Options) (*wants, error) {
	w, k, err := kataWants(n, o)
	if err != nil {
		return nil, err
	}
	var engine *wants
	switch n.runtime(o.Runtime) {
	case RuntimeContainerd:
		engine, err = containerdWants(n, k)
	case RuntimeCRIO:
		engine, err = crioWants(n, k)
	default:
		w.refuse("", "The node has neither containerd nor CRI-O.", "Install containerd 2, or say in the blueprint which will be there (containers.runtime: containerd or CRI-O), or that it is somebody else's to set up (None).")
		return w, nil
	}
	if err != nil {
		return nil, err
	}
	join(&w.Wanted, engine.Wanted)
	return w, nil
}

// runtime returns the node's container runtime: the one that is asked for, the one
// that the kubelet is told to use, or the one that is there.
func (n node) runtime(asked Runtime) Runtime {
	if asked != RuntimeAuto && asked != "" {
		return asked
	}
	endpoint := n.kubelet().endpoint
	crio := n.exists("/etc/crio") || n.exists("/usr/bin/crio") || n.exists("/usr/local/bin/crio")
	switch {
	case strings.Contains(endpoint, "crio"):
		return RuntimeCRIO
	case strings.Contains(endpoint, "containerd"):
		return RuntimeContainerd
	case n.hasContainerd():
		return RuntimeContainerd
	case crio:
		return RuntimeCRIO
	}
	return RuntimeNone
}

// cause says why a file is not to be had.
func cause(file facts.Fact) string {
	if file.Status == facts.Absent {
		return "it is not there."
	}
	return file.Err
}

func causeOr(err error, file facts.Fact) string {
	if err != nil && file.OK() {
		return err.Error()
	}
	return cause(file)
}
