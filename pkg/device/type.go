package device

import (
	"fmt"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// Type is what an operator calls a function.
type Type string

// The types. A NIC, NVMe or accelerator that has SR-IOV is a PF first, and
// its virtual functions are VFs.
const (
	GPU    Type = "gpu"
	PFType Type = "pf"
	VFType Type = "vf"
	NVMe   Type = "nvme"
	Bridge Type = "bridge"
	Other  Type = "other"
)

// Types lists every type, in the order in which they are shown.
func Types() []Type { return []Type{GPU, PFType, VFType, NVMe, Bridge, Other} }

// Classify returns the type of a function from its class and SR-IOV role. A
// display, 3D or processing accelerator is a GPU even where it has SR-IOV
// itself (its VFs are VFs); a network controller without SR-IOV is a PF too:
// it is the whole physical function.
func Classify(class pci.Class, isPF, isVF bool) Type {
	switch {
	case isVF:
		return VFType
	case class.Base() == pci.BaseBridge:
		return Bridge
	case class.Base() == pci.BaseDisplay, class.Base() == pci.BaseAccelerator:
		return GPU
	case class.Base() == pci.BaseNetwork:
		return PFType
	case class.Sub() == pci.ClassNVMe:
		return NVMe
	case isPF:
		return PFType
	default:
		return Other
	}
}

// ParseName splits a device name as written by [Function.Name] into type and
// address.
func ParseName(name string) (Type, pci.Address, error) {
	prefix, label, ok := strings.Cut(name, "-")
	if !ok {
		return "", pci.Address{}, fmt.Errorf("device name %q: want <type>-<domain>-<bus>-<device>-<function>", name)
	}
	addr, err := pci.ParseLabel(label)
	if err != nil {
		return "", pci.Address{}, fmt.Errorf("device name %q: want <type>-<domain>-<bus>-<device>-<function>", name)
	}
	for _, t := range Types() {
		if prefix == string(t) && t != Bridge {
			return t, addr, nil
		}
	}
	return "", pci.Address{}, fmt.Errorf("device name %q: %q is no assignable type", name, prefix)
}
