package blueprint

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"
)

// Runtime is a node's container runtime.
type Runtime string

// Runtimes. Auto detects the runtime. None configures neither it nor Kata.
const (
	RuntimeAuto       Runtime = "Auto"
	RuntimeContainerd Runtime = "containerd"
	RuntimeCRIO       Runtime = "CRI-O"
	RuntimeNone       Runtime = "None"
)

// Flavor is one of Kata's two runtimes.
type Flavor string

// Flavors: the Go runtime and the Rust runtime (runtime-rs).
const (
	FlavorGo   Flavor = "go"
	FlavorRust Flavor = "rs"
)

// Other returns the other flavor.
func (f Flavor) Other() Flavor {
	if f == FlavorRust {
		return FlavorGo
	}
	return FlavorRust
}

// Base selects the Kata configuration that is copied for the handler kata-gpu.
type Base string

// Bases. BaseGPU has the guest for GPUs. BaseNIC is the plain one, which suffices for NICs.
const (
	BaseGPU Base = "GPU"
	BaseNIC Base = "NIC"
)

// Other returns the other base.
func (b Base) Other() Base {
	if b == BaseNIC {
		return BaseGPU
	}
	return BaseNIC
}

// Containers configure the node's container runtimes. The zero value of each field is its default.
type Containers struct {
	// Runtime is Auto, containerd, CRI-O or None.
	Runtime Runtime `json:"runtime,omitempty"`
	// Kata is go or rs. One handler has one runtime.
	Kata Flavor `json:"kata,omitempty"`
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

// WithDefaults sets unset options and refuses invalid ones.
func (o Containers) WithDefaults() (Containers, error) {
	o.Runtime, o.Kata, o.Base = cmp.Or(o.Runtime, RuntimeAuto), cmp.Or(o.Kata, FlavorGo), cmp.Or(o.Base, BaseGPU)
	for field, text := range o.problems() {
		return o, fmt.Errorf("%s: %s", field, text)
	}
	if o.PodResourcesSocket == nil {
		o.PodResourcesSocket = new(o.Runtime != RuntimeNone)
	}
	return o, nil
}

// problems yields the wrong fields, each with the reason.
func (o *Containers) problems() iter.Seq2[string, string] {
	return func(yield func(field, text string) bool) {
		for _, p := range [][2]string{
			{"runtime", noChoice(o.Runtime, RuntimeAuto, RuntimeContainerd, RuntimeCRIO, RuntimeNone)},
			{"kata", noChoice(o.Kata, FlavorGo, FlavorRust)},
			{"base", noChoice(o.Base, BaseGPU, BaseNIC)},
			{"hotPlug", o.wrongHotPlug()},
			{"nicHandler", o.wrongNICHandler()},
		} {
			if p[1] != "" && !yield(p[0], p[1]) {
				return
			}
		}
	}
}

func (o *Containers) wrongHotPlug() string {
	if o.HotPlug && o.Kata == FlavorRust {
		return fmt.Sprintf("Kata's Rust runtime has no such setting; use kata: %s", FlavorGo)
	}
	return ""
}

func (o *Containers) wrongNICHandler() string {
	if o.HotPlug && o.NICHandler {
		return "the handler kata-vfio plugs devices when the VM starts, and hotPlug is for all handlers of a node; use one of them"
	}
	return ""
}

// noChoice returns the problem of a value that is not one of the choices, or "" if it is one or unset.
func noChoice[T ~string](value T, choices ...T) string {
	if value == "" || slices.Contains(choices, value) {
		return ""
	}
	words := make([]string, len(choices))
	for i, c := range choices {
		words[i] = string(c)
	}
	return fmt.Sprintf("%q is not one of %s", string(value), strings.Join(words, ", "))
}
