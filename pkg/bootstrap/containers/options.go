package containers

import (
	"fmt"
	"slices"
)

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
	// HotPlug has devices plugged into the running VM instead of cold-plugged. Only
	// the Go runtime can, and the plugin must be told (--hot-plug).
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
