package lab

import (
	"io"
	"slices"
	"strings"
	"time"

	"github.com/kata-vfio/kata-vfio/test/lab/image"
	"github.com/kata-vfio/kata-vfio/test/lab/topology"
)

// Config says what machine to boot. The zero value is the machine that most tests want.
type Config struct {
	// Topology is what is plugged in; nil means topology.Standard().
	Topology *topology.Topology
	// VFIO chooses the VFIO modules: image.IOMMUFD (also when empty) or image.Legacy.
	VFIO string
	// Drivers are the kernel modules to load at boot, as udev would on a node; nil means DefaultDrivers().
	Drivers []string
	// KernelArgs are added to the kernel's command line, and win over the machine's own.
	KernelArgs []string
	// WithoutIOMMU switches the IOMMU off on the kernel's command line: there are no IOMMU groups then.
	WithoutIOMMU bool
	// MemoryMiB is the machine's memory; 0 means 4096. Half of it is on each NUMA node.
	MemoryMiB int
	// CPUs is the number of processors; 0 means 2. Half of them are on each NUMA node, a single one on the first.
	CPUs int
	// Forwards lead from ports of this host's loopback to ports of the machine.
	Forwards []Forward
	// State is a directory of this host. Its content is what /var/lib has at first; empty for nothing.
	State string
	// Silence is the time after which a machine that shows no sign of life counts as hung and is ended; 0 means two minutes.
	Silence time.Duration
	// Progress takes lines for the person who waits; nil drops them.
	Progress io.Writer
}

// Forward leads from a TCP port of 127.0.0.1 on this host, which must be free, to a port of the machine.
type Forward struct{ Host, Machine int }

// DefaultDrivers are the modules that a node with the standard topology has loaded; VFIO's come with each variant.
func DefaultDrivers() []string {
	return []string{"igb", "igbvf", "e1000", "e1000e", "nvme", "bochs", "virtio-gpu", "snd-hda-intel", "kvm-amd"}
}

func (c Config) withDefaults() Config {
	if c.Topology == nil {
		standard := topology.Standard()
		c.Topology = &standard
	}
	if c.VFIO == "" {
		c.VFIO = image.IOMMUFD
	}
	if c.Drivers == nil {
		c.Drivers = DefaultDrivers()
	}
	if c.MemoryMiB == 0 {
		c.MemoryMiB = 4096
	}
	if c.CPUs == 0 {
		c.CPUs = 2
	}
	if c.Silence == 0 {
		c.Silence = usualSilence
	}
	if c.Progress == nil {
		c.Progress = io.Discard
	}
	return c
}

// modules are the modules to load at boot, VFIO's included.
func (c Config) modules() []string {
	vfio := []string{"vfio-pci", "vfio_iommu_type1"}
	if c.VFIO == image.IOMMUFD {
		vfio = append(vfio, "iommufd")
	}
	return slices.Concat(c.Drivers, vfio)
}

// kernelLine is the kernel's command line. A panic restarts the machine at once, which ends QEMU: the outside sees
// it without waiting.
func (c Config) kernelLine() string {
	words := []string{
		"console=ttyS0", "quiet", "panic=-1", "mitigations=off",
		// On a busy host, the kernel otherwise sometimes misjudges its timers, and then loses one until the next boot.
		"no_timer_check", "tsc=reliable",
		// If it loses one nevertheless, boot learns that from this message, after 10 seconds instead of 21.
		"rcupdate.rcu_cpu_stall_timeout=10",
		// The watch ends a hung machine by an NMI: the panic says where it hangs.
		"unknown_nmi_panic",
		"lab.vfio=" + c.VFIO, "lab.modules=" + strings.Join(c.modules(), ","),
	}
	iommu := "intel_iommu=on"
	if c.WithoutIOMMU {
		iommu = "intel_iommu=off" // Debian's kernel has it on unless told
	}
	words = append(words, iommu)
	return strings.Join(append(words, c.KernelArgs...), " ")
}
