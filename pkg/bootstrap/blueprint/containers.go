package blueprint

import (
	"errors"
	"fmt"
	"slices"
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

// Bases: with the guest for GPUs, or the plain one, which suffices for NICs.
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
	for _, err := range []error{
		choose("runtime", &o.Runtime, RuntimeAuto, RuntimeContainerd, RuntimeCRIO, RuntimeNone),
		choose("kata", &o.Kata, FlavorGo, FlavorRust),
		choose("base", &o.Base, BaseGPU, BaseNIC),
	} {
		if err != nil {
			return o, err
		}
	}
	if o.HotPlug && o.Kata == FlavorRust {
		return o, fmt.Errorf("hotPlug: Kata's Rust runtime has no such setting; use kata: %s", FlavorGo)
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
