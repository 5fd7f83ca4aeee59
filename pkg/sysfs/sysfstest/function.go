package sysfstest

import (
	"bytes"
	"fmt"
	"os"
	"path"
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// Function is a PCI function to be added. Its bus says where it hangs: below
// the port or root that leads to that bus.
type Function struct {
	Address   pci.Address
	Vendor    pci.ID
	Device    pci.ID
	SubVendor pci.ID
	SubDevice pci.ID
	Class     pci.Class
	Revision  uint8

	// Driver has the function from the start. It is registered if it is not yet,
	// and gets the function's ids, so that it takes the function again when it
	// is probed without an override. When empty, the registered drivers are
	// probed, as on boot.
	Driver string
	// Group is the number of the IOMMU group, which functions with the same number share. 0 means a separate group,
	// which the kernel numbers from 100 up.
	Group int

	// ResetMethods are the words of reset_method; empty for a function that
	// can't be reset on its own.
	ResetMethods []string
	BARs         []device.BAR
	// Link is the link above; nil reads as an unknown link where there is an
	// Express capability.
	Link *device.Link
	// Capabilities make up the configuration space. SRIOV.TotalVFs makes the
	// function a PF.
	Capabilities pci.Capabilities
	// BootVGA makes a VGA function the firmware's console.
	BootVGA bool

	// SRIOV says more about a PF's VFs; nil for the usual.
	SRIOV *SRIOV

	// bridge is set for ports.
	bridge *bridge
}

// SRIOV describes the VFs of a PF.
type SRIOV struct {
	// Offset and Stride are the routing id offset of the first VF and the
	// distance of the next ones (0 means 16 and 1).
	Offset, Stride int
	// Class and ResetMethods of the VFs; the PF's class and "flr" if not given.
	Class        pci.Class
	ResetMethods []string
	BARs         []device.BAR
	// VFs are enabled from the start, by the driver given for the PF.
	VFs int
}

// A bridge is the part of a port that leads to another bus.
type bridge struct{ secondary, subordinate uint8 }

// A function is a PCI function of the node.
type function struct {
	Function
	dir  string // below sys/devices
	root Root
	// lock is the kernel's device lock: full while it is held. It is a channel and not a mutex, so that
	// testing/synctest sees who waits for it.
	lock chan struct{}

	// The following fields are guarded by Kernel.mu.
	gone     bool
	driver   *driver // stays set until the driver's remove function has returned
	override string
	group    *group // nil without an IOMMU
	methods  []string
	config   []byte
	resets   int  // under way, which keep everybody from config
	multi    bool // its device has other functions
	children []child
	vfio     *vfioDevice     // nil unless a VFIO driver has it
	files    map[string]File // of the driver, by name

	numVFs    int
	vfs       []*function
	autoprobe bool
	pf        *function // nil unless it is a VF
	index     int       // of a VF
}

// Add adds functions in order: ports before the functions below them. A function that is added after the drivers is
// probed like a hot-plugged one.
func (k *Kernel) Add(functions ...Function) {
	if k.tb != nil {
		k.tb.Helper()
	}
	for _, spec := range functions {
		var f *function
		k.build(func() { f = k.add(spec) })
		if f == nil {
			return
		}
		k.initialize(f)
	}
}

// add puts the function into the tree, without a driver. Callers hold mu.
func (k *Kernel) add(spec Function) *function {
	parent, root, ok := k.above(spec.Address)
	switch {
	case !ok:
		k.wrong("add %s: no root or port leads to bus %02x; add it first", spec.Address, spec.Address.Bus)
		return nil
	case k.functions[spec.Address] != nil:
		k.wrong("add %s: it is there already", spec.Address)
		return nil
	}
	f := &function{Function: spec, root: root, dir: path.Join(parent, spec.Address.String())}
	k.appear(f)
	return f
}

// appear enters f into the model and the tree. Callers hold mu.
func (k *Kernel) appear(f *function) {
	f.lock = make(chan struct{}, 1)
	f.autoprobe = true
	f.methods = slices.Clone(f.ResetMethods)
	f.config = f.pristine()
	k.functions[f.Address] = f
	if f.bridge != nil {
		k.buses[bus{f.Address.Domain, f.bridge.secondary}] = f
	}
	k.notifyMates(f)
	k.mkdir(f.dir)
	for _, a := range f.attributes() {
		k.create(path.Join(f.dir, a.name), a.content, a.mode)
	}
	k.link(path.Join(f.dir, "subsystem"), "sys/bus/pci")
	k.link(path.Join("sys/bus/pci/devices", f.Address.String()), f.dir)
	k.join(f)
	k.say("add", f.dir, "pci")
}

// notifyMates marks f and the other functions of its device as parts of a
// multi-function device. A VF's header says nothing about that. Callers hold mu.
func (k *Kernel) notifyMates(f *function) {
	if f.pf != nil {
		return
	}
	for n := range uint8(8) {
		a := f.Address
		a.Function = n
		mate := k.functions[a]
		if mate == nil || mate == f || mate.pf != nil {
			continue
		}
		f.multi = true
		f.config = f.pristine()
		k.changeConfig(mate, func() { mate.multi = true })
	}
}

// initialize gives f the driver it was added with, or probes for one, and enables
// the VFs that it was added with.
func (k *Kernel) initialize(f *function) {
	f.acquire()
	defer f.release()
	err := k.initializeDriver(f)
	if err == nil && f.SRIOV != nil && f.SRIOV.VFs > 0 {
		err = k.enableVFs(f, f.SRIOV.VFs)
	}
	if err != nil {
		k.build(func() { k.wrong("add %s with driver %q: %w", f.Address, f.Driver, err) })
	}
}

func (k *Kernel) initializeDriver(f *function) error {
	if f.Driver == "" {
		return k.attach(f)
	}
	k.mu.Lock()
	d := k.adopt(f.Driver, f)
	k.mu.Unlock()
	return k.probe(f, d)
}

// bound returns the name of f's driver.
func (f *function) bound() string {
	if f.driver == nil {
		return ""
	}
	return f.driver.name
}

// Remove removes the function from the bus at once, like a surprise removal: its driver, its group membership and all
// its files are removed, and a write in progress has no effect. Functions below a port are removed with it.
func (k *Kernel) Remove(a pci.Address) {
	k.build(func() {
		f := k.functions[a]
		if f == nil {
			k.wrong("remove %s: there is no such function", a)
			return
		}
		for _, below := range k.behind(f) {
			k.vanish(below)
		}
		k.vanish(f)
	})
}

// Replace puts another function in the place of the one at its address: it is removed, with what is below it, and the
// other one added. A function that is replaced by itself was removed and found again.
func (k *Kernel) Replace(by Function) {
	k.Remove(by.Address)
	k.Add(by)
}

// MoveBus gives the bus below a port another number, with the addresses of all functions on it, as firmware may do at the
// next boot when a card was added. Call [Kernel.Reboot] after it. The bus has no port on it.
func (k *Kernel) MoveBus(from, to uint8) {
	k.mu.Lock()
	f := k.buses[bus{0, from}]
	var below []Function
	for _, other := range k.sorted() {
		if f != nil && other.pf == nil && other.Address.Bus == from && other.Address.Domain == 0 {
			other.Address.Bus = to
			below = append(below, other.Function)
			other.Address.Bus = from
		}
	}
	k.mu.Unlock()
	if f == nil {
		k.build(func() { k.wrong("move bus %02x: no port leads to it", from) })
		return
	}
	port := f.Function
	port.bridge = &bridge{to, to}
	k.Remove(port.Address)
	k.Add(append([]Function{port}, below...)...)
}

// vanish takes f out of the model and the tree. Callers hold mu.
func (k *Kernel) vanish(f *function) {
	if f.gone {
		return
	}
	for _, vf := range f.vfs {
		k.vanish(vf)
	}
	k.unlinkDriver(f)
	k.dropChildren(f)
	k.closeVFIO(f)
	k.leaveVFIOGroup(f)
	k.leave(f)
	k.remove(path.Join("sys/bus/pci/devices", f.Address.String()))
	k.keepInode(f)
	k.remove(f.dir)
	k.say("remove", f.dir, "pci")
	f.gone, f.driver = true, nil
	delete(k.functions, f.Address)
	if f.bridge != nil {
		delete(k.buses, bus{f.Address.Domain, f.bridge.secondary})
	}
}

// keepInode keeps the inode of f's directory in use, so that the next function at the
// address gets another: sysfs gives numbers out in turn (fs/kernfs/dir.c,
// idr_alloc_cyclic), while ext4 gives out a free one again at once. Callers hold mu.
func (k *Kernel) keepInode(f *function) {
	if k.closed {
		return
	}
	dir, err := os.Open(k.Path(f.dir))
	if err != nil {
		k.wrong("keep the inode of a removed function: %w", err)
		return
	}
	if earlier := k.removed[f.Address]; earlier != nil {
		_ = earlier.Close()
	}
	k.removed[f.Address] = dir
}

// behind returns the functions below f's directory. Callers hold mu.
func (k *Kernel) behind(f *function) []*function {
	var below []*function
	for _, other := range k.sorted() {
		if other != f && len(other.dir) > len(f.dir) && other.dir[:len(f.dir)+1] == f.dir+"/" {
			below = append(below, other)
		}
	}
	return below
}

// sorted returns all functions by address. Callers hold mu.
func (k *Kernel) sorted() []*function {
	all := make([]*function, 0, len(k.functions))
	for _, f := range k.functions {
		all = append(all, f)
	}
	slices.SortFunc(all, func(a, b *function) int { return a.Address.Compare(b.Address) })
	return all
}

// FallOff makes a function stop answering, as if it fell off the bus. It stays in sysfs, without a uevent.
func (k *Kernel) FallOff(a pci.Address) {
	k.SetConfig(a, 0, bytes.Repeat([]byte{0xff}, 64)...)
}

// CountFatalErrors sets how many fatal errors the kernel has counted for a function in all.
func (k *Kernel) CountFatalErrors(a pci.Address, total int) {
	k.PutFile(path.Join("sys/bus/pci/devices", a.String(), "aer_dev_fatal"), fmt.Sprintf("DLP %d\nTOTAL_ERR_FATAL %[1]d\n", total))
}
