package sanitizer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sanitize"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/control"
)

// function is a PCI function of the VM.
type function struct {
	address        pci.Address
	vendor, device pci.ID
	class          pci.Class
	bars           []pci.Resource // index i is BAR i
}

// String names the function for messages: "0000:01:00.0 (1234:1111, class 038000)".
func (f function) String() string {
	return fmt.Sprintf("%s (%s:%s, class %s)", f.address, f.vendor, f.device, f.class)
}

// id returns the function as a result names it.
func (f function) id() *sanitize.Device {
	d := sanitize.NewDevice(f.vendor, f.device)
	return &d
}

// hasMemory reports whether the function has a BAR in memory space.
func (f function) hasMemory() bool {
	return slices.ContainsFunc(f.bars, isMemory)
}

func isMemory(r pci.Resource) bool { return r.Size() > 0 && !r.IO() }

// Parts of a VM that the host did not give it: virtio devices and the functions of the emulated chipset that have a
// memory BAR. Bridges are known by their class. (include/hw/pci/pci.h and hw/i386/pc_q35.c of QEMU).
const (
	vendorVirtio pci.ID = 0x1af4
	ich9AHCI     pci.ID = 0x2922
	ich9SMBus    pci.ID = 0x2930
)

// ofVM reports whether the function belongs to every VM.
func (f function) ofVM() bool {
	chipset := f.vendor == pci.VendorIntel && (f.device == ich9AHCI || f.device == ich9SMBus)
	return f.vendor == vendorVirtio || f.class.Base() == pci.BaseBridge || chipset
}

// pick returns the function with the address, or without one the only function that is wanted.
func (g *guest) pick(address *pci.Address, wanted func(function) bool) (function, error) {
	if address != nil {
		return g.read(*address)
	}
	all, err := g.functions()
	if err != nil {
		return function{}, err
	}
	found := slices.DeleteFunc(slices.Clone(all), func(f function) bool { return !wanted(f) })
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return function{}, fmt.Errorf("the VM has no device to sanitize among its functions (%d: %s)", len(all), list(all))
	}
	return function{}, fmt.Errorf("the VM has %d devices to sanitize (%s): name one with --device", len(found), list(found))
}

// list names functions for a message.
func list(functions []function) string {
	names := make([]string, len(functions))
	for i, f := range functions {
		names[i] = f.String()
	}
	return strings.Join(names, ", ")
}

// functions returns all functions of the VM.
func (g *guest) functions() ([]function, error) {
	names, err := g.fs.ReadDir(sysfs.Devices)
	if err != nil {
		return nil, fmt.Errorf("list the VM's functions: %w", err)
	}
	var all []function
	for _, name := range names {
		address, err := pci.ParseAddress(name)
		if err != nil {
			return nil, fmt.Errorf("list the VM's functions: %w", err)
		}
		f, err := g.read(address)
		if err != nil {
			return nil, err
		}
		all = append(all, f)
	}
	return all, nil
}

// read reads one function.
func (g *guest) read(a pci.Address) (function, error) {
	f := function{address: a}
	for _, attribute := range []struct {
		name string
		into interface{ UnmarshalText([]byte) error }
	}{{"vendor", &f.vendor}, {"device", &f.device}, {"class", &f.class}} {
		text, err := g.fs.ReadString(attributePath(a, attribute.name))
		if errors.Is(err, fs.ErrNotExist) {
			return f, fmt.Errorf("the VM has no PCI function %s: name one of its own addresses, or none for the only device", a)
		}
		if err != nil {
			return f, fmt.Errorf("read function %s: %w", a, err)
		}
		if err := attribute.into.UnmarshalText([]byte(text)); err != nil {
			return f, fmt.Errorf("read %s of function %s: %w", attribute.name, a, err)
		}
	}
	text, err := g.fs.ReadString(attributePath(a, "resource"))
	if err != nil {
		return f, fmt.Errorf("read function %s: %w", a, err)
	}
	if f.bars, err = pci.ParseResources(text); err != nil {
		return f, fmt.Errorf("read function %s: %w", a, err)
	}
	return f, nil
}

func attributePath(a pci.Address, name string) string { return sysfs.FunctionPath(a) + "/" + name }

// unbind takes the function from the guest's driver, if one is bound.
func (g *guest) unbind(ctx context.Context, a pci.Address) error {
	driver, err := g.fs.Driver(a)
	if err != nil || driver == "" {
		return err
	}
	if err := g.control.Write(ctx, control.Unbind(a, driver)); err != nil {
		return fmt.Errorf("unbind %s from the guest's driver %s: %w", a, driver, err)
	}
	now, err := g.fs.Driver(a)
	if err == nil && now != "" {
		err = fmt.Errorf("unbind %s from the guest's driver %s: the kernel accepted it, and the driver is %s", a, driver, now)
	}
	return err
}

// commandMemory is the bit of the command register that lets the function answer to its memory BARs (PCI_COMMAND_MEMORY
// in include/uapi/linux/pci_regs.h).
const (
	commandRegister = 0x04
	commandMemory   = 1 << 1
)

// enable lets the function answer to its memory BARs.
func (g *guest) enable(ctx context.Context, a pci.Address) error {
	if err := g.control.Write(ctx, control.Enable(a)); err != nil {
		return fmt.Errorf("enable %s: %w", a, err)
	}
	config, err := g.fs.ConfigHead(a, 64)
	if err != nil {
		return fmt.Errorf("enable %s: %w", a, err)
	}
	if len(config) < commandRegister+2 || config[commandRegister]&commandMemory == 0 {
		return fmt.Errorf("enable %s: the kernel accepted it, and the function does not decode its memory", a)
	}
	return nil
}

// offBus reports whether the function does not answer any more: reads of its configuration return all ones.
func (g *guest) offBus(a pci.Address) bool {
	config, err := g.fs.ConfigHead(a, 64)
	return err != nil || pci.Dead(config, false)
}
