package runtimes

import (
	"path"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/facts"
)

// VMM is a process that runs a sandbox's VM.
type VMM struct {
	PID int
	// Sandbox is the pod's sandbox by the VM's name, "sandbox-<id>", as Kata gives it
	// to QEMU (virtcontainers/qemu.go); empty where the command line does not say.
	Sandbox string
	// Cmdline is the command line, with spaces between its words.
	Cmdline facts.Fact

	args []string
}

// VMMs returns the VMMs that run now, as far as /proc shows them.
func VMMs(n *facts.Node) []VMM {
	var vmms []VMM
	// Names are cut after 15 characters.
	for _, p := range processes(n, "qemu-system-x86", "qemu-system-aar", "cloud-hyperviso", "firecracker") {
		name, _ := p.option("-name")
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

// Option returns what follows a word of the command line, as in "-sandbox on".
func (v *VMM) Option(name string) string {
	if i := slices.Index(v.args, name); i >= 0 && i+1 < len(v.args) {
		return v.args[i+1]
	}
	return ""
}

// VirtioFSDaemons returns the command lines of the file system daemons that run now.
func VirtioFSDaemons(n *facts.Node) []facts.Fact {
	var all []facts.Fact
	for _, p := range processes(n, "virtiofsd") {
		all = append(all, p.cmdline)
	}
	return all
}

// Passed is a function of the node that a VMM's command line gives to its VM.
type Passed struct {
	// Address is as the command line has it.
	Address string
	// Bus is the bus of the VM that it is on; empty for the root bus.
	Bus string
	// WithROM is set where the VM sees the function's option ROM: neither "rombar=0" nor
	// an empty "romfile=" keeps it away (QEMU: hw/pci/pci.c).
	WithROM bool
}

// Passed returns the functions that QEMU's command line names. Those that were plugged
// into the running VM are not there.
func (v *VMM) Passed() []Passed {
	var all []Passed
	for _, arg := range v.args {
		options := strings.Split(arg, ",")
		if !strings.HasPrefix(options[0], "vfio-pci") {
			continue
		}
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

// GPUDaemons returns the command lines of NVIDIA's daemons that run now and keep GPUs
// of the node open: persistenced, and the host engine of DCGM.
func GPUDaemons(n *facts.Node) []facts.Fact {
	var all []facts.Fact
	for _, p := range processes(n, "nvidia-persiste", "nv-hostengine") {
		all = append(all, p.cmdline)
	}
	return all
}
