package sysfstest

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// Match is a row of a driver's id table. Zero fields match anything.
type Match struct {
	Vendor, Device pci.ID
	// Class is compared in the bits of ClassMask.
	Class, ClassMask pci.Class

	// at restricts the row to one function.
	at *pci.Address
}

// MatchID matches one vendor and device id.
func MatchID(vendor, dev pci.ID) Match { return Match{Vendor: vendor, Device: dev} }

// MatchClass matches a base class and subclass, pci.ClassNVMe for example.
func MatchClass(sub uint16) Match {
	return Match{Class: pci.Class(sub) << 8, ClassMask: 0xffff00}
}

// matches reports whether the row names f.
func (m Match) matches(f *function) bool {
	return (m.at == nil || *m.at == f.Address) &&
		(m.Vendor == 0 || m.Vendor == f.Vendor) &&
		(m.Device == 0 || m.Device == f.Device) &&
		(f.Class^m.Class)&m.ClassMask == 0
}

// Driver is a kernel driver to be registered. The zero Driver takes functions
// by driver_override only.
type Driver struct {
	// IDs is the id table.
	IDs []Match
	// VFIO makes it a VFIO driver, as vfio-pci is, which makes VFIO's device
	// nodes. IDs are then dynamic ids, as the module's ids= parameter adds them:
	// its own match with an override only.
	VFIO bool
	// ManagesDMA is for drivers that leave the group's DMA to a user, as
	// pcieport and pci-stub do (driver_managed_dma). VFIO drivers all do.
	ManagesDMA bool
	// SRIOV says that the driver enables VFs through sriov_numvfs.
	SRIOV bool
	// KeepsVFs says that the driver leaves the VFs enabled when it is unbound.
	KeepsVFs bool
	// NoChildren says that no subsystem gets a device from the driver, as with stubs and UIO. Otherwise a network,
	// display or NVMe function gets the children of its class.
	NoChildren bool
	// ServesVFs says that the driver serves its VFs through VFIO, as NVIDIA's driver does for vGPUs, but PFs as any
	// host driver does.
	ServesVFs bool
	// Files are the attributes that the driver adds to the directory of a function that it takes (dev_groups in struct
	// device_driver). They are removed when the function leaves the driver.
	Files func(a pci.Address, pf *pci.Address) []File
	// Infiniband is the prefix of the RDMA device it makes for a network
	// function ("mlx5_"); empty if there is none.
	Infiniband string
	// Probe is called when the driver is about to take a function. It may refuse with an errno, or block. It must not
	// write to the function.
	Probe func(pci.Address) error
	// Remove is called when the driver is taken from a function, after the links between them are removed. It may
	// block: as long as it does, the kernel still counts the driver as the function's. It must not write to the
	// function.
	Remove func(pci.Address)
}

// A driver is a registered driver. Its id table is guarded by Kernel.mu.
type driver struct {
	Driver
	name string
}

func (d *driver) dir() string { return path.Join("sys/bus/pci/drivers", d.name) }

// managesDMA reports whether the driver leaves the DMA of f's group to a user.
func (d *driver) managesDMA(f *function) bool { return d.servesVFIO(f) || d.ManagesDMA }

// servesVFIO reports whether the driver gives f to user space.
func (d *driver) servesVFIO(f *function) bool { return d.VFIO || d.ServesVFs && f.pf != nil }

// File is an attribute that a driver adds to a function. Its name is a path below the function's directory.
type File struct {
	Name, Content string
	// Store returns what the file reads after a write, or the kernel's error; nil for a file that can only be read.
	Store func(value string) (content string, err error)
}

// matches says whether the driver wants f (drivers/pci/pci-driver.c
// pci_match_device).
func (d *driver) matches(f *function) bool {
	if f.override != "" {
		return f.override == d.name
	}
	return slices.ContainsFunc(d.IDs, func(m Match) bool { return m.matches(f) })
}

// AddDriver registers a driver, as loading its module does, and offers it all
// functions without one (drivers/base/dd.c driver_attach). A name that is
// registered gets the new behavior and the ids added.
func (k *Kernel) AddDriver(name string, behavior Driver) {
	if k.tb != nil {
		k.tb.Helper()
	}
	var d *driver
	var unbound []*function
	k.build(func() {
		d = k.register(name, behavior)
		for _, f := range k.sorted() {
			if f.driver == nil {
				unbound = append(unbound, f)
			}
		}
	})
	for _, f := range unbound {
		f.acquire()
		if k.wants(d, f) {
			_ = k.probe(f, d) // loading a module does not fail because a probe did
		}
		f.release()
	}
	k.build(func() {})
}

// register enters a driver, or adds to one. Callers hold mu.
func (k *Kernel) register(name string, behavior Driver) *driver {
	if d := k.driverByName(name); d != nil {
		behavior.IDs = slices.Concat(d.IDs, behavior.IDs)
		d.Driver = behavior
		return d
	}
	d := &driver{Driver: behavior, name: name}
	k.drivers = append(k.drivers, d)
	k.mkdir(d.dir())
	for _, name := range []string{"bind", "unbind", "uevent"} {
		k.create(path.Join(d.dir(), name), "", writeOnly)
	}
	module := path.Join("sys/module", moduleName(name))
	k.mkdir(path.Join(module, "drivers"))
	k.link(path.Join(d.dir(), "module"), module)
	k.link(path.Join(module, "drivers", "pci:"+name), d.dir())
	k.say("add", d.dir(), "drivers")
	return d
}

// RemoveDriver unregisters a driver, as unloading its module does. It must have
// no functions: the kernel refuses to unload a module that is in use by others,
// and tests should not depend on what it does to its own devices.
func (k *Kernel) RemoveDriver(name string) {
	k.build(func() {
		for _, f := range k.functions {
			if f.bound() == name {
				k.wrong("remove driver %s: it has %s", name, f.Address)
				return
			}
		}
		k.drivers = slices.DeleteFunc(k.drivers, func(d *driver) bool { return d.name == name })
		k.remove(path.Join("sys/bus/pci/drivers", name))
		k.remove(path.Join("sys/module", moduleName(name)))
		k.say("remove", path.Join("sys/bus/pci/drivers", name), "drivers")
	})
}

// adopt makes sure that the driver exists and has f's ids. Callers hold mu.
func (k *Kernel) adopt(name string, f *function) *driver {
	d := k.driverByName(name)
	if d == nil {
		d = k.register(name, usual(name))
	}
	switch {
	case d.matches(f):
	case d.VFIO: // for this one function: tests have others with the same ids
		d.IDs = append(d.IDs, Match{at: &f.Address})
	default:
		d.IDs = append(d.IDs, MatchID(f.Vendor, f.Device))
	}
	return d
}

// usual returns how a driver of that name behaves in the kernel, so far as it
// differs from the zero Driver.
func usual(name string) Driver {
	switch name {
	case "pcieport":
		return Driver{ManagesDMA: true, NoChildren: true, IDs: []Match{MatchClass(pci.ClassPCIBridge)}}
	case "pci-stub":
		return Driver{ManagesDMA: true, NoChildren: true}
	case "uio_pci_generic", "shpchp":
		return Driver{NoChildren: true}
	case "mlx5_core":
		return Driver{SRIOV: true, Infiniband: "mlx5_"}
	case "igb", "ixgbe", "i40e", "ice":
		return Driver{SRIOV: true}
	case "nvme":
		return Driver{SRIOV: true, KeepsVFs: true, IDs: []Match{MatchClass(pci.ClassNVMe)}}
	}
	return Driver{VFIO: device.IsVFIO(name)}
}

// driverByName returns the registered driver, nil if there is none. Callers hold mu.
func (k *Kernel) driverByName(name string) *driver {
	for _, d := range k.drivers {
		if d.name == name {
			return d
		}
	}
	return nil
}

// AddModule makes a driver loadable: [Kernel.Load] registers it. The module is
// called as the driver, with "_" for "-".
func (k *Kernel) AddModule(driver string, behavior Driver) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.modules == nil {
		k.modules = map[string]loadable{}
	}
	k.modules[moduleName(driver)] = loadable{driver, behavior}
}

// A loadable is a driver in a module that can be loaded.
type loadable struct {
	driver   string
	behavior Driver
}

// Load loads a module, or all modules of a modalias ("pci:v..."), as modprobe does. Loading a loaded module is not
// an error.
func (k *Kernel) Load(ctx context.Context, module string) error {
	if err := context.Cause(ctx); err != nil {
		return fmt.Errorf("load module %s: %w", module, err)
	}
	if strings.HasPrefix(module, "pci:") {
		return k.loadFor(ctx, module)
	}
	name := moduleName(module)
	k.mu.Lock()
	m, known := k.modules[name]
	loaded := k.exists("sys/module/" + name)
	k.mu.Unlock()
	switch {
	case loaded:
		return nil
	case !known:
		return fmt.Errorf("load module %s: not found in /lib/modules/%s", module, Release)
	}
	k.AddDriver(m.driver, m.behavior)
	return nil
}

// loadFor loads the modules whose drivers want the functions with a modalias.
func (k *Kernel) loadFor(ctx context.Context, modalias string) error {
	var names []string
	k.mu.Lock()
	for name, m := range k.modules {
		d := driver{Driver: m.behavior, name: m.driver}
		for _, f := range k.functions {
			if f.modalias() == modalias && slices.ContainsFunc(d.IDs, func(id Match) bool { return id.matches(f) }) {
				names = append(names, name)
				break
			}
		}
	}
	k.mu.Unlock()
	if len(names) == 0 {
		return fmt.Errorf("load module %s: not found in /lib/modules/%s", modalias, Release)
	}
	var errs []error
	for _, name := range names {
		errs = append(errs, k.Load(ctx, name))
	}
	return errors.Join(errs...)
}

// moduleName returns the name that a driver's module has in sysfs.
func moduleName(driver string) string { return strings.ReplaceAll(driver, "-", "_") }

// UnloadDriver unloads a driver's module, as "rmmod" does: its functions lose it
// first, and PFs their VFs with it, unless the driver keeps them. [Kernel.Load]
// loads it again.
func (k *Kernel) UnloadDriver(name string) {
	k.mu.Lock()
	d := k.driverByName(name)
	bound := []*function{}
	for _, f := range k.sorted() {
		if d != nil && f.driver == d {
			bound = append(bound, f)
		}
	}
	if d == nil {
		k.wrong("unload driver %s: it is not loaded", name)
	}
	k.mu.Unlock()
	for _, f := range bound {
		f.acquire()
		if k.has(f, d) { // a VF goes with its PF
			_ = k.detach(f) // what went wrong is kept
		}
		f.release()
	}
	k.build(func() {})
	k.AddModule(name, d.Driver)
	k.RemoveDriver(name)
}

// SlowVFs makes each VF of the PF take a while: mlx5 takes 200 ms for one. A
// write to sriov_numvfs answers that much later, and the PF's lock is held.
// Tests run it in a bubble of testing/synctest, where no time passes.
func (k *Kernel) SlowVFs(pf pci.Address, each time.Duration) {
	k.OnWrite(func(name, value string) error {
		dir, attr := path.Split(name)
		if attr == "sriov_numvfs" && path.Base(dir) == pf.String() {
			n, _ := strconv.Atoi(word(value)) // the kernel refuses other texts
			<-time.After(time.Duration(n) * each)
		}
		return nil
	})
}
