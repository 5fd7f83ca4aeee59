// Package containers says what a node's container runtimes need for pods with devices: the handlers kata-gpu and
// kata-vfio of containerd or CRI-O, Kata's configurations, and the placeholder of the pod-resources socket. It also
// reports what prevents it in the existing files, including the kubelet's. It reads through a [state.Tree]; it changes
// and runs nothing.
//
// In files with other owners it requires the smallest edit. Before it does, it merges the resulting files as the
// runtime does, and verifies that nothing else differs.
package containers

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// Wanted returns what the node's container runtimes need. The same tree gives the same result, and after apply, the node
// has it. The error is for invalid options. Problems of the node are in the result.
func Wanted(tree state.Tree, o Containers) (state.Wanted, error) {
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

// join adds the requirements of one part to all.
func join(all *state.Wanted, w state.Wanted) {
	all.Files = append(all.Files, w.Files...)
	all.Settings = append(all.Settings, w.Settings...)
	all.Problems = append(all.Problems, w.Problems...)
	all.Facts = append(all.Facts, w.Facts...)
	all.Modules = append(all.Modules, w.Modules...)
}

// runtimeWants returns what the container runtime and Kata need.
func runtimeWants(n node, o Containers) (*wants, error) {
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
		w.refuse(rule.NoContainerRuntime, "", "The node has neither containerd nor CRI-O.", "Install containerd 2, or set containers.runtime in the blueprint: to containerd or CRI-O if it is installed later, or to None if you configure the runtime yourself.")
		return w, nil
	}
	if err != nil {
		return nil, err
	}
	join(&w.Wanted, engine.Wanted)
	return w, nil
}

// runtime returns the node's container runtime: the requested one, the one in the kubelet's configuration, or the
// installed one.
func (n node) runtime(asked Runtime) Runtime {
	if asked != RuntimeAuto && asked != "" {
		return asked
	}
	endpoint := n.kubelet().Settings.ContainerRuntimeEndpoint
	crio := n.exists(path.Dir(facts.CRIOConfig)) || n.exists("/usr/bin/crio") || n.exists("/usr/local/bin/crio")
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

// Runtime is a node's container runtime.
type Runtime string

// Runtimes. Auto detects the runtime. None configures neither it nor Kata.
const (
	RuntimeAuto       Runtime = "Auto"
	RuntimeContainerd Runtime = "containerd"
	RuntimeCRIO       Runtime = "CRI-O"
	RuntimeNone       Runtime = "None"
)

// Flavour is one of Kata's two runtimes.
type Flavour string

// Flavours: the Go runtime and the Rust runtime (runtime-rs).
const (
	FlavourGo   Flavour = "go"
	FlavourRust Flavour = "rs"
)

// other returns the other flavour.
func (f Flavour) other() Flavour {
	if f == FlavourRust {
		return FlavourGo
	}
	return FlavourRust
}

// Base selects the Kata configuration that is copied for the handler kata-gpu.
type Base string

// Bases: with the guest for GPUs, or the plain one, which suffices for NICs.
const (
	BaseGPU Base = "GPU"
	BaseNIC Base = "NIC"
)

// other returns the other base.
func (b Base) other() Base {
	if b == BaseNIC {
		return BaseGPU
	}
	return BaseNIC
}

// Options configure the node's container runtimes. The zero value of each field is its default.
type Containers struct {
	// Runtime is Auto, containerd, CRI-O or None.
	Runtime Runtime `json:"runtime,omitempty"`
	// Kata is go or rs. One handler has one runtime.
	Kata Flavour `json:"kata,omitempty"`
	// Base is GPU or NIC.
	Base Base `json:"base,omitempty"`
	// NICHandler also installs the handler kata-vfio, for pods with NICs only: its VM has less memory. Its Kata
	// configuration is a copy of the base NIC.
	NICHandler bool `json:"nicHandler,omitempty"`
	// HotPlug plugs devices into the running VM instead of cold-plugging them. Only the Go runtime can, and the plugin
	// needs the flag --hot-plug.
	HotPlug bool `json:"hotPlug,omitempty"`
	// PodResourcesSocket makes systemd create the file of the plugin's pod-resources socket at each boot, before the
	// first pod. The default is true unless Runtime is None.
	PodResourcesSocket *bool `json:"podResourcesSocket,omitempty"`
}

// withDefaults sets unset options and refuses invalid ones.
func (o Containers) withDefaults() (Containers, error) {
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
	if o.HotPlug && o.NICHandler {
		return o, errors.New("nicHandler: the handler kata-vfio plugs devices when the VM starts, and hotPlug is for all handlers of a node; use one of them")
	}
	if o.PodResourcesSocket == nil {
		o.PodResourcesSocket = new(o.Runtime != RuntimeNone)
	}
	return o, nil
}

// choose validates a value, and sets an empty one to the first choice.
func choose[T ~string](name string, value *T, choices ...T) error {
	if *value == "" {
		*value = choices[0]
	}
	if slices.Contains(choices, *value) {
		return nil
	}
	return fmt.Errorf("%s: %q is none of %v", name, string(*value), choices)
}

// wants collects the requirements of one part.
type wants struct {
	part string
	state.Wanted
}

// file requires a file with the content.
func (w *wants) file(path string, content []byte, why string, then ...state.FollowUp) {
	w.Files = append(w.Files, state.File{
		Part: w.part, Path: below(path), Content: content, Mode: 0o644, Why: why, Then: then,
	})
}

// refuse records a problem that prevents all changes.
func (w *wants) refuse(code rule.Code, path, text, fix string) {
	w.problem(code, true, path, text, fix)
}

// warn records a problem that prevents nothing.
func (w *wants) warn(code rule.Code, path, text, fix string) { w.problem(code, false, path, text, fix) }

func (w *wants) problem(code rule.Code, fatal bool, path, text, fix string) {
	w.Problems = append(w.Problems, state.Problem{Part: w.part, Code: code, Fatal: fatal, Path: below(path), Text: text, Fix: fix})
}

func (w *wants) fact(name, value, source string) {
	if source != "" {
		source = "/" + below(source)
	}
	w.Facts = append(w.Facts, state.Fact{Part: w.part, Name: name, Value: value, Source: source})
}

// refused reports whether a problem prevents changes.
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
