package hosts_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// A node describes a machine as far as the programs read it.
type node struct {
	// Kernel is its release. Cmdline are its arguments: without them the node is an image, unless it has Functions. CPU are the CPU's flags.
	Kernel, Cmdline, CPU string
	// IOMMUs are the names of the IOMMUs that the kernel drives. The functions are behind the first, unless they say another.
	IOMMUs []string
	// Domain is the default type of IOMMU groups, DMA-FQ if it is empty.
	Domain string
	// Functions are the PCI functions, one a line, indented below the port or function that they are behind; see [function].
	Functions string
	// System is the content of /etc/os-release. With it the tree has what every installed system has; Arch is then the programs'.
	System, Arch string
	// ACPI are tables of the firmware.
	ACPI []string
	// Loader is what the boot loader left in the EFI variable LoaderInfo.
	Loader string
	// Files are more files, and Also more again, for nodes that share some. They come last.
	Files, Also map[string]string
	// Gone are files that the tree does not have.
	Gone []string
}

// build makes the node's tree.
func (n *node) build(tb testing.TB) *tree {
	tb.Helper()
	t := &tree{tb: tb, root: tb.TempDir()}
	if n.System != "" {
		t.putAll(n.system())
	}
	if n.Functions != "" {
		t.put("/usr/share/misc/pci.ids", "# no names: otherwise the audit takes those of this machine\n")
		t.putAll(n.running())
		n.plug(t)
	}
	if n.Functions == "" && n.Cmdline != "" {
		t.putAll(n.booted())
	}
	for _, table := range n.ACPI {
		t.put("/sys/firmware/acpi/tables/"+table[:4], acpiTable(table))
	}
	if n.Loader != "" {
		t.put("/sys/firmware/efi/efivars/LoaderInfo-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f", "\x06\x00\x00\x00"+utf16(n.Loader+"\x00"))
	}
	t.putAll(n.Files)
	t.putAll(n.Also)
	for _, name := range n.Gone {
		t.remove(name)
	}
	return t
}

// putAll writes shorter names first, so that a link to a directory is there before what is written through it.
func (t *tree) putAll(files map[string]string) {
	t.tb.Helper()
	names := slices.SortedFunc(maps.Keys(files), func(a, b string) int {
		if c := len(a) - len(b); c != 0 {
			return c
		}
		return strings.Compare(a, b)
	})
	for _, name := range names {
		t.put(name, files[name])
	}
}

func utf16(ascii string) string {
	var b strings.Builder
	for _, r := range ascii {
		b.WriteRune(r)
		b.WriteByte(0)
	}
	return b.String()
}

// system is what every installed system has: the C library's programs, modules for VFIO, and a blueprint without containers.
func (n *node) system() map[string]string {
	arch := "elf " + n.Arch
	if n.Arch == "" {
		arch = "elf amd64"
	}
	modules := "/usr/lib/modules/" + n.Kernel
	dep := ""
	for _, m := range []string{"vfio/vfio", "vfio/vfio_iommu_type1", "vfio/pci/vfio-pci-core", "vfio/pci/vfio-pci", "iommu/iommufd/iommufd"} {
		dep += "kernel/drivers/" + m + ".ko:\n"
	}
	return map[string]string{
		"/etc/os-release": n.System, "/usr/bin/env": arch, "/usr/lib/systemd/systemd": arch, "/var/lib/": "", "/etc/modprobe.d/": "", "/etc/modules-load.d/": "", "/etc/udev/rules.d/": "",
		modules + "/modules.dep": dep, modules + "/modules.builtin": "",
		"/etc/kata-vfio/blueprint.yaml": "apiVersion: bootstrap.kata-vfio.dev/v1alpha1\nkind: NodeBlueprint\ncontainers: {runtime: None}\n",
	}
}

// booted is what a running machine has at least.
func (n *node) booted() map[string]string {
	return map[string]string{
		"/proc/cmdline": n.Cmdline + "\n", "/proc/sys/kernel/osrelease": n.Kernel + "\n", "/proc/cpuinfo": "processor\t: 0\nflags\t\t: fpu " + n.CPU + "\n",
		"/run/systemd/system/": "", "/dev/": "",
	}
}

// running is what the kernel of a running machine shows beside its functions.
func (n *node) running() map[string]string {
	files := map[string]string{
		"/proc/cmdline": n.Cmdline + "\n", "/proc/sys/kernel/osrelease": n.Kernel + "\n", "/proc/sys/kernel/tainted": "0\n",
		"/proc/sys/kernel/random/boot_id": "6f4a7c1e-0000-4000-8000-000000000001\n",
		"/proc/modules":                   "vfio_pci 16384 0 - Live 0x0\nvfio_pci_core 90112 1 vfio_pci, Live 0x0\nvfio_iommu_type1 45056 0 - Live 0x0\nvfio 69632 3 - Live 0x0\n",
		"/proc/mounts":                    "sysfs /sys sysfs rw 0 0\n/dev/sda1 / ext4 rw 0 0\n",
		"/proc/kallsyms":                  "0000000000000000 T vfio_pci_core_enable [vfio_pci_core]\n",
		"/sys/module/vfio/parameters/enable_unsafe_noiommu_mode":          "N\n",
		"/sys/module/vfio_iommu_type1/parameters/allow_unsafe_interrupts": "N\n",
		"/sys/module/vfio_iommu_type1/parameters/dma_entry_limit":         "65535\n",
		"/sys/kernel/security/lockdown":                                   "[none] integrity confidentiality\n",
		"/sys/kernel/mm/ksm/run":                                          "0\n",
		"/sys/devices/system/cpu/smt/active":                              "0\n",
		"/sys/devices/system/cpu/vulnerabilities/l1tf":                    "Not affected\n",
		"/sys/devices/system/node/online":                                 "0-1\n",
		"/sys/bus/pci/drivers/vfio-pci/new_id":                            "",
		"/dev/vfio/":                                                      "", "/sys/kernel/iommu_groups/": "", "/sys/class/iommu/": "",
	}
	files["/lib/modules/"+n.Kernel+"/modules.alias"] = "alias vfio_pci:v*d*sv*sd*bc*sc*i* vfio_pci\nalias vfio_pci:v000015B3d0000101Esv*sd*bc*sc*i* mlx5_vfio_pci\n"
	for _, parameter := range []string{"disable_denylist", "enable_sriov", "nointxmask", "disable_idle_d3", "disable_vga"} {
		files["/sys/module/vfio_pci/parameters/"+parameter] = "N\n"
	}
	for _, name := range n.IOMMUs {
		maps.Copy(files, iommu(name))
	}
	return files
}

// iommu is what the kernel shows of an IOMMU: of Intel's and AMD's their registers.
func iommu(name string) map[string]string {
	const tables = "/sys/firmware/acpi/tables/"
	dir := "/sys/class/iommu/" + name
	switch {
	case strings.HasPrefix(name, "dmar"):
		return map[string]string{dir + "/intel-iommu/ecap": "f0108a\n", dir + "/intel-iommu/cap": "d2008c40660462\n", tables + "DMAR": acpiTable("DMAR")}
	case strings.HasPrefix(name, "ivhd"):
		return map[string]string{dir + "/amd-iommu/cap": "190b640f\n", dir + "/amd-iommu/features": "246577efa2254afa:0\n", tables + "IVRS": acpiTable("IVRS")}
	}
	return map[string]string{dir + "/uevent": "", tables + "IORT": acpiTable("IORT SMMU")}
}

// plug makes the functions.
func (n *node) plug(t *tree) {
	t.tb.Helper()
	functions, err := parseFunctions(n.Functions)
	t.check(err)
	for i, f := range functions {
		f.plug(t, n, fmt.Sprint(30+i))
	}
}
