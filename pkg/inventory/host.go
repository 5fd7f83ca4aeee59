package inventory

import (
	"bytes"
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"
	"unique"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/fabric"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// readHost reads the facts of the node as a whole. Facts that the tree lacks are absent.
func readHost(fsys *sysfs.FS) (device.Host, error) {
	h := device.Host{}
	r := &hostReader{fs: fsys}
	h.BootID = r.text("proc/sys/kernel/random/boot_id")
	h.Kernel = r.text("proc/sys/kernel/osrelease")
	h.Machine = device.DetectMachine(r.hint)
	h.IOMMUs = r.list("sys/class/iommu")
	h.IRQChips = r.irqChips()
	h.VFIOAliases = r.aliases(h.Kernel)
	r.refresh(&h)
	return h, r.err
}

// refreshHost returns prev with the facts read again that may change without a reboot and are cheap to read: what
// is loaded, and how it is set.
func refreshHost(fsys *sysfs.FS, prev device.Host) (device.Host, error) {
	r := &hostReader{fs: fsys}
	r.refresh(&prev)
	return prev, r.err
}

// hostReader reads files that may be absent and keeps the first error.
type hostReader struct {
	fs  *sysfs.FS
	err error
}

func (r *hostReader) refresh(h *device.Host) {
	h.UnsafeInterrupts = nil
	for _, module := range []string{"vfio_iommu_type1", "iommufd"} {
		parameter := "module/" + module + "/parameters/allow_unsafe_interrupts"
		if isOn(r.text("sys/" + parameter)) {
			h.UnsafeInterrupts = append(h.UnsafeInterrupts, parameter)
		}
	}
	h.NoIOMMUMode = isOn(r.text("sys/module/vfio/parameters/enable_unsafe_noiommu_mode"))
	h.VFIODenylistOff = isOn(r.text("sys/module/vfio_pci/parameters/disable_denylist"))
	h.NVIDIAModeset = nvidiaModeset(r.fs)
	h.IOMMUFD = r.exists("dev/iommu")
	h.Drivers = r.list("sys/bus/pci/drivers")
	h.Fabric = r.fabric()
}

// fabric reads the files about the node's fabric that the plugin and bootstrap have written. Most nodes have none, and then it reads
// nothing more. Only root can read the files: for any other user the node has no fabric.
func (r *hostReader) fabric() device.FabricFacts {
	var f device.FabricFacts
	f.State = r.own(fabric.StateFile, &f)
	f.Modules = r.own(fabric.MapFile, &f)
	if f == (device.FabricFacts{}) {
		return f
	}
	f.Product = r.text("sys/class/dmi/id/product_name")
	f.Driver = r.text(fabric.VersionFile)
	return f
}

// own returns the content of one of kata-vfio's files; empty if it does not exist, or if this user may not read it. Any other error is
// recorded and fails no scan: it affects only the GPUs of the fabric.
func (r *hostReader) own(file string, f *device.FabricFacts) string {
	text, err := readOptional(r.fs, file)
	if err != nil && !errors.Is(err, fs.ErrPermission) {
		f.Unread = err.Error()
	}
	return text
}

// nvidiaModeset reads a parameter that root alone may read. Anybody else sees its effect:
// with modeset, and only with it, nvidia_drm makes connectors for GPUs with a display
// engine. A copy that has neither counts as off.
func nvidiaModeset(fsys *sysfs.FS) bool {
	text, err := readOptional(fsys, "sys/module/nvidia_drm/parameters/modeset")
	if errors.Is(err, fs.ErrPermission) {
		return nvidiaHasConnectors(fsys)
	}
	return err == nil && isOn(text)
}

// nvidiaHasConnectors reports whether NVIDIA's driver has a connector ("card1-DP-1").
func nvidiaHasConnectors(fsys *sysfs.FS) bool {
	const dir = "sys/class/drm"
	names, err := fsys.ReadDir(dir)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(names, func(name string) bool {
		if !strings.Contains(name, "-") {
			return false
		}
		place, err := fsys.ReadLink(path.Join(dir, name)) // .../0000:3b:00.0/drm/card1/card1-DP-1
		if err != nil {
			return false
		}
		function := path.Base(path.Dir(path.Dir(path.Dir(place))))
		driver, err := fsys.ReadLink(path.Join(sysfs.Devices, function, "driver"))
		return err == nil && device.WaitsForUsers(path.Base(driver))
	})
}

func (r *hostReader) text(file string) string {
	if r.err != nil {
		return ""
	}
	text, err := readOptional(r.fs, file)
	r.err = err
	return text
}

// hint returns the beginning of a file that only improves messages for operators, so that no scan fails because of it. /proc/cpuinfo has
// kilobytes for each processor, and the first processor is enough.
func (r *hostReader) hint(file string) string {
	const enough = 8 << 10
	data, err := r.fs.ReadAtMost(file, enough)
	if err != nil {
		return ""
	}
	return string(data)
}

func (r *hostReader) list(dir string) []string {
	if r.err != nil {
		return nil
	}
	names, err := r.fs.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.err = err
	}
	return names
}

func (r *hostReader) exists(file string) bool {
	if r.err != nil {
		return false
	}
	there, err := r.fs.Exists(file)
	r.err = err
	return there
}

// irqChips returns the names of the chips of MSI interrupts of PCI functions.
func (r *hostReader) irqChips() []string {
	var chips []string
	for _, irq := range r.list("sys/kernel/irq") {
		chips = append(chips, msiChip(r.text(path.Join("sys/kernel/irq", irq, "chip_name")))...)
		slices.Sort(chips)
		chips = slices.Compact(chips)
	}
	if len(chips) > 0 {
		return chips
	}
	// The kernel has /sys/kernel/irq only with CONFIG_SPARSE_IRQ (kernel/irq/irqdesc.c).
	for line := range strings.Lines(r.text("proc/interrupts")) {
		if strings.Contains(line, hyperVChip) {
			chips = append(chips, hyperVChip)
		}
		for word := range strings.FieldsSeq(line) {
			chips = append(chips, msiChip(word)...)
		}
	}
	return sorted(chips)
}

// hyperVChip is the chip of PCI MSI interrupts of Hyper-V's guests (drivers/pci/controller/pci-hyperv.c). It is the only name with spaces.
const hyperVChip = "Hyper-V PCIe MSI"

// msiChip returns the kind of a chip of PCI MSI interrupts, none for any other. The kernel makes a chip for each function and appends the
// function's address: "IR-PCI-MSIX-0000:3b:00.0". Some chips of older kernels serve all functions, and have names of their own. Other
// chips, such as DMAR-MSI, the IOMMU's own, are never remapped and prove nothing.
func msiChip(name string) []string {
	kind, rest, ofFunction := strings.Cut(name, "PCI-MSI")
	if ofFunction {
		x, _, _ := strings.Cut(rest, "-")
		return []string{unique.Make(kind + "PCI-MSI" + x).Value()}
	}
	// "VMD-MSI" is of drivers/pci/controller/vmd.c, and "ITS-MSI" of drivers/irqchip/irq-gic-v3-its-pci-msi.c.
	if name == "VMD-MSI" || name == "ITS-MSI" || name == hyperVChip {
		return []string{unique.Make(name).Value()}
	}
	return nil
}

// aliases returns the VFIO aliases of the running kernel's modules.
func (r *hostReader) aliases(kernel string) []device.Alias {
	if r.err != nil || kernel == "" {
		return nil
	}
	// A kernel can have VFIO built in, and no modules.
	data, err := r.fs.ReadFile(path.Join("lib/modules", kernel, "modules.alias"))
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			r.err = err
		}
		return nil
	}
	aliases, err := device.ParseAliases(bytes.NewReader(data))
	r.err = err
	return aliases
}

// console says on what the kernel's virtual console is shown.
type console struct {
	// text is set when it is VGA text mode, which the boot VGA adapter has.
	text bool
	// frames is set if the console is on a frame buffer: one of the functions in owners or, if firmware is set, one that the firmware set
	// up (efifb, simpledrm) in the memory of the boot VGA adapter, whichever function that is.
	frames   bool
	firmware bool
	owners   map[pci.Address]bool
}

// readConsole reads what the virtual console is bound to: "(S) VGA+", "(M)
// frame buffer device" or "(S) dummy device" (drivers/tty/vt/vt.c show_name).
func readConsole(fsys *sysfs.FS) (*console, error) {
	consoles, err := members(fsys, "sys/class/vtconsole")
	if err != nil {
		return nil, err
	}
	c := &console{owners: map[pci.Address]bool{}}
	for _, m := range consoles {
		dir := path.Join("sys/class/vtconsole", m.name)
		bound, err1 := readOptional(fsys, dir+"/bind")
		name, err2 := readOptional(fsys, dir+"/name")
		if err := firstError(err1, err2); err != nil {
			return nil, err
		}
		c.text = c.text || isOn(bound) && strings.Contains(name, "VGA")
		c.frames = c.frames || isOn(bound) && strings.Contains(name, "frame buffer")
	}
	buffers, err := members(fsys, "sys/class/graphics")
	if err != nil {
		return nil, err
	}
	for _, m := range buffers {
		a, ok := lastAddress(m.where)
		// fbcon is the console's own device in this class, not a frame buffer (drivers/video/fbdev/core/fbcon.c).
		switch {
		case !strings.HasPrefix(m.name, "fb") || m.name == "fbcon":
		case ok:
			c.owners[a] = true
		default:
			c.firmware = true
		}
	}
	return c, nil
}

// uses returns the console as a use of f if the boot console is on f. Only the adapter on which the firmware showed its messages counts:
// the kernel also puts its console on any other display, where it is not needed.
func (c *console) uses(f *device.Function) []device.Use {
	shown := c.text || c.frames && (c.firmware || c.owners[f.Address])
	if !f.BootVGA || !shown {
		return nil
	}
	name := "vga"
	if len(f.Children.DRM) > 0 {
		name = f.Children.DRM[0]
	}
	return []device.Use{{Kind: device.UseConsole, Name: name}}
}
