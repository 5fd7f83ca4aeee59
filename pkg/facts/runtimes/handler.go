package runtimes

import (
	"path"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// Engines.
const (
	Containerd = "containerd"
	CRIO       = "CRI-O"
)

// Handler is the runtime handler that a RuntimeClass names: a runtime, and how it is called.
type Handler struct {
	Name string
	// Engine is Containerd or CRIO.
	Engine string
	// Type is the runtime_type: in containerd, "io.containerd.kata.v2"; in CRI-O, "vm" for a shim.
	Type Setting
	// Path is the path of the shim's or the runtime's binary, if a setting has it.
	Path Setting
	// Config is the path of the runtime's own configuration.
	Config Setting
	// Binary is the program that a runc shim calls instead of runc.
	Binary Setting
	// PodAnnotations and ContainerAnnotations are the patterns of the annotations that containerd passes to the runtime. CRI-O passes
	// all annotations: see [Handler.Passes].
	PodAnnotations, ContainerAnnotations Setting
	// PrivilegedWithoutHostDevices keeps the node's devices from privileged pods. AllDevicesAllowed nevertheless allows all devices in
	// their device cgroup.
	PrivilegedWithoutHostDevices, AllDevicesAllowed Setting
	// Sandboxer is "shim" if the shim itself is the sandboxer and gets the pod's whole configuration.
	Sandboxer Setting
}

// IsKata reports whether the handler runs Kata's shim: by the binary that a setting
// names, or else by the type, from which the binary's name is made
// (io.containerd.kata-gpu.v2: containerd-shim-kata-gpu-v2).
func (h *Handler) IsKata() bool {
	if binary := h.Path.Text(); binary != "" {
		return strings.HasPrefix(path.Base(binary), "containerd-shim-kata-")
	}
	name := strings.TrimPrefix(h.Type.Text(), "io.containerd.")
	return h.Engine == Containerd && (strings.HasPrefix(name, "kata.") || strings.HasPrefix(name, "kata-"))
}

// IsRust reports whether the shim is Kata's Rust runtime. Both runtimes have the same name, but Kata installs the Rust runtime
// below a directory runtime-rs.
func (h *Handler) IsRust() bool {
	return strings.Contains(h.Path.Text(), "/runtime-rs/")
}

// Passes reports whether annotations of pods that begin with the prefix reach the runtime in the sandbox's specification, and the
// setting that decides this.
func (h *Handler) Passes(prefix string) (Setting, bool) {
	if h.Engine == CRIO {
		// CRI-O copies all annotations of the pod into the specification. Its setting allowed_annotations lists only the annotations that
		// CRI-O itself acts on.
		return h.Type, true
	}
	for _, s := range []Setting{h.PodAnnotations, h.ContainerAnnotations} {
		for _, pattern := range s.List() {
			if reaches(pattern, prefix) {
				return s, true
			}
		}
	}
	// A shim that is its own sandboxer gets the pod's whole configuration with CreateSandbox, annotations included.
	return h.Sandboxer, h.Sandboxer.Text() == "shim"
}

// reaches reports whether a pattern of path.Match, by which containerd chooses annotations (GetPassthroughAnnotations), matches a
// key that begins with the prefix. A character class counts as if it contained every character.
func reaches(pattern, prefix string) bool {
	if prefix == "" {
		return true
	}
	if pattern == "" {
		return false
	}
	rest := pattern[1:]
	switch pattern[0] {
	case '*':
		// As in path.Match, wildcards match no slash.
		return reaches(rest, prefix) || prefix[0] != '/' && reaches(pattern, prefix[1:])
	case '?':
		return prefix[0] != '/' && reaches(rest, prefix[1:])
	case '[':
		_, rest, closed := strings.Cut(rest, "]")
		return closed && reaches(rest, prefix[1:])
	case '\\':
		return rest != "" && rest[0] == prefix[0] && reaches(rest[1:], prefix[1:])
	}
	return pattern[0] == prefix[0] && reaches(rest, prefix[1:])
}

// Facts returns the handler's type and path as evidence.
func (h *Handler) Facts() []facts.Fact {
	seen := []facts.Fact{h.Type.Fact()}
	if h.Path.IsSet() {
		seen = append(seen, h.Path.Fact())
	}
	return seen
}

// GuestKind returns the kind of CDI device, such as "nvidia.com/gpu", that Kata 4.1's agent looks for in the guest if a container
// has the function. The container gets the device nodes that the guest's CDI specification has for this kind. It is empty if Kata
// asks for no kind.
func (h *Handler) GuestKind(f *device.Function) string {
	if h.IsRust() {
		return rustGuestKind(f)
	}
	return goGuestKind(f)
}

// guestKey is what Kata compares: the vendor, and the first three digits of the class. So 030 matches a VGA or a 3D controller
// (0300, 0302), but not another display controller (0380) or an accelerator (1200).
type guestKey struct {
	vendor pci.ID
	class  pci.Class
}

func newGuestKey(f *device.Function) guestKey { return guestKey{f.Vendor, f.Class >> 12} }

// goGuestKind is virtcontainers' cdiDeviceKind.
func goGuestKind(f *device.Function) string {
	if newGuestKey(f) == (guestKey{pci.VendorNVIDIA, 0x030}) {
		return "nvidia.com/gpu"
	}
	return ""
}

// rustGuestKind is runtime-rs' CDI_DEVICE_KIND_TABLE.
func rustGuestKind(f *device.Function) string {
	switch newGuestKey(f) {
	case guestKey{pci.VendorNVIDIA, 0x030}:
		return "nvidia.com/gpu"
	case guestKey{pci.VendorIntel, 0x030}:
		return "intel.com/gpu"
	case guestKey{pci.VendorAMD, 0x030}:
		return "amd.com/gpu"
	case guestKey{pci.VendorMellanox, 0x020}:
		return "nvidia.com/nic"
	}
	return ""
}
