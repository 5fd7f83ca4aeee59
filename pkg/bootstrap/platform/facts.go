package platform

import (
	"fmt"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
)

// Facts returns what was found, for people and for reports.
func (p *Platform) Facts() []state.Fact {
	var facts []state.Fact
	add := func(name, value, source string) {
		if value != "" {
			facts = append(facts, state.Fact{Part: "platform", Name: name, Value: value, Source: source})
		}
	}
	add("system", strings.TrimSpace(p.OS.Name), "/etc/os-release")
	add("architecture", p.Arch, "/usr/bin/env")
	add("kernel", p.Kernel, "/proc/sys/kernel/osrelease, /usr/lib/modules")
	add("boot loader", string(p.Loader.Kind), p.Loader.source())
	add("initramfs", string(p.Initramfs), "/usr")
	if p.Firmware.DMAR != nil {
		add("DMAR", fmt.Sprintf("interrupt remapping: %t, DMA control opt-in: %t", p.Firmware.DMAR.InterruptRemapping, p.Firmware.DMAR.DMAOptIn), "/"+tables+"/DMAR")
	}
	if p.Firmware.IVRS != nil {
		add("IVRS", fmt.Sprintf("DMA confined before boot: %t", p.Firmware.IVRS.Remapped), "/"+tables+"/IVRS")
	}
	add("IOMMUs", strings.Join(p.IOMMUs, " "), "/sys/class/iommu")
	add("lockdown", p.Lockdown, "/sys/kernel/security/lockdown")
	add("Secure Boot", p.SecureBoot, "/"+efivars)
	for _, text := range p.Unread {
		add("not readable", text, "")
	}
	return facts
}

// Denied is the problem that this process may not read what a node has to be judged by, if so: whatever else is found is not to be
// believed then.
func (p *Platform) Denied() []state.Problem {
	if !p.Live || len(p.denied) == 0 {
		return nil
	}
	return []state.Problem{{
		Part: "platform", Fatal: true, Text: "what the node has to be judged by could not be read, so nothing below is to be relied on: " + strings.Join(p.denied, "; "),
		Fix: "run it as root",
	}}
}

// source names the file by which the loader was told.
func (l *Loader) source() string {
	for _, name := range append([]string{l.Defaults, l.Config, l.Cmdline}, l.EntryFiles...) {
		if name != "" {
			return "/" + name
		}
	}
	return "/"
}
