package device

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"
)

// GenericVFIO is the VFIO driver that serves every function.
const GenericVFIO = "vfio-pci"

// IsVFIO reports whether a kernel driver hands its function to user space
// through VFIO: vfio-pci and its variants (mlx5_vfio_pci, nvgrace_gpu_vfio_pci,
// xe_vfio_pci, ...), which by the kernel's convention end in "vfio_pci".
func IsVFIO(driver string) bool {
	return strings.HasSuffix(normalDriver(driver), "vfio_pci")
}

// SameDriver compares a driver or module name with another as modprobe does:
// "-" and "_" are one.
func SameDriver(a, b string) bool { return normalDriver(a) == normalDriver(b) }

func normalDriver(name string) string { return strings.ReplaceAll(name, "-", "_") }

// Driver returns the name under which a module's PCI driver is registered, or will be. If the module is loaded, it is
// the kernel's name. Otherwise it is derived from the module's name, which most VFIO variants use (KBUILD_MODNAME).
// vfio_pci registers as "vfio-pci" (drivers/vfio/pci/vfio_pci.c), and others may use any name: xe_vfio_pci registers as
// "xe-vfio-pci".
func (h *Host) Driver(module string) (name string, loaded bool) {
	for _, d := range h.Drivers {
		if SameDriver(d, module) {
			return d, true
		}
	}
	if SameDriver(module, GenericVFIO) {
		return GenericVFIO, false
	}
	return normalDriver(module), false
}

// aliasPrefix begins the aliases of drivers that match by driver_override
// only and serve user space through VFIO (PCI_DRIVER_OVERRIDE_DEVICE_VFIO,
// scripts/mod/file2alias.c).
const aliasPrefix = "vfio_pci:"

// ParseAliases reads the "vfio_pci:" lines of a modules.alias file, in the file's order: "alias
// vfio_pci:v000015B3d0000101Esv*sd*bc*sc*i* mlx5_vfio_pci". It ignores all other lines.
func ParseAliases(r io.Reader) ([]Alias, error) {
	var aliases []Alias
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) == 3 && fields[0] == "alias" && strings.HasPrefix(fields[1], aliasPrefix) {
			aliases = append(aliases, Alias{Pattern: fields[1], Module: fields[2]})
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read modules.alias: %w", err)
	}
	return aliases, nil
}

// ModuleFor returns the module that a modules.alias file names for a function with the modalias "pci:v...": the most
// specific one, or "" if there is none. It ignores VFIO's modules.
func ModuleFor(r io.Reader, modalias string) (string, error) {
	module, best := "", -1
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) != 3 || fields[0] != "alias" || !strings.HasPrefix(fields[1], "pci:") {
			continue
		}
		a := Alias{Pattern: fields[1], Module: fields[2]}
		if score := a.Specificity(); score > best && a.Match(modalias) {
			module, best = a.Module, score
		}
	}
	if err := lines.Err(); err != nil {
		return "", fmt.Errorf("read modules.alias: %w", err)
	}
	return module, nil
}

// Match reports whether the alias matches a function's modalias, "pci:v...". It ignores the prefix before the first
// colon. "*" matches any text, as in modprobe's fnmatch.
func (a Alias) Match(modalias string) bool {
	_, pattern, ok := strings.Cut(a.Pattern, ":")
	_, text, ok2 := strings.Cut(modalias, ":")
	return ok && ok2 && matchStars(pattern, text)
}

// Specificity ranks patterns that match the same function: the more literal characters, the higher.
func (a Alias) Specificity() int {
	return len(a.Pattern) - strings.Count(a.Pattern, "*")
}

// matchStars matches text against a pattern in which "*" matches any text.
func matchStars(pattern, text string) bool {
	parts := strings.Split(pattern, "*")
	text, ok := strings.CutPrefix(text, parts[0])
	if !ok || len(parts) == 1 {
		return ok && text == ""
	}
	last := parts[len(parts)-1]
	for _, part := range parts[1 : len(parts)-1] {
		_, after, found := strings.Cut(text, part)
		if !found {
			return false
		}
		text = after
	}
	return strings.HasSuffix(text, last)
}

// WaitsForUsers reports whether the unbind from a host driver waits in the kernel until
// nothing uses the function, as NVIDIA's does: no signal and no time-out end that wait.
func WaitsForUsers(driver string) bool { return driver == "nvidia" }

// NeverLetsGo says, as the end of a sentence, what to do about an unbind from such a
// driver that hangs.
const NeverLetsGo = "stop every process that has a /dev/nvidia* node open; driver versions 595 and later do not finish the unbind even then " +
	"(https://github.com/NVIDIA/open-gpu-kernel-modules/issues/1119): restart the node"

// SharedNodes returns the nodes below /dev through which a process may use any function of the driver. A name that ends
// in "/" means all nodes in that directory. The driver does not report which functions a process uses through them
// (NV_ESC_ATTACH_GPUS_TO_FD takes a GPU through nvidiactl alone, and uvm and modeset take GPUs in the kernel).
func SharedNodes(driver string) []string {
	if !WaitsForUsers(driver) {
		return nil
	}
	return nvidiaShared()
}

// IsShared reports whether a node is shared by all functions of its driver; see [SharedNodes].
func IsShared(node string) bool { return slices.Contains(nvidiaShared(), node) }

func nvidiaShared() []string {
	return []string{"/dev/nvidia-caps/", "/dev/nvidia-modeset", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidiactl"}
}
