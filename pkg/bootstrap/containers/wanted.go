// Package containers says what a node's container runtimes need for pods of the RuntimeClass kata-gpu:
// containerd's or CRI-O's handler, Kata's configuration, the placeholder of the pod-resources socket; and what
// prevents it in the present files, the kubelet's included. It reads through a [state.Tree] and decides; it
// changes nothing and runs nothing.
//
// In a file that others write too it wants the smallest edit that does it, and only after the resulting files were
// read again, merged as the runtime merges them, and found to differ in nothing else.
package containers

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/facts"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
)

// Wanted returns what the node's container runtimes need. The same tree gives the same result, and after apply, the node
// has it. The error is for invalid options. Problems of the node are in the result.
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
		w.refuse("", "The node has neither containerd nor CRI-O.", "Install containerd 2, or set containers.runtime in the blueprint: to containerd or CRI-O if it is installed later, or to None if you configure the runtime yourself.")
		return w, nil
	}
	if err != nil {
		return nil, err
	}
	join(&w.Wanted, engine.Wanted)
	return w, nil
}

// runtime returns the node's container runtime: the one that the blueprint names, the one that the kubelet is
// configured with, or the installed one.
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

// cause says why a file is unavailable.
func cause(file facts.Fact) string {
	if file.Status == facts.Absent {
		return "it does not exist."
	}
	return file.Err
}

func causeOr(err error, file facts.Fact) string {
	if err != nil && file.OK() {
		return err.Error()
	}
	return cause(file)
}

// Runtime is a node's container runtime.
type Runtime string

// Runtimes. Auto finds out which it is; None leaves it and Kata alone.
const (
	RuntimeAuto       Runtime = "Auto"
	RuntimeContainerd Runtime = "containerd"
	RuntimeCRIO       Runtime = "CRI-O"
	RuntimeNone       Runtime = "None"
)

// Flavour is one of Kata's two runtimes.
type Flavour string

// Flavours: the runtime in Go and the one in Rust (runtime-rs).
const (
	FlavourGo   Flavour = "go"
	FlavourRust Flavour = "rs"
)

// other is the runtime that this one is not.
func (f Flavour) other() Flavour {
	if f == FlavourRust {
		return FlavourGo
	}
	return FlavourRust
}

// Base is which of Kata's configurations the handler's is a copy of.
type Base string

// Bases: with the guest for GPUs, or the plain one, which does for NICs.
const (
	BaseGPU Base = "GPU"
	BaseNIC Base = "NIC"
)

// other is the base that this one is not.
func (b Base) other() Base {
	if b == BaseNIC {
		return BaseGPU
	}
	return BaseNIC
}

// Options say what the node's container runtimes are to be set up for. The zero value
// of each field is its first choice.
type Options struct {
	// Runtime is Auto, containerd, CRI-O or None.
	Runtime Runtime `json:"runtime,omitempty"`
	// Kata is go or rs. One handler has one runtime.
	Kata Flavour `json:"kata,omitempty"`
	// Base is GPU or NIC.
	Base Base `json:"base,omitempty"`
	// HotPlug has devices plugged into the running VM instead of cold-plugged. Only the Go runtime can, and the
	// plugin needs the flag --hot-plug.
	HotPlug bool `json:"hotPlug,omitempty"`
	// PodResourcesSocket has systemd make the file of the plugin's pod-resources
	// socket at each boot, before the first pod. Unset, it is so unless Runtime is None.
	PodResourcesSocket *bool `json:"podResourcesSocket,omitempty"`
}

// withDefaults fills in what is not said, and refuses what can't be.
func (o Options) withDefaults() (Options, error) {
	for _, err := range []error{
		choose("runtime", &o.Runtime, RuntimeAuto, RuntimeContainerd, RuntimeCRIO, RuntimeNone),
		choose("kata", &o.Kata, FlavourGo, FlavourRust),
		choose("base", &o.Base, BaseGPU, BaseNIC),
	} {
		if err != nil {
			return o, err
		}
	}
	if o.HotPlug && o.Kata == FlavourRust {
		return o, fmt.Errorf("hotPlug: Kata's Rust runtime has no such setting; use kata: %s", FlavourGo)
	}
	if o.PodResourcesSocket == nil {
		o.PodResourcesSocket = new(o.Runtime != RuntimeNone)
	}
	return o, nil
}

// choose leaves a value that is one of the choices, and makes an empty one the first.
func choose[T ~string](name string, value *T, choices ...T) error {
	if *value == "" {
		*value = choices[0]
	}
	if slices.Contains(choices, *value) {
		return nil
	}
	return fmt.Errorf("%s: %q is none of %v", name, string(*value), choices)
}

// wants collects what one part wants.
type wants struct {
	part string
	state.Wanted
}

// file wants a file that has the content.
func (w *wants) file(path string, content []byte, why string, then ...state.FollowUp) {
	w.Files = append(w.Files, state.File{
		Part: w.part, Path: below(path), Content: content, Mode: 0o644, Why: why, Then: then,
	})
}

// refuse has nothing changed on the node while there is the problem.
func (w *wants) refuse(path, text, fix string) { w.problem(true, path, text, fix) }

// warn names a problem that others may live with.
func (w *wants) warn(path, text, fix string) { w.problem(false, path, text, fix) }

func (w *wants) problem(fatal bool, path, text, fix string) {
	w.Problems = append(w.Problems, state.Problem{Part: w.part, Fatal: fatal, Path: below(path), Text: text, Fix: fix})
}

func (w *wants) fact(name, value, source string) {
	if source != "" {
		source = "/" + below(source)
	}
	w.Facts = append(w.Facts, state.Fact{Part: w.part, Name: name, Value: value, Source: source})
}

// refused reports whether there is a problem that forbids changes.
func (w *wants) refused() bool {
	for _, p := range w.Problems {
		if p.Fatal {
			return true
		}
	}
	return false
}

// below returns a path of the node without its leading slash.
func below(path string) string { return strings.TrimPrefix(path, "/") }
