package runtimes

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// VMM is a process that runs a sandbox's VM.
type VMM struct {
	PID int
	// Sandbox is the id of the pod's sandbox, from the name "sandbox-<id>" that Kata gives to the VM in QEMU's command line
	// (virtcontainers/qemu.go). It is empty if the command line has no such name.
	Sandbox string
	// Cmdline is the command line, with spaces between its words.
	Cmdline facts.Fact

	args []string
}

// VMMs returns the running VMMs that /proc shows. Kata starts them in the node's PID namespace, so processes that are known to be in
// another one are left out: a container's process can have the name of a VMM.
func VMMs(n *facts.Node) []VMM {
	var vmms []VMM
	// Names are cut after 15 characters.
	for _, p := range processes(n, "qemu-system-x86", "qemu-system-aar", "cloud-hyperviso", "firecracker") {
		if inContainer(n, p.pid) {
			continue
		}
		name, _ := p.option("-name")
		// Kata's Go runtime adds options to the name, such as debug-threads=on (virtcontainers/qemu.go, govmm appendName).
		id, _, _ := strings.Cut(strings.TrimPrefix(name, "sandbox-"), ",")
		if !strings.HasPrefix(name, "sandbox-") {
			id = ""
		}
		vmms = append(vmms, VMM{PID: p.pid, Sandbox: id, Cmdline: p.cmdline, args: p.args})
	}
	return vmms
}

// IsQEMU reports whether the VMM is QEMU.
func (v *VMM) IsQEMU() bool {
	return len(v.args) > 0 && strings.HasPrefix(path.Base(v.args[0]), "qemu-system-")
}

// Has reports whether a word of the command line contains the text.
func (v *VMM) Has(text string) bool {
	return slices.ContainsFunc(v.args, func(arg string) bool { return strings.Contains(arg, text) })
}

// Option returns the word after an option of the command line, as in "-sandbox on".
func (v *VMM) Option(name string) string {
	if i := slices.Index(v.args, name); i >= 0 && i+1 < len(v.args) {
		return v.args[i+1]
	}
	return ""
}

// BlockDevices returns the block devices of the node that the VMM has open. Each fact is the link in /proc that shows the device,
// and its value is the device's number. unread are the links that could not be read.
func (v *VMM) BlockDevices(n *facts.Node) (devices, unread []facts.Fact) {
	dir := sysfs.Process(v.PID, "fd")
	names, listed := n.List(dir)
	if !listed.OK() && listed.Status != facts.Absent { // absent: it ended
		unread = append(unread, listed)
	}
	for _, name := range names {
		link := n.Link(path.Join(dir, name))
		switch device, ok := blockDevice(n, link.Value); {
		case !link.OK() && link.Status != facts.Absent:
			unread = append(unread, link)
		case ok:
			link.Value = device
			devices = append(devices, link)
		}
	}
	return devices, unread
}

// blockDevice returns the number of a block device, given its path in /dev. It follows links in /dev/mapper.
func blockDevice(n *facts.Node, name string) (number string, ok bool) {
	if !strings.HasPrefix(name, "/dev/") {
		return "", false
	}
	// The kernel appends this to the link of a file that was removed (proc_pid_fd(5)).
	name = strings.TrimSuffix(name, " (deleted)")
	// Device mapper's names are links to /dev/dm-N, and sysfs has only dm-N.
	if strings.HasPrefix(name, "/dev/mapper/") {
		if to := n.Link(name); to.OK() {
			name = to.Value
		}
	}
	dev := n.Read(path.Join("sys/class/block", path.Base(name), "dev"))
	return dev.Value, dev.OK()
}

// Passed is a function of the node that a VMM's command line gives to its VM.
type Passed struct {
	// Address is the address as the command line has it.
	Address string
	// Bus is the bus of the VM on which the function is; empty for the root bus.
	Bus string
	// WithROM is set if the VM sees the function's option ROM, because neither "rombar=0" nor an empty "romfile=" hides it (QEMU:
	// hw/pci/pci.c).
	WithROM bool
}

// Function returns the address of the function. QEMU takes an address without a domain as one in domain 0 (qdev_prop_pci_host_devaddr in
// hw/core/qdev-properties-system.c).
func (p *Passed) Function() (pci.Address, error) {
	a, err := pci.ParseAddress(p.Address)
	if err == nil {
		return a, nil
	}
	if a, short := pci.ParseAddress("0000:" + p.Address); short == nil {
		return a, nil
	}
	return pci.Address{}, err
}

// Passed returns the functions that QEMU's command line names. Functions that were plugged into the running VM are not among them.
func (v *VMM) Passed() []Passed {
	var all []Passed
	for _, arg := range v.args {
		options := strings.Split(arg, ",")
		if !strings.HasPrefix(options[0], "vfio-pci") {
			continue
		}
		// QEMU shows the guest the function's ROM unless one of these options says otherwise.
		p := Passed{WithROM: true}
		for _, option := range options[1:] {
			name, value, _ := strings.Cut(option, "=")
			switch {
			case name == "host":
				p.Address = value
			case name == "bus":
				p.Bus = value
			case name == "rombar" && (value == "0" || value == "off"), name == "romfile" && value == "":
				p.WithROM = false
			}
		}
		if p.Address != "" {
			all = append(all, p)
		}
	}
	return all
}

// GPUDaemons returns the command lines of the running daemons of NVIDIA that keep GPUs of the node open: persistenced, and the host
// engine of DCGM.
func GPUDaemons(n *facts.Node) []facts.Fact {
	var all []facts.Fact
	for _, p := range processes(n, "nvidia-persiste", "nv-hostengine") {
		all = append(all, p.cmdline)
	}
	return all
}

// rootBus is the root bus of QEMU's machines q35 and virt.
const rootBus = "pcie.0"

// slots is the number of devices for which a bus has room.
const slots = 32

// layout has the slots of the guest's root bus to which a VMM's command line assigns devices. It assigns them in the order of the
// command line, like QEMU: a device without an address gets the first free slot (hw/pci/pci.c do_pci_register_device). Slot 0
// belongs to the host bridge.
type layout struct {
	taken [slots]bool
	// at has the slots of devices with an id.
	at map[string]int
}

// GuestPath returns the path in the guest of a device on the bus, such as "05/00" on "rp0": Kata 4.1.0 asks QEMU for the path, but
// does not write it to its state. It is empty if the command line does not show it: the bus is not a root port, or the VMM is not
// QEMU.
func (v *VMM) GuestPath(bus string) string {
	if !v.IsQEMU() {
		return ""
	}
	slot, ok := v.rootPorts()[bus]
	if !ok {
		return ""
	}
	return fmt.Sprintf("%02x/00", slot)
}

// rootPorts returns the slots of root ports on the root bus.
func (v *VMM) rootPorts() map[string]int {
	l := layout{at: map[string]int{}}
	// The host bridge of QEMU's machines q35 and virt is 00.0.
	l.taken[0] = true
	for i, arg := range v.args {
		if arg == "-device" && i+1 < len(v.args) && !l.place(v.args[i+1]) {
			break // later devices may be in any slot
		}
	}
	return l.at
}

// place assigns a slot to one device, and reports whether its slot is known.
func (l *layout) place(word string) bool {
	model, options := deviceOptions(word)
	if bus := options["bus"]; !isPCI(model) || bus != "" && bus != rootBus {
		return true
	}
	slot, ok := l.slot(options["addr"])
	if !ok {
		return false
	}
	l.taken[slot] = true
	if model == "pcie-root-port" && options["id"] != "" {
		l.at[options["id"]] = slot
	}
	return true
}

// slot returns the slot in an address such as "2" or "0x5.0x1", or the first free slot if addr is empty.
func (l *layout) slot(addr string) (int, bool) {
	if addr != "" {
		text, _, _ := strings.Cut(addr, ".")
		// QEMU reads the slot as hexadecimal, with or without 0x.
		n, err := strconv.ParseUint(strings.TrimPrefix(text, "0x"), 16, 8)
		return int(n), err == nil && n < slots
	}
	// QEMU gives a device without an address the first free slot (do_pci_register_device in hw/pci/pci.c).
	for i, taken := range l.taken {
		if !taken {
			return i, true
		}
	}
	return 0, false
}

// deviceOptions splits the word after -device: "vfio-pci,host=..." or "driver=vfio-pci,host=...".
func deviceOptions(word string) (model string, options map[string]string) {
	options = map[string]string{}
	for i, option := range strings.Split(word, ",") {
		name, value, has := strings.Cut(option, "=")
		if i == 0 && !has {
			name, value = "driver", option
		}
		options[name] = value
	}
	return options["driver"], options
}

// isPCI reports whether a model of QEMU is a PCI device, by its name. It knows the models that Kata uses.
func isPCI(model string) bool {
	return strings.HasSuffix(model, "-pci") || strings.HasSuffix(model, "-bridge") || model == "pcie-root-port" ||
		model == "x3130-upstream" || strings.HasSuffix(model, "-pci-non-transitional") || strings.HasSuffix(model, "-pci-transitional")
}
