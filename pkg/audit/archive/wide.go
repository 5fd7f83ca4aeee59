package archive

import (
	"context"
	"fmt"
	"path"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/kernelargs"
)

// maxWide is the number of bytes that are read from a file that no check of this version reads, and maxMatches the
// number of files that one pattern may match.
const (
	maxWide    = 1 << 20
	maxMatches = 1 << 17
)

// Wide reads data that later versions may judge. Together with the reads of this version's checks, it is the content of
// an archive. Unreadable files are recorded with the reason. None of these reads has an effect or waits for a device.
func (r *Recorder) Wide(ctx context.Context) error {
	w := wide{fs: r.node.WithTap(r.saw), recorder: r, lists: map[string][]string{}}
	for _, pattern := range Patterns() {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("read the node's files: %w", err)
		}
		w.read(pattern)
	}
	return nil
}

// Patterns match the files that an archive has regardless of the checks, by path.Match, element by element.
func Patterns() []string {
	var all []string
	for _, attribute := range functionAttributes() {
		all = append(all, sysfs.Devices+"/*/"+attribute)
	}
	all = append(all,
		"proc/version", "proc/cpuinfo", "proc/modules", "proc/swaps", "proc/filesystems",
		"proc/sys/kernel/*", "proc/sys/vm/*", "proc/sys/net/core/bpf_*", "proc/sys/net/ipv4/ip_forward",
		"sys/bus/pci/devices/*/p2pmem/*", "sys/bus/pci/devices/*/power/control", "sys/bus/pci/devices/*/power/runtime_status",
		"sys/bus/pci/devices/*/msi_irqs/*", "sys/bus/thunderbolt/devices/*/*",
		"sys/kernel/iommu_groups/*/*", "sys/kernel/irq/*/*", "sys/kernel/security/*", "sys/kernel/mm/ksm/*",
		"sys/kernel/mm/transparent_hugepage/enabled", "sys/kernel/livepatch/*/enabled",
		"sys/class/iommu/*/*/*", "sys/class/net/*/*", "sys/class/net/*/statistics/*", "sys/class/infiniband/*/*",
		"sys/class/dmi/id/sys_vendor", "sys/class/dmi/id/product_name", "sys/class/dmi/id/bios_*", "sys/class/dmi/id/board_name",
		"sys/class/dmi/id/board_vendor", "sys/class/dmi/id/chassis_type", "sys/hypervisor/type", "sys/hypervisor/properties/features", "proc/xen/capabilities",
		"sys/devices/system/cpu/*", "sys/devices/system/cpu/vulnerabilities/*", "sys/devices/system/cpu/smt/*",
		"sys/devices/system/cpu/*/microcode/version", "sys/devices/system/node/*", "sys/devices/system/edac/mc/*/*",
		"sys/devices/system/clocksource/*/*",
		"sys/firmware/acpi/tables/DMAR", "sys/firmware/acpi/tables/IVRS", "sys/firmware/acpi/tables/IORT",
		"sys/firmware/efi/efivars/SecureBoot-*", "sys/firmware/efi/efivars/SetupMode-*",
		"etc/modules", "etc/modules-load.d/*",
		"etc/os-release", "usr/lib/os-release", "etc/sysctl.conf", "etc/sysctl.d/*", "usr/lib/sysctl.d/*", "usr/local/lib/sysctl.d/*", "run/sysctl.d/*",
		"etc/udev/rules.d/*", "run/udev/rules.d/*", "usr/local/lib/udev/rules.d/*", "usr/lib/udev/rules.d/*vfio*", "etc/driverctl.d/*",
		"etc/cdi/*", "var/run/cdi/*", "run/cdi/*", "etc/containerd/*.toml", "etc/containerd/*/*.toml", "etc/crio/*", "etc/crio/*/*",
		"etc/kata-containers/*", "etc/kata-containers/*/*", "opt/kata/share/defaults/kata-containers/*",
		"opt/kata/share/defaults/kata-containers/*/*", "usr/share/defaults/kata-containers/*", "usr/share/nvidia/nvswitch/*.cfg",
		"etc/kata-vfio/*", "etc/kata-vfio/*/*", "etc/kubernetes/kubelet*", "var/lib/kubelet/config.yaml",
		journal.DefaultDir+"/*", journal.DefaultDir+"/unclean/*", journal.DefaultDir+"/drained/*",
		journal.DefaultDir+"/unsanitized/*", journal.DefaultDir+"/sanitized/*", journal.DefaultDir+"/fatal-errors/*", "run/kata-vfio/*.json",
		path.Join(path.Dir(journal.DefaultDir), "fabric/*"),
	)
	all = append(all, kernelargs.Patterns()...)
	for _, module := range []string{"vfio*", "iommu*", "kvm*", "module", "nvidia*", "mlx5_core", "nvme*", "amdgpu", "pcie_*"} {
		all = append(all, "sys/module/"+module+"/parameters/*")
	}
	return all
}

// functionAttributes returns the attributes that the kernel remembers for a function, or reads from its header. Reading other
// attributes can have effects (rom), take long (vpd), map the device's memory (resource0) or take its lock.
func functionAttributes() []string {
	return []string{
		"aer_dev_*", "aer_rootport_*", "broken_parity_status", "d3cold_allowed", "dma_mask_bits", "enable", "irq", "label", "index",
		"class", "device", "subsystem_device", "subsystem_vendor", "vendor",
		"local_cpulist", "msi_bus", "numa_node", "power_state", "removable", "reset_method", "resource", "secondary_bus_number",
		"subordinate_bus_number", "sriov_offset", "sriov_stride", "sriov_totalvfs", "sriov_vf_device", "sriov_drivers_autoprobe", "uevent",
		"xgmi_*",
	}
}

// private reports whether a matching file is a key, which must stay on the node.
func private(name string) bool {
	base := path.Base(name)
	return strings.Contains(base, "key") || strings.HasSuffix(base, ".pem") || strings.Contains(base, "random") || strings.HasSuffix(base, ".secret")
}

// wide reads files by patterns.
type wide struct {
	fs       *sysfs.FS
	recorder *Recorder
	lists    map[string][]string
}

func (w *wide) read(pattern string) {
	found := []string{""}
	for element := range strings.SplitSeq(pattern, "/") {
		var next []string
		for _, dir := range found {
			next = append(next, w.match(dir, element)...)
			if len(next) > maxMatches {
				return
			}
		}
		found = next
	}
	// Keys are removed after the match, because a pattern with an asterisk also finds the names of keys.
	found = slices.DeleteFunc(found, private)
	inParallel(found, func(name string) {
		if !w.recorder.hasAttribute(name) {
			_, _ = w.fs.ReadAtMost(name, maxWide) // the recorder keeps the result, even if it is an error
		}
	})
}

// hasAttribute reports whether an attribute of a function was read. Readers read whole attributes, but not all of other
// files.
func (r *Recorder) hasAttribute(name string) bool {
	if !strings.HasPrefix(name, sysfs.Devices) {
		return false
	}
	place := r.place(name, true)
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.entries[place]
	return e != nil && e.read
}

// inParallel calls f for each item, on all processors: the kernel takes most of the time.
func inParallel(items []string, f func(string)) {
	var g errgroup.Group
	part := max(1, (len(items)+runtime.GOMAXPROCS(0)-1)/runtime.GOMAXPROCS(0))
	for chunk := range slices.Chunk(items, part) {
		g.Go(func() error {
			for _, item := range chunk {
				f(item)
			}
			return nil
		})
	}
	_ = g.Wait() // f returns no error
}

// match returns the names in a directory that match one element, or the element itself if it is a name. A name that is
// not in a listed directory is left out, because an archive's reader gets that answer from the list.
func (w *wide) match(dir, element string) []string {
	pattern := strings.ContainsAny(element, "*?[")
	names, listed := w.lists[dir]
	if !pattern {
		if _, found := slices.BinarySearch(names, element); listed && !found {
			return nil
		}
		return []string{path.Join(dir, element)}
	}
	if !listed {
		names = w.list(dir)
	}
	var found []string
	for _, name := range names {
		if ok, err := path.Match(element, name); err == nil && ok {
			found = append(found, path.Join(dir, name))
		}
	}
	return found
}

// list lists a directory, and keeps the result if there is no error.
func (w *wide) list(dir string) []string {
	names, err := w.fs.ReadDir(dir)
	if err == nil {
		w.lists[dir] = names
	}
	return names
}
