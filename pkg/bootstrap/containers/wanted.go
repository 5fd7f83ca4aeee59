// Package containers determines the requirements of a node's container runtimes for pods with devices: the handlers
// kata-gpu and kata-vfio of containerd or CRI-O, Kata's configurations, and the placeholder of the pod-resources socket.
// It also reports obstacles in the existing files, including the kubelet's. It reads through a [state.Tree]; it changes
// and runs nothing.
//
// In files with other owners it requires the smallest edit. Before it does, it merges the resulting files as the runtime
// does, and verifies that nothing else differs.
package containers

import (
	"fmt"
	"path"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/blueprint"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// Wanted returns the requirements of the node's container runtimes. The same tree gives the same result, and after
// apply, the node has it. The error is for invalid options. Problems of the node are in the result.
func Wanted(tree state.Tree, o blueprint.Containers) (state.Wanted, error) {
	o, err := o.WithDefaults()
	if err != nil {
		return state.Wanted{}, fmt.Errorf("containers: %w", err)
	}
	n := node{tree: tree}
	var all state.Wanted
	parts := []func() (*wants, error){}
	if o.Runtime != blueprint.RuntimeNone {
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
		join(&all, w.wanted)
	}
	return all, nil
}

// join adds the requirements of one part to all.
func join(all *state.Wanted, w state.Wanted) {
	all.Files = append(all.Files, w.Files...)
	all.Settings = append(all.Settings, w.Settings...)
	all.Problems = append(all.Problems, w.Problems...)
	all.Facts = append(all.Facts, w.Facts...)
	all.Modules = append(all.Modules, w.Modules...)
}

// runtimeWants returns the requirements of the container runtime and of Kata.
func runtimeWants(n node, o blueprint.Containers) (*wants, error) {
	w, k, err := kataWants(n, o)
	if err != nil {
		return nil, err
	}
	var engine *wants
	switch n.runtime(o.Runtime) {
	case blueprint.RuntimeContainerd:
		engine, err = containerdWants(n, k)
	case blueprint.RuntimeCRIO:
		engine, err = crioWants(n, k)
	default:
		w.refuse(rule.NoContainerRuntime, "", "The node has neither containerd nor CRI-O.", "Install containerd 2, or set containers.runtime in the blueprint: to containerd or CRI-O if it is installed later, or to None if you configure the runtime yourself.")
		return w, nil
	}
	if err != nil {
		return nil, err
	}
	join(&w.wanted, engine.wanted)
	return w, nil
}

// runtime returns the node's container runtime: the requested one, the one in the kubelet's configuration, or the
// installed one.
func (n node) runtime(asked blueprint.Runtime) blueprint.Runtime {
	if asked != blueprint.RuntimeAuto && asked != "" {
		return asked
	}
	endpoint := n.kubelet().Settings.ContainerRuntimeEndpoint
	crio := n.exists(path.Dir(facts.CRIOConfig)) || n.exists("/usr/bin/crio") || n.exists("/usr/local/bin/crio")
	switch {
	// Both runtimes may be installed. The kubelet's endpoint shows which one runs pods.
	case strings.Contains(endpoint, "crio"):
		return blueprint.RuntimeCRIO
	case strings.Contains(endpoint, "containerd"):
		return blueprint.RuntimeContainerd
	case n.hasContainerd():
		return blueprint.RuntimeContainerd
	case crio:
		return blueprint.RuntimeCRIO
	}
	return blueprint.RuntimeNone
}

// cause says why a file is unavailable.
func cause(file facts.Fact) string {
	if file.Status == facts.Absent {
		return "it does not exist."
	}
	return file.Err
}

// wants collects the requirements of one part.
type wants struct {
	part   string
	wanted state.Wanted
}

// file requires a file with the content.
func (w *wants) file(name string, content []byte, why string, then ...state.FollowUp) {
	w.wanted.Files = append(w.wanted.Files, state.File{
		Part: w.part, Path: below(name), Content: content, Mode: 0o644, Why: why, Then: then,
	})
}

// refuse records a problem that prevents all changes.
func (w *wants) refuse(code rule.Code, file, text, fix string) {
	w.problem(code, true, file, text, fix)
}

// warn records a problem that prevents nothing.
func (w *wants) warn(code rule.Code, file, text, fix string) { w.problem(code, false, file, text, fix) }

func (w *wants) problem(code rule.Code, fatal bool, file, text, fix string) {
	w.wanted.Problems = append(w.wanted.Problems, state.Problem{Part: w.part, Code: code, Fatal: fatal, Path: below(file), Text: text, Fix: fix})
}

func (w *wants) fact(name, value, source string) {
	if source != "" {
		source = "/" + below(source)
	}
	w.wanted.Facts = append(w.wanted.Facts, state.Fact{Part: w.part, Name: name, Value: value, Source: source})
}

// refused reports whether a problem prevents changes.
func (w *wants) refused() bool {
	for _, p := range w.wanted.Problems {
		if p.Fatal {
			return true
		}
	}
	return false
}

// below returns a path of the node without its leading slash.
func below(file string) string { return strings.TrimPrefix(file, "/") }
