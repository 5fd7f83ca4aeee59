package inventory

import (
	"errors"
	"fmt"
	iofs "io/fs"
	"path"
	"strconv"
	"strings"
	"unique"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// attempts is how often a function is read that goes away and is back at once,
// as VFs do when their number is changed.
const attempts = 3

// readFunction reads one function's directory, and only what needs no other function. It returns nil if the function
// does not exist or disappears during the read. place is the path under which it was listed, empty if unknown.
func readFunction(fs *sysfs.FS, addr pci.Address, place string, keep kept) (*device.Function, error) {
	var err error
	for range attempts {
		var f *device.Function
		if f, err = readOnce(fs, addr, place, keep); err == nil {
			return f, nil
		}
		place = "" // it may have moved
		if errors.Is(err, errOtherDevice) {
			keep = kept{}
			continue
		}
		if !sysfs.Vanished(err) {
			break
		}
		there, statErr := fs.Exists(sysfs.FunctionPath(addr))
		if statErr != nil {
			return nil, statErr
		}
		if !there {
			return nil, nil
		}
	}
	return nil, fmt.Errorf("PCI function %s: %w", addr, err)
}

// readOnce reads the function; its error matches [sysfs.Vanished] when the
// directory that it read went away.
func readOnce(fs *sysfs.FS, addr pci.Address, place string, keep kept) (*device.Function, error) {
	dir, where, err := openFunction(fs, addr, place)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	a := &attributes{dir: dir}
	f := &device.Function{Address: addr}
	f.Root, f.Upstream = parsePlace(where)
	readIdentity(f, a, keep)
	if a.err == nil && f.Class.Sub() != pci.ClassPCIBridge { // no record or mark is of a port
		f.Inode, a.err = dir.Inode()
	}
	keep = keep.of(f)
	readBinding(f, a, keep)
	readSRIOV(f, a, keep)
	readVGPU(f, a)
	readHardware(f, a, keep)
	switch {
	case keep.is(f):
		readBrief(f, a, keep.before)
	case f.Class.Sub() != pci.ClassPCIBridge: // ports have none
		readChildren(f, a)
	}
	// All attributes of a removed directory are absent, and most attributes are optional. So the last read is of an
	// attribute that every function has: config, or vendor in a tree without it.
	if !readConfig(f, a, keep) {
		a.required("vendor", 16)
	}
	f.Type = device.Classify(f.Class, f.Capabilities.Header, f.PF != nil, f.VF != nil)
	return f, a.err
}

// openFunction opens a function's directory by its place in the device tree,
// which it returns: walking the link's text once is cheaper than having it
// followed, and the place is wanted anyway.
func openFunction(fs *sysfs.FS, addr pci.Address, place string) (dir *sysfs.Dir, where string, err error) {
	where = place
	if where == "" {
		where = sysfs.FunctionPath(addr)
		switch target, err := fs.ReadLink(where); {
		case err == nil:
			where = path.Join(sysfs.Devices, target)
		case errors.Is(err, iofs.ErrNotExist):
			return nil, where, err
		}
	}
	// A tree that was put together by hand may have a directory here.
	dir, err = fs.OpenDir(where)
	return dir, where, err
}

// readIdentity reads what the function is.
func readIdentity(f *device.Function, a *attributes, keep kept) {
	f.Modalias, _ = a.text("modalias")
	m, ok := pci.ParseModalias(f.Modalias)
	if !ok { // in a tree that was put together by hand
		m.Class = pci.Class(a.required("class", 24))
		m.Vendor, m.Device = pci.ID(a.required("vendor", 16)), pci.ID(a.required("device", 16))
		m.SubVendor, m.SubDevice = pci.ID(a.hex("subsystem_vendor", 16)), pci.ID(a.hex("subsystem_device", 16))
	}
	f.Class, f.Vendor, f.Device, f.SubVendor, f.SubDevice = m.Class, m.Vendor, m.Device, m.SubVendor, m.SubDevice
	if ok && keep.before != nil && keep.before.Modalias == f.Modalias {
		f.Revision = keep.before.Revision // readConfig compares it
	} else {
		f.Revision = uint8(a.hex("revision", 8))
	}
	if f.Class.Sub() == pci.ClassVGA {
		f.BootVGA = a.on("boot_vga")
	}
}

// readBinding reads the function's driver and group.
func readBinding(f *device.Function, a *attributes, keep kept) {
	f.Driver = unique.Make(a.link("driver")).Value()
	readDetaching(f, a)
	if keep.isBridge(f) {
		f.DriverOverride = keep.before.DriverOverride
	} else {
		readOverride(f, a)
	}
	if group := a.link("iommu_group"); group != "" {
		n, err := strconv.Atoi(group)
		if err != nil {
			a.fail("iommu_group", err)
			return
		}
		f.Group = &n
	}
}

// readDetaching sees an unbind that hangs where no lock shows it. The function is
// then Locked.
func readDetaching(f *device.Function, a *attributes) {
	if f.Driver != "" || !a.usable() {
		return
	}
	driver, err := a.dir.Detaching(f.Address)
	if errors.Is(err, sysfs.ErrLocked) {
		f.Locked = true
		return
	}
	f.Detaching, a.err = unique.Make(driver).Value(), err
	f.Locked = driver != ""
}

// readOverride reads driver_override. While an operation hangs in the kernel that is not possible. Then the
// function is Locked, and the rest of it and of the node is still read.
func readOverride(f *device.Function, a *attributes) {
	if !a.usable() || f.Locked && f.Detaching == "" {
		return
	}
	override, err := a.dir.DriverOverride(f.Address)
	if errors.Is(err, sysfs.ErrLocked) {
		f.Locked = true
		return
	}
	f.DriverOverride, a.err = unique.Make(override).Value(), err
}

// readVGPU reads the vGPU type of a VF, whose file NVIDIA's driver makes.
func readVGPU(f *device.Function, a *attributes) {
	if f.VF == nil || f.Vendor != pci.VendorNVIDIA || f.Driver != "nvidia" {
		return
	}
	vgpu := a.sub("nvidia")
	defer vgpu.close()
	f.VGPUType = vgpu.word("current_vgpu_type")
}

// readSRIOV reads the function's part in SR-IOV. The index of a VF is known to
// its PF only; see scan.number.
func readSRIOV(f *device.Function, a *attributes, keep kept) {
	if keep.isBridge(f) {
		return
	}
	if pf := a.link("physfn"); pf != "" {
		addr, err := pci.ParseAddress(pf)
		if err != nil {
			a.fail("physfn", err)
			return
		}
		f.VF = &device.VF{PF: addr}
		return
	}
	if keep.before != nil && keep.before.PF == nil {
		return // the capability decides
	}
	if keep.is(f) {
		rereadPF(f, a, keep.before.PF)
		return
	}
	total, ok := a.integer("sriov_totalvfs")
	if !ok {
		return
	}
	vfs := readVFs(a)
	f.PF = &device.PF{
		TotalVFs: total, NumVFs: readNumVFs(f, a, len(vfs)), Autoprobe: a.on("sriov_drivers_autoprobe"), VFs: vfs, Partition: readPartition(f, a),
	}
}

// readPartition reads how AMD's driver gim divides a GPU with VFs: "CPX" and "memory_partition_mode: NPS4" on a line of several
// (gim/gim_shim/sysfs/gim_monitor.c in amd/MxGPU-Virtualization). Only these two files are read: a read of reset_gpu beside them resets
// the GPU.
func readPartition(f *device.Function, a *attributes) string {
	if f.Driver != "gim" || !a.usable() {
		return ""
	}
	compute, _, err := a.dir.Text("spatial_partition_mode")
	text, _, memoryErr := a.dir.Text("memory_partition_mode")
	line, _, _ := strings.Cut(text, "\n")
	memory := strings.TrimSpace(strings.TrimPrefix(line, "memory_partition_mode:"))
	partition := compute + "/" + memory
	if err != nil || memoryErr != nil || !v1alpha1.IsPartition(partition) { // it is busy, or says that it failed
		return ""
	}
	return partition
}

// readNumVFs reads the number of enabled VFs, which is known to be at least
// linked. While the function is locked that is all that is known.
func readNumVFs(f *device.Function, a *attributes, linked int) int {
	if !a.usable() || f.Locked {
		return linked
	}
	// sriov_numvfs_show takes the device's lock (drivers/pci/iov.c), which an operation that hangs keeps.
	text, ok, err := a.dir.LockedText(f.Address, "sriov_numvfs")
	switch {
	case errors.Is(err, sysfs.ErrLocked):
		f.Locked = true
		return linked
	case err != nil:
		a.err = err
	case ok:
		num, err := strconv.Atoi(text)
		if err != nil {
			a.fail("sriov_numvfs", err)
		}
		return num
	}
	return linked
}

// readVFs follows the links virtfn0, virtfn1, ... of a PF.
func readVFs(a *attributes) []pci.Address {
	var vfs []pci.Address
	for i := 0; ; i++ {
		name := virtfn(i)
		target := a.link(name)
		if target == "" {
			return vfs
		}
		addr, err := pci.ParseAddress(target)
		if err != nil {
			a.fail(name, err)
			return nil
		}
		vfs = append(vfs, addr)
	}
}

func virtfn(i int) string { return "virtfn" + strconv.Itoa(i) }

// readHardware reads where and how the function is connected.
func readHardware(f *device.Function, a *attributes, keep kept) {
	if keep.before != nil {
		rereadHardware(f, a, keep)
		return
	}
	if node, ok := a.integer("numa_node"); ok && node >= 0 {
		f.NUMANode = &node
	}
	readMemory(f, a)
	if f.VF == nil { // its link is the PF's, and its own registers say nothing of it
		f.Link = readLink(a)
	}
	f.ResetMethods = a.words("reset_method")
	f.FatalErrors = readFatalErrors(a)
}

// readLink reads the state of the link; nil if the kernel reports none: for conventional and integrated functions, VFs,
// and functions that do not answer.
func readLink(a *attributes) *device.Link {
	link := device.Link{
		Speed:    knownSpeed(a.answered("current_link_speed")),
		MaxSpeed: knownSpeed(a.answered("max_link_speed")),
		Width:    width(a.answered("current_link_width")),
		MaxWidth: width(a.answered("max_link_width")),
	}
	if link == (device.Link{}) {
		return nil
	}
	return &link
}

// knownSpeed drops the kernel's word for a speed that it does not know.
func knownSpeed(text string) string {
	if text == "Unknown" || text == "Unknown speed" {
		return ""
	}
	return unique.Make(text).Value()
}

// width reads a lane count; 0 and 255 both mean that the link is not there.
func width(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil || n == 255 {
		return 0
	}
	return n
}

// readConfig reads the capabilities; false if nothing was read. The device wrote them: whatever they hold is a
// fact about the device, never a reason to fail the node's scan.
//
// The kernel reads the space word by word from the device, which takes longer than all other attributes together.
// What is kept of the same device includes where its capabilities are. Only the header is read, to see whether it is
// alive, and what software can switch (see [pci.Capabilities.Reread]). A port is always read in full, and so is a
// function of which not everything was readable.
func readConfig(f *device.Function, a *attributes, keep kept) bool {
	if keep.before != nil && f.Class.Sub() != pci.ClassPCIBridge && !keep.before.Capabilities.Truncated {
		return rereadConfig(f, a, keep.before.Capabilities)
	}
	config, _, ok := readSpace(f, a, configBytes, nil)
	if !ok {
		f.Capabilities.Truncated = true
		return false
	}
	f.ConfigDead = pci.Dead(config, f.VF != nil)
	f.Capabilities, _ = pci.ParseCapabilities(config) // Truncated says so
	readPower(f, a)
	return true
}

// rereadConfig is readConfig of what seems to be the same device as before.
func rereadConfig(f *device.Function, a *attributes, before pci.Capabilities) bool {
	header, switches, ok := readSpace(f, a, headerBytes, before.Switches)
	f.ConfigDead = ok && pci.Dead(header, f.VF != nil)
	f.Capabilities = before
	if readPower(f, a); !ok || f.ConfigDead {
		return ok
	}
	now, same := before.Reread(switches)
	if !same || len(header) > revisionOffset && header[revisionOffset] != f.Revision {
		// The address has another device by now, so nothing of the former one may be kept.
		a.err = errOtherDevice
		return true
	}
	f.Capabilities = now
	return true
}

// readPower reads whether a function that does not answer is without power. The kernel powers it up before it reads its
// registers (drivers/pci/pci-sysfs.c pci_read_config), so that one that still is did not come back.
func readPower(f *device.Function, a *attributes) {
	if f.ConfigDead {
		state, _ := a.text("power_state")
		f.D3cold = state == poweredDown
	}
}

// readSpace reads the beginning of configuration space, and what software can switch in these capabilities. Like
// driver_override it may be out of reach while an operation hangs in the kernel: then the function is Locked.
func readSpace(f *device.Function, a *attributes, n int, switches []pci.Capability) (config []byte, registers [][]byte, ok bool) {
	if !a.usable() {
		return nil, nil, false
	}
	offsets := make([]int, len(switches))
	for i, c := range switches {
		offsets[i] = c.Offset
	}
	config, registers, ok, err := a.dir.ConfigHead(f.Address, n, offsets, pci.SwitchBytes)
	if errors.Is(err, sysfs.ErrLocked) {
		f.Locked = true
		return nil, nil, false
	}
	a.err = err
	return config, registers, ok && err == nil
}

// configBytes is all of configuration space.
const configBytes = 4096

// headerBytes is the size of the configuration header, and revisionOffset where it has the revision.
const (
	headerBytes    = 64
	revisionOffset = 8
)
