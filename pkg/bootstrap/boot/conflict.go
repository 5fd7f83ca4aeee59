package boot

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/blueprint"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/kernelargs"
)

// conflict is an argument that conflicts with the blueprint.
type conflict struct {
	name string
	// bad are the values that conflict. If both bad and judge are nil, any value does. judge returns "" for a value
	// that does not.
	bad   []string
	judge func(value string) string
	// why completes the sentence "NAME=VALUE ...".
	why string
	// harmless conflicts are reported and prevent nothing.
	harmless bool
	// last: the kernel uses the last of several values.
	last bool
}

// on is a judge for booleans that must not be true; off is one for those that must not be false.
func on(value string) string {
	if set, ok := kernelargs.Bool(value); set && ok {
		return "on"
	}
	return ""
}

func off(value string) string {
	if set, ok := kernelargs.Bool(value); !set && ok {
		return "off"
	}
	return ""
}

// possibleConflicts returns the arguments that conflict with every blueprint, and those that conflict with this one.
func possibleConflicts(b *blueprint.Blueprint) []conflict {
	// Of intel_iommu, the last of on and off applies; of iommu, the last of pt and nopt. A value such as igfx_off or
	// iommu=off sets a flag that no wanted argument clears, so it conflicts wherever it is (intel_iommu_setup in
	// drivers/iommu/intel/iommu.c, iommu_setup in arch/x86/kernel/pci-dma.c).
	all := []conflict{
		{name: "intel_iommu", bad: []string{"off"}, why: "switches DMA translation off", last: true},
		{name: "intel_iommu", bad: []string{"igfx_off"}, why: "switches DMA translation off for the processor's own GPU"},
		{name: "intel_iommu", bad: []string{"tboot_noforce"}, why: "permits a measured boot without DMA translation"},
		{name: "pcie_acs_override", why: "makes the kernel assume isolation that the hardware does not have"},
		{name: "pci", judge: isolation.WeakensACS, why: "switches isolation between devices off"},
		{name: "amd_iommu", bad: []string{"off"}, why: "switches DMA translation off"},
		{name: "iommu", bad: []string{"off", "noforce", "soft"}, why: "switches DMA translation off"},
		{name: "intremap", bad: []string{"off", "nosid"}, why: "lets devices forge interrupts"},
		{name: "vfio_iommu_type1.allow_unsafe_interrupts", judge: on, why: "lets VMs have devices that can forge interrupts"},
		{name: "iommufd.allow_unsafe_interrupts", judge: on, why: "lets VMs have devices that can forge interrupts"},
		{name: "vfio.enable_unsafe_noiommu_mode", judge: on, why: "lets VMs have devices without an IOMMU"},
		{name: "vfio-pci.ids", why: "binds every function of the model; list addresses in vfio.keepOff instead", harmless: true},
	}
	if b.Kernel.IOMMU == blueprint.IOMMUPassthrough {
		all = append(all, conflict{name: "iommu", bad: []string{"nopt"}, why: "contradicts kernel.iommu: Passthrough", last: true},
			conflict{name: "iommu.passthrough", judge: off, why: "contradicts kernel.iommu: Passthrough", last: true})
	} else {
		all = append(all, conflict{name: "iommu", bad: []string{"pt"}, why: "contradicts kernel.iommu: On", last: true},
			conflict{name: "iommu.passthrough", judge: on, why: "contradicts kernel.iommu: On", last: true})
	}
	if !b.VFIO.DisableDenylist {
		all = append(all, conflict{name: "vfio-pci.disable_denylist", judge: on, why: "lets VMs have devices that the kernel lists as exploitable"})
	}
	if len(hugePageArguments(b.Kernel.HugePages)) > 0 {
		all = append(all, conflict{name: "hugepages", why: "contradicts kernel.hugePages"}, conflict{name: "hugepagesz", why: "contradicts kernel.hugePages"})
	}
	return all
}

// matches reports whether a value is bad, alone or in a list.
func (c *conflict) matches(value string) bool {
	if c.judge != nil {
		return c.judge(value) != ""
	}
	return c.bad == nil || slices.ContainsFunc(strings.Split(value, ","), func(v string) bool { return slices.Contains(c.bad, v) })
}

// conflicts returns a problem for each argument that contradicts the blueprint, with its file and line. Bootstrap does
// not remove arguments, because an operator set them for a reason.
func conflicts(tree state.Tree, b *blueprint.Blueprint, p *Platform) []state.Problem {
	wanted := Arguments(b, p)
	var found []state.Problem
	configured := commandLines(tree, &p.Loader)
	for _, c := range possibleConflicts(b) {
		before := len(found)
		for _, line := range configured {
			for _, word := range c.words(line.Value, wanted) {
				found = append(found, state.Problem{
					Part: Part, Code: rule.KernelArgumentConflict, Fatal: !c.harmless, Path: line.Path,
					Text: fmt.Sprintf("/%s line %d: %s %s", line.Path, line.Number, word, c.why),
					Fix:  removal(&p.Loader, line.Path, word),
				})
			}
		}
		for _, word := range c.words(p.Cmdline, wanted) {
			// If a file has the argument, that finding also explains the running kernel's, and has the better fix.
			if len(found) == before && !c.overridden(p.Cmdline, wanted) {
				found = append(found, state.Problem{
					Part: Part, Code: rule.KernelArgumentConflict, AtBoot: !c.harmless, Text: fmt.Sprintf("the running kernel was started with %s, which %s; %s", word, c.why, origin(&p.Loader)),
					Fix: "reboot; if the argument remains, remove it where the node is started from (network boot, hypervisor, the system's own tool)",
				})
			}
		}
	}
	return found
}

// removal says how to remove a word from a file.
func removal(l *Loader, name, word string) string {
	if text := l.Removal(name, word); text != "" {
		return text
	}
	switch {
	case name == kernelargs.Tuned:
		return fmt.Sprintf("remove %s from cmdline in the section [bootloader] of the active tuned profile, which writes the file", word)
	case path.Base(name) == "grubenv":
		return fmt.Sprintf("remove %s with grubby or grub2-editenv (tuned_params are from /%s), because the file's size must not change", word, kernelargs.Tuned)
	}
	return fmt.Sprintf("remove %s from the line", word)
}

// origin describes the source of a running kernel's argument that no file contains.
func origin(l *Loader) string {
	if l.Managed != nil {
		return "its arguments are those of " + string(l.Kind)
	}
	return "no known file of the boot loader has it"
}

// words returns the words of a command line that conflict, except those that the blueprint wants.
func (c *conflict) words(line string, wanted []string) []string {
	var found, ours []string
	for _, group := range wanted {
		if kernelargs.Has(line, group) {
			ours = append(ours, kernelargs.Split(group)...)
		}
	}
	for _, value := range kernelargs.Values(line, c.name) {
		word := c.name + "=" + value
		if c.matches(value) && !slices.Contains(ours, word) {
			found = append(found, word)
		}
	}
	return found
}

// overridden reports whether a required word overrides the conflicting value.
func (c *conflict) overridden(line string, wanted []string) bool {
	values := kernelargs.Values(line, c.name)
	return c.last && len(values) > 0 && slices.Contains(wanted, c.name+"="+values[len(values)-1])
}

// files are the node's files as package kernelargs reads them, without bootstrap's own blocks. Those in over replace the
// node's.
type files struct {
	tree state.Tree
	over map[string]string
}

// Text implements [kernelargs.Files].
func (f files) Text(name string) string {
	if text, ok := f.over[name]; ok {
		return text
	}
	return blank(read(f.tree, name))
}

// Names implements [kernelargs.Files].
func (f files) Names(dir string) []string {
	names, err := f.tree.ReadDir(dir)
	if err != nil {
		return nil // usually it does not exist
	}
	return names
}

// sources are the files that the loader reads. Generated files are left out.
func sources(tree state.Tree, l *Loader) *kernelargs.Sources {
	s := &kernelargs.Sources{
		Settings: settings(tree, l), Variables: kernelargs.SettingsVariables(), Environment: kernelargs.Environments(files{tree: tree}),
		Scripts: kernelargs.GRUBConfigs(), Entries: slices.Clone(l.EntryFiles),
	}
	if !l.Generated() {
		s.Entries = append(s.Entries, l.Config)
	}
	if l.Kind == REFInd {
		s.Quoted = []string{kernelargs.REFIndConfig}
	}
	s.Settings = append(s.Settings, kernelargs.Tuned) // tuned adds its arguments to the loader's
	if l.Cmdline != "" {
		s.Lines = []string{l.Cmdline}
	}
	return s
}

// commandLines returns the command lines of the loader's files, without bootstrap's own words.
func commandLines(tree state.Tree, l *Loader) []kernelargs.Line {
	return sources(tree, l).Read(files{tree: tree})
}

// settings returns the loader's files of settings in the order in which its tool reads them.
func settings(tree state.Tree, l *Loader) []string {
	var files []string
	if l.Defaults != "" {
		files = append(files, l.Defaults)
	}
	if l.DropIns == "" {
		return files
	}
	names, err := tree.ReadDir(l.DropIns)
	if err != nil {
		return files
	}
	for _, name := range names {
		// Bootstrap's own fragment can't conflict with the blueprint.
		if !strings.Contains(name, "-kata-vfio.") && (strings.HasSuffix(name, ".cfg") || strings.HasSuffix(name, ".conf")) {
			files = append(files, path.Join(l.DropIns, name))
		}
	}
	return files
}

// read returns a file's content, or "" if it can't be read: files to edit are read again, and reported then.
func read(tree state.Tree, name string) string {
	if name == "" {
		return ""
	}
	data, err := tree.ReadAtMost(name, maxFile)
	if err != nil {
		return ""
	}
	return string(data)
}
