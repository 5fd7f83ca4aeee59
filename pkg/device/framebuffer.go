package device

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// FrameBuffer is memory with the frame buffer that the firmware set up. The kernel keeps the memory for its generic
// drivers until a driver for the display takes over. Until then, nobody else can reserve the BAR that contains the
// memory, not even VFIO: "BAR 0: can't reserve" (kernel/resource.c __request_region).
type FrameBuffer struct {
	// Name is the kernel's name for the memory: that of the driver ("simpledrm"), or of the firmware's memory
	// ("BOOTFB").
	Name string
	// Start and End are the first and the last address of the memory; both are 0 if they are unknown.
	Start, End uint64
	// Function is the function in whose BAR the memory is, or nil if that is unknown.
	Function *pci.Address
	// OfBootVGA says that Function is unknown, and that the frame buffer belongs to the boot VGA adapter.
	OfBootVGA bool
}

// FrameBufferDrivers are the platform drivers of frame buffers that the firmware set up. Their devices have the same names
// and a number (drivers/firmware/sysfb.c, drivers/firmware/google/framebuffer-coreboot.c).
func FrameBufferDrivers() []string {
	return []string{"simple-framebuffer", "efi-framebuffer", "vesa-framebuffer", "coreboot-framebuffer", "of-display"}
}

// isFirmwares reports whether memory with that name is the firmware's: it is the resource of the platform device, and
// stays reserved after an unbind of the driver.
func isFirmwares(name string) bool {
	device, _, _ := strings.Cut(name, ".")
	return name == "BOOTFB" || name == "Coreboot Framebuffer" || device == "platform-framebuffer" || slices.Contains(FrameBufferDrivers(), device)
}

// frameBufferDriver returns the platform driver that has memory by that name: drivers/video/fbdev and drivers/gpu/drm/sysfb
// (drivers/gpu/drm/tiny before Linux 6.15) of Linux 5.15 to 6.19. It is empty for other memory.
func frameBufferDriver(name string) string {
	switch name {
	case "simplefb", "simpledrm":
		return "simple-framebuffer"
	case "efifb", "efidrm":
		return "efi-framebuffer"
	case "vesafb", "vesadrm":
		return "vesa-framebuffer"
	case "corebootdrm":
		return "coreboot-framebuffer"
	case "offb", "ofdrm":
		return "of-display"
	}
	return ""
}

// ParseFrameBuffers returns the frame buffers in /proc/iomem. Without CAP_SYS_ADMIN all addresses there are 0, and only the
// nesting of the lines shows the owner of the memory: the name of a BAR's range is the function's address.
func ParseFrameBuffers(iomem string) []FrameBuffer {
	var found []FrameBuffer
	eachFrameBuffer(iomem, func(b FrameBuffer, _, _ string) { found = append(found, b) })
	return found
}

// ExcerptFrameBuffers returns the lines of /proc/iomem that [ParseFrameBuffers] needs. It leaves out the others,
// because they show where the kernel is in memory.
func ExcerptFrameBuffers(iomem string) string {
	var excerpt strings.Builder
	last := ""
	eachFrameBuffer(iomem, func(_ FrameBuffer, bar, line string) {
		if bar != last {
			excerpt.WriteString(bar)
			last = bar
		}
		excerpt.WriteString(line)
	})
	return excerpt.String()
}

// memoryRange is one line of /proc/iomem.
type memoryRange struct {
	indent     int
	start, end uint64
	name, line string
}

// deepest is the indentation from which on the kernel may not indent nested lines any further (MAX_IORES_LEVEL in
// kernel/resource.c: 5 levels, and 8 in newer kernels).
const deepest = 10

// eachFrameBuffer calls f for each frame buffer, with the line of the BAR around it, which is empty if there is none,
// and with its own line.
func eachFrameBuffer(iomem string, f func(b FrameBuffer, bar, line string)) {
	var around []memoryRange // BARs
	for line := range strings.Lines(iomem) {
		r, ok := parseRange(line)
		if !ok {
			continue
		}
		_, err := pci.ParseAddress(r.name)
		around = slices.DeleteFunc(around, func(o memoryRange) bool {
			return o.indent > r.indent || o.indent == r.indent && (r.indent < deepest || err == nil)
		})
		if err == nil {
			around = append(around, r)
		}
		if !isFirmwares(r.name) && frameBufferDriver(r.name) == "" {
			continue
		}
		b := FrameBuffer{Name: r.name, Start: r.start, End: r.end}
		bar := ""
		if n := len(around); n > 0 {
			a, _ := pci.ParseAddress(around[n-1].name)
			b.Function, bar = &a, around[n-1].line
		}
		f(b, bar, line)
	}
}

// parseRange reads "  2800000000-2801fa3fff : BOOTFB".
func parseRange(line string) (memoryRange, bool) {
	text := strings.TrimLeft(line, " ")
	ends, name, ok := strings.Cut(strings.TrimSpace(text), " : ")
	first, last, both := strings.Cut(ends, "-")
	start, err1 := strconv.ParseUint(first, 16, 64)
	end, err2 := strconv.ParseUint(last, 16, 64)
	return memoryRange{indent: len(line) - len(text), start: start, end: end, name: name, line: line}, ok && both && err1 == nil && err2 == nil
}

// in names the part of a function's memory that has the frame buffer; empty if it is elsewhere.
func (b *FrameBuffer) in(f *Function) string {
	memory := 0
	for _, bar := range f.BARs {
		if b.End > 0 && bar.Overlaps(b.Start, b.End) {
			return fmt.Sprintf("its BAR %d", bar.Index)
		}
		if !bar.IO {
			memory++
		}
	}
	switch {
	case b.Function != nil && *b.Function != f.Address, b.Function == nil && (!b.OfBootVGA || !f.BootVGA):
		return ""
	case memory == 1:
		i := slices.IndexFunc(f.BARs, func(bar BAR) bool { return !bar.IO })
		return fmt.Sprintf("its BAR %d", f.BARs[i].Index)
	}
	return "one of its BARs"
}

// FrameBufferUses returns the parts of a function that frame buffers use.
func FrameBufferUses(f *Function, buffers []FrameBuffer) []Use {
	var uses []Use
	for i := range buffers {
		where := buffers[i].in(f)
		if where == "" {
			continue
		}
		same := slices.IndexFunc(uses, func(u Use) bool { return u.Detail == where })
		if same < 0 {
			uses = append(uses, Use{Kind: UseConsole, Name: buffers[i].Name, Detail: where})
			continue
		}
		uses[same].Name += frameBufferSeparator + buffers[i].Name
	}
	return uses
}

// frameBufferSeparator is between the names of one [Use].
const frameBufferSeparator = ", "

// frameBufferFix returns the steps to free the memory with these names. If a platform device has no memory of its own,
// an unbind of its driver is enough. Other memory is freed only when the device is removed, and only a display driver
// removes it (drivers/video/aperture.c). So the boot must not create such a device.
func frameBufferFix(names string) string {
	boot := "boot with `initcall_blacklist=sysfb_init`, or make another GPU the first display in the firmware setup"
	for name := range strings.SplitSeq(names, frameBufferSeparator) {
		driver := frameBufferDriver(name)
		if device, _, numbered := strings.Cut(name, "."); numbered {
			driver = device
		}
		if driver != "" {
			return fmt.Sprintf("unbind its driver: `echo %s.0 > /sys/bus/platform/drivers/%[1]s/unbind`. If /proc/iomem still lists a frame buffer then, %s", driver, boot)
		}
	}
	return boot
}
