package runtimes

import (
	"path"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/facts"
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
