package sysfstest

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Release is the kernel release of the node.
const Release = "6.12.0-sysfstest"

// host is the state of the node as a whole. It is guarded by Kernel.mu.
type host struct {
	boots       int
	nextGroup   int
	noIOMMU     bool   // there is no IOMMU
	iommu       string // the directory of the only IOMMU
	msi         string // the reserved region of interrupts in its groups
	noIOMMUMode bool   // vfio's enable_unsafe_noiommu_mode
	iommufd     bool
	addresses   []netAddress
	mounts      []string
	swaps       []string
}

// boot makes the files of a node without any PCI function.
func (k *Kernel) boot() {
	k.build(func() {
		for _, dir := range []string{
			scratch, "etc", "run", "dev/vfio", "var/lib", "sys/kernel/iommu_groups",
			"sys/bus/pci/devices", "sys/bus/pci/drivers", "sys/bus/pci/slots", "sys/block", "sys/dev/block", "sys/dev/char",
			"sys/devices/virtual", "proc/1/net", "proc/sys/kernel/random",
		} {
			k.mkdir(dir)
		}
		for _, class := range []string{"net", "drm", "nvme", "block", "infiniband", "vfio", "vfio-dev", "iommu", "misc", "graphics", "vtconsole"} {
			k.mkdir(path.Join("sys/class", class))
		}
		k.create("sys/bus/pci/drivers_probe", "", writeOnly)
		k.create("sys/bus/pci/drivers_autoprobe", "1\n", readOnly)
		k.bootIOMMU(IntelVTd)
		k.bootProc()
		k.makeMisc("/dev/vfio/vfio", "vfio", 196)
		k.register("vfio-pci", Driver{VFIO: true})
		k.put("sys/module/vfio/parameters/enable_unsafe_noiommu_mode", "N\n", readWrite)
		k.put("sys/module/vfio_iommu_type1/parameters/allow_unsafe_interrupts", "N\n", readWrite)
		k.put(aliasesPath, vfioAliases, readWrite)
	})
}

func (k *Kernel) bootProc() {
	k.host.boots++
	k.put("proc/sys/kernel/random/boot_id", fmt.Sprintf("00000000-0000-4000-8000-%012d\n", k.host.boots), readOnly)
	k.put("proc/sys/kernel/osrelease", Release+"\n", readOnly)
	k.put("proc/cmdline", "root=/dev/vda intel_iommu=on\n", readOnly)
	if !k.exists("proc/1/fd") {
		k.startProcess(1, "systemd", "")
		k.symlink("proc/self", "1")
		k.symlink("proc/net", "self/net")
		k.symlink("proc/mounts", "self/mounts")
	}
	k.showMounts()
	k.showNetwork()
}

// makeMisc makes a misc device with a node.
func (k *Kernel) makeMisc(node, name string, minor int) {
	dir := path.Join("sys/devices/virtual/misc", name)
	k.mkdir(dir)
	k.link(path.Join("sys/class/misc", name), dir)
	k.makeNode(node, Number{majorMisc, minor}, dir)
}

// WithIOMMUFD gives the node iommufd and VFIO's per-device nodes. It comes
// before functions are bound to VFIO.
func (k *Kernel) WithIOMMUFD() {
	k.build(func() {
		k.host.iommufd = true
		k.mkdir("dev/vfio/devices")
		k.makeMisc("/dev/iommu", "iommu", 124)
		k.put("sys/module/iommufd/parameters/allow_unsafe_interrupts", "N\n", readWrite)
	})
}

// SetParameter sets a module's parameter as sysfs shows it: ("vfio",
// "enable_unsafe_noiommu_mode", "Y").
func (k *Kernel) SetParameter(module, parameter, value string) {
	k.build(func() {
		if module == "vfio" && parameter == "enable_unsafe_noiommu_mode" {
			k.host.noIOMMUMode = value == "Y"
		}
		k.put(path.Join("sys/module", module, "parameters", parameter), value+"\n", readWrite)
	})
}

// SetIRQChips sets the chip names of the node's interrupts, numbered from 1.
// Those of remapped interrupts begin with "IR-".
func (k *Kernel) SetIRQChips(chips ...string) {
	k.build(func() { k.showIRQChips(chips...) })
}

func (k *Kernel) showIRQChips(chips ...string) {
	k.remove("sys/kernel/irq")
	for i, chip := range chips {
		k.put(path.Join("sys/kernel/irq", strconv.Itoa(i+1), "chip_name"), chip+"\n", readOnly)
	}
}

// AddConsole makes the firmware's adapter the node's text console.
func (k *Kernel) AddConsole() {
	k.build(func() {
		const dir = "sys/devices/virtual/vtconsole/vtcon0"
		k.put(dir+"/name", "(S) VGA+\n", readOnly)
		k.put(dir+"/bind", "1\n", readWrite)
		k.link("sys/class/vtconsole/vtcon0", dir)
	})
}

// PutFile writes any other file of the node: a configuration in etc, a
// pci.ids. The path is relative to the root.
func (k *Kernel) PutFile(name, content string) {
	k.build(func() { k.put(name, content, readWrite) })
}

// aliasesPath is the running kernel's modules.alias.
const aliasesPath = "lib/modules/" + Release + "/modules.alias"

// vfioAliases are the lines that a Linux 6.12 has for VFIO drivers, and some others.
const vfioAliases = `# Aliases extracted from modules themselves.
alias pci:v000010DEd*sv*sd*bc03sc02i00* nvidia
alias pci:v00008086d000010CAsv*sd*bc*sc*i* igbvf
alias pci:v000015B3d00001021sv*sd*bc*sc*i* mlx5_core
alias vfio_pci:v000010DEd00002342sv*sd*bc*sc*i* nvgrace_gpu_vfio_pci
alias vfio_pci:v000015B3d0000101Esv*sd*bc*sc*i* mlx5_vfio_pci
alias vfio_pci:v00001AF4d00001041sv*sd*bc*sc*i* virtio_vfio_pci
alias vfio_pci:v*d*sv*sd*bc*sc*i* vfio_pci
`

// SetAliases replaces the running kernel's modules.alias.
func (k *Kernel) SetAliases(text string) {
	k.build(func() { k.put(aliasesPath, text, readWrite) })
}

// Reboot restarts the node. Everything that a reboot clears is lost: processes and their holds, everything below
// run, driver_override, VFs (except those that a PF was added with, as if a boot script made them), and what was
// written to configuration space or reset_method. The boot id and all IOMMU group numbers change, and all
// functions are probed again. Drivers stay registered, as if loaded on boot.
//
// No Write may be under way.
func (k *Kernel) Reboot() {
	for _, h := range k.Holders() {
		h.Release()
	}
	var functions []*function
	k.build(func() {
		k.removeVFs()
		functions = k.sorted()
		k.renumber(functions)
		k.shutdown(functions)
		k.remove("run")
		k.mkdir("run")
		k.bootProc()
		for _, f := range functions {
			k.appear(f)
		}
	})
	for _, f := range functions {
		k.initialize(f)
	}
	k.build(func() {})
}

// removeVFs takes all VFs away. Callers hold mu.
func (k *Kernel) removeVFs() {
	for _, f := range k.sorted() {
		for _, vf := range f.vfs {
			k.vanish(vf)
		}
		f.vfs, f.numVFs = nil, 0
	}
}

// renumber gives each group the next one's number, so that an old number means
// another group and not merely nothing. Callers hold mu.
func (k *Kernel) renumber(functions []*function) {
	numbers := slices.Sorted(maps.Keys(k.groups))
	next := map[int]int{}
	for i, n := range numbers {
		next[n] = numbers[(i+1)%len(numbers)]
	}
	if len(numbers) == 1 {
		next[numbers[0]]++
	}
	for _, f := range functions {
		if f.group != nil && !f.group.noIOMMU {
			f.Group = next[f.group.number]
		}
	}
}

// shutdown takes all functions out of the tree. Callers hold mu.
func (k *Kernel) shutdown(functions []*function) {
	for _, f := range functions {
		k.unlinkDriver(f)
		k.dropChildren(f)
		k.closeVFIO(f)
		k.leaveVFIOGroup(f)
		k.leave(f)
		k.remove("sys/bus/pci/devices/" + f.Address.String())
		f.driver, f.override = nil, ""
	}
	for _, f := range functions {
		k.remove(f.dir)
	}
}

// Uevent is a message of the kernel about a device that was added, removed or changed (lib/kobject_uevent.c).
type Uevent struct {
	// Action is "add", "remove", "change", "bind" or "unbind".
	Action string
	// Path is the device's place below /sys: "/devices/pci0000:3a/...".
	Path string
	// Subsystem is the class or bus: "pci", "net", "vfio".
	Subsystem string
}

// OnUevent has hook called with each uevent from now on, in order. It must neither
// block nor call the Kernel.
func (k *Kernel) OnUevent(hook func(Uevent)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.script.uevent = hook
}

// say sends a uevent about the device at dir, below the node's root. Callers hold mu.
func (k *Kernel) say(action, dir, subsystem string) {
	if k.script.uevent != nil {
		k.script.uevent(Uevent{Action: action, Path: "/" + strings.TrimPrefix(path.Clean(dir), "sys/"), Subsystem: subsystem})
	}
}
