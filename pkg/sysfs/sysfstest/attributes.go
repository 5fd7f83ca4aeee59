package sysfstest

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// An attribute is one file of a function's directory.
type attribute struct {
	name    string
	content string
	mode    fs.FileMode
}

// attributes returns the function's files as the kernel makes them when the
// function appears (drivers/pci/pci-sysfs.c, iov.c, pcie/aer.c).
func (f *function) attributes() []attribute {
	all := []attribute{
		{"vendor", "0x" + f.Vendor.String() + "\n", readOnly},
		{"device", "0x" + f.Device.String() + "\n", readOnly},
		{"subsystem_vendor", "0x" + f.SubVendor.String() + "\n", readOnly},
		{"subsystem_device", "0x" + f.SubDevice.String() + "\n", readOnly},
		{"class", "0x" + f.Class.String() + "\n", readOnly},
		{"revision", fmt.Sprintf("0x%02x\n", f.Revision), readOnly},
		{"modalias", f.modalias() + "\n", readOnly},
		{"uevent", f.uevent(), readWrite},
		{"resource", f.resource(), readOnly},
		{"irq", "0\n", readOnly},
		{"numa_node", fmt.Sprintln(f.root.NUMA), readWrite},
		{"power_state", "D0\n", readOnly},
		{"driver_override", "(null)\n", readWrite},
		{"config", string(f.config), readWrite},
		{"remove", "", 0o220},
	}
	all = append(all, f.linkAttributes()...)
	all = append(all, f.resetAttributes()...)
	all = append(all, f.sriovAttributes()...)
	all = append(all, f.errorAttributes()...)
	if f.Class.Sub() == pci.ClassVGA {
		all = append(all, attribute{"boot_vga", digit(f.BootVGA), readOnly})
	}
	if b := f.bridge; b != nil {
		all = append(all,
			attribute{"secondary_bus_number", fmt.Sprintln(b.secondary), readOnly},
			attribute{"subordinate_bus_number", fmt.Sprintln(b.subordinate), readOnly})
	}
	return all
}

// linkAttributes exist for PCI Express functions.
func (f *function) linkAttributes() []attribute {
	if f.Capabilities.Express == nil {
		return nil
	}
	link := f.Link
	if link == nil {
		link = &device.Link{Speed: "Unknown", MaxSpeed: "Unknown"}
	}
	return []attribute{
		{"current_link_speed", link.Speed + "\n", readOnly},
		{"current_link_width", fmt.Sprintln(link.Width), readOnly},
		{"max_link_speed", link.MaxSpeed + "\n", readOnly},
		{"max_link_width", fmt.Sprintln(link.MaxWidth), readOnly},
	}
}

// resetAttributes exist for functions that can be reset.
func (f *function) resetAttributes() []attribute {
	if len(f.ResetMethods) == 0 {
		return nil
	}
	return []attribute{
		{"reset", "", writeOnly},
		{"reset_method", strings.Join(f.ResetMethods, " ") + "\n", readWrite},
	}
}

// sriovAttributes exist for PFs.
func (f *function) sriovAttributes() []attribute {
	s := f.Capabilities.SRIOV
	if s == nil || s.TotalVFs == 0 {
		return nil
	}
	offset, stride := f.spacing()
	return []attribute{
		{"sriov_totalvfs", fmt.Sprintln(s.TotalVFs), readOnly},
		{"sriov_numvfs", "0\n", readWrite},
		{"sriov_offset", fmt.Sprintln(offset), readOnly},
		{"sriov_stride", fmt.Sprintln(stride), readOnly},
		{"sriov_vf_device", s.VFDevice.String() + "\n", readOnly},
		{"sriov_drivers_autoprobe", "1\n", readWrite},
	}
}

// errorAttributes exist for functions with advanced error reporting.
func (f *function) errorAttributes() []attribute {
	if !f.Capabilities.AER {
		return nil
	}
	return []attribute{
		{"aer_dev_correctable", "TOTAL_ERR_COR 0\n", readOnly},
		{"aer_dev_fatal", "TOTAL_ERR_FATAL 0\n", readOnly},
		{"aer_dev_nonfatal", "TOTAL_ERR_NONFATAL 0\n", readOnly},
	}
}

// modalias returns the string that drivers' aliases match.
func (f *function) modalias() string {
	return fmt.Sprintf("pci:v%08Xd%08Xsv%08Xsd%08Xbc%02Xsc%02Xi%02X",
		uint16(f.Vendor), uint16(f.Device), uint16(f.SubVendor), uint16(f.SubDevice),
		f.Class.Base(), uint8(f.Class.Sub()), uint8(f.Class))
}

// uevent returns the function's uevent variables; the first is there while it
// has a driver.
func (f *function) uevent() string {
	text := fmt.Sprintf("PCI_CLASS=%X\nPCI_ID=%04X:%04X\nPCI_SUBSYS_ID=%04X:%04X\nPCI_SLOT_NAME=%s\nMODALIAS=%s\n",
		uint32(f.Class), uint16(f.Vendor), uint16(f.Device), uint16(f.SubVendor), uint16(f.SubDevice), f.Address, f.modalias())
	if f.driver != nil {
		text = "DRIVER=" + f.driver.name + "\n" + text
	}
	return text
}

// Resource flags (include/linux/ioport.h).
const (
	flagsIO       = 0x40101
	flagsMem      = 0x40200
	flagPrefetch  = 0x2008
	flag64        = 0x100004
	resourceLines = 13 // six BARs, the ROM, six VF BARs
	bridgeLines   = 17 // and four windows
)

// resource returns the table of the function's address ranges. The addresses
// are made up: they only have to be aligned to their size.
func (f *function) resource() string {
	n := resourceLines
	if f.bridge != nil {
		n = bridgeLines
	}
	rows := make([]string, n)
	for i := range rows {
		rows[i] = fmt.Sprintf("0x%016x 0x%016x 0x%016x", 0, 0, 0)
	}
	for _, b := range f.BARs {
		start, flags := f.place(b)
		rows[b.Index] = fmt.Sprintf("0x%016x 0x%016x 0x%016x", start, start+b.Size-1, flags)
	}
	return lines(rows...)
}

// place returns where a BAR was mapped, and its resource flags.
func (f *function) place(b device.BAR) (start, flags uint64) {
	if b.IO {
		return 0x1000 + uint64(f.Address.Device)<<8, flagsIO
	}
	flags = flagsMem
	start = 0x8000_0000
	if b.Prefetchable {
		flags |= flagPrefetch
	}
	if b.Is64 {
		flags |= flag64
		start = 0x20_0000_0000 + uint64(f.Address.Bus)<<40
	}
	return start + uint64(b.Index)*max(b.Size, 0x1000)&^(b.Size-1), flags
}

func digit(on bool) string {
	if on {
		return "1\n"
	}
	return "0\n"
}

// LockingReads names the attributes that the kernel shows under the device lock, so
// that reading them blocks while an unbind, a probe or a reset hangs.
type LockingReads []string

// OlderKernel is how Linux reads until driver_override became an attribute of all
// devices: under the device lock (drivers/pci/pci-sysfs.c driver_override_show).
func OlderKernel() LockingReads { return LockingReads{"driver_override"} }

// MiddleKernel is v5.5 to v6.8, where sriov_numvfs is shown under the device lock too
// (drivers/pci/iov.c sriov_numvfs_show).
func MiddleKernel() LockingReads { return LockingReads{"driver_override", "sriov_numvfs"} }

// NewerKernel shows all of them without it: driver_override has a spinlock of its
// own (drivers/base/bus.c driver_override_show), also in stable kernels since 2026.
func NewerKernel() LockingReads { return nil }

// patience is how long package sysfs waits for a device lock.
const patience = 2 * time.Second

// Reading returns fsys, which has the node's root, with reads that block as the
// kernel's do: while a function's device lock is held, reading one of its attributes
// takes the two seconds that package sysfs waits, and ends with [sysfs.ErrLocked]. On
// every kernel the configuration space is read like that while a reset is under way.
func (k *Kernel) Reading(fsys *sysfs.FS, locking LockingReads) *sysfs.FS {
	return fsys.WithCopy(&reader{k: k, locking: locking})
}

// A reader answers reads in the place of the tree where they would block.
type reader struct {
	k       *Kernel
	locking LockingReads
}

// Answer implements [sysfs.Copy].
func (r *reader) Answer(op sysfs.Op, name string) error {
	dir, attribute := path.Split(name)
	if op != sysfs.OpRead {
		return nil
	}
	a, err := pci.ParseAddress(path.Base(dir))
	if err != nil || !r.blocks(a, attribute) {
		return nil
	}
	<-time.After(patience)
	if r.blocks(a, attribute) {
		return sysfs.ErrLocked
	}
	return nil
}

// blocks reports whether reading the attribute would block now.
func (r *reader) blocks(a pci.Address, attribute string) bool {
	if attribute == "config" {
		return r.k.isResetting(a)
	}
	return slices.Contains(r.locking, attribute) && r.k.isLocked(a)
}

// HasNodeInodes implements [sysfs.NodeInodes].
func (r *reader) HasNodeInodes() {}

// Names implements [sysfs.Copy].
func (r *reader) Names(name string) ([]string, error) {
	entries, err := os.ReadDir(r.k.Path(name))
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, err
}

// isLocked reports whether the function's device lock is held.
func (k *Kernel) isLocked(a pci.Address) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	f := k.functions[a]
	return f != nil && len(f.lock) > 0
}

// isResetting reports whether a reset blocks the function's configuration space.
func (k *Kernel) isResetting(a pci.Address) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	f := k.functions[a]
	return f != nil && f.resets > 0
}
