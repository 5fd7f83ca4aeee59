package host

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
	// bad reports whether a value conflicts. If it is nil, any value does.
	bad func(value string) bool
	// why completes the sentence "NAME=VALUE ...".
	why string
	// harmless is true if the conflict is only reported and prevents nothing.
	harmless bool
	// undone reports whether the last of several values undoes the conflict; nil if none does.
	undone func(values []string) bool
}

// on reports whether a boolean is true, and off whether it is false.
func on(value string) bool {
	set, ok := kernelargs.Bool(value)
	return set && ok
}

func off(value string) bool {
	set, ok := kernelargs.Bool(value)
	return !set && ok
}

// possibleConflicts returns the arguments that conflict with every blueprint, and those that conflict with this one.
func possibleConflicts(b *blueprint.Blueprint) []conflict {
	all := weakening(b)
	all = append(all,
		conflict{name: "pci", bad: func(value string) bool { return isolation.WeakensACS(value) != "" }, why: "switches isolation between devices off"},
		conflict{name: "vfio-pci.ids", why: "binds every function of the model; list addresses in vfio.keepOff instead", harmless: true},
	)
	if b.Kernel.IOMMU == blueprint.IOMMUPassthrough {
		all = append(all, lastApplies("iommu", is("nopt"), "pt", "contradicts kernel.iommu: Passthrough"), lastApplies("iommu.passthrough", off, "1", "contradicts kernel.iommu: Passthrough"))
	} else {
		all = append(all, lastApplies("iommu", is("pt"), "nopt", "contradicts kernel.iommu: On"), lastApplies("iommu.passthrough", on, "0", "contradicts kernel.iommu: On"))
	}
	if len(hugePageArguments(b.Kernel.HugePages)) > 0 {
		all = append(all, conflict{name: "hugepages", why: "contradicts kernel.hugePages"}, conflict{name: "hugepagesz", why: "contradicts kernel.hugePages"})
	}
	return all
}

// weakening returns the arguments that weaken isolation, for which the audit has rules.
func weakening(b *blueprint.Blueprint) []conflict {
	var all []conflict
	for _, w := range kernelargs.Weakenings() {
		all = append(all, conflict{name: w.Name, bad: w.Matches, why: w.Why, undone: w.IsUndone})
	}
	for _, w := range kernelargs.WeakeningParameters() {
		if b.VFIO.DisableDenylist && w.Name == kernelargs.DisableDenylist {
			continue
		}
		all = append(all, conflict{name: w.Name, bad: on, why: w.Why})
	}
	return all
}

// lastApplies returns the conflict of an argument whose last value on the command line applies. wanted is the blueprint's
// value.
func lastApplies(name string, bad func(string) bool, wanted, why string) conflict {
	return conflict{name: name, bad: bad, why: why, undone: func(values []string) bool { return len(values) > 0 && values[len(values)-1] == wanted }}
}

// is returns a condition for a value that has a word, alone or in a list.
func is(word string) func(string) bool {
	w := kernelargs.Weakening{Word: word}
	return w.Matches
}

// matches reports whether a value is bad.
func (c *conflict) matches(value string) bool { return c.bad == nil || c.bad(value) }

// conflicts returns a problem for each argument that contradicts the blueprint, with its file and line. Bootstrap does
// not remove arguments, because an operator set them for a reason.
func conflicts(tree state.Tree, b *blueprint.Blueprint, p *Platform) []state.Problem {
	wanted := Arguments(b, p)
	var found []state.Problem
	configured := loaderLines(tree, &p.Loader)
	for _, c := range possibleConflicts(b) {
		before := len(found)
		for _, line := range configured {
			for _, word := range c.words(line.Value, wanted) {
				found = append(found, state.Problem{
					Part: KernelPart, Code: rule.KernelArgumentConflict, Fatal: !c.harmless, Path: line.Path,
					Text: fmt.Sprintf("/%s line %d: %s %s", line.Path, line.Number, word, c.why),
					Fix:  removal(&p.Loader, line.Path, word),
				})
			}
		}
		for _, word := range c.words(p.Cmdline, wanted) {
			// If a file has the argument, that finding also explains the running kernel's, and has the better fix.
			if len(found) == before && !c.overridden(p.Cmdline) {
				found = append(found, state.Problem{
					Part: KernelPart, Code: rule.KernelArgumentConflict, AtBoot: !c.harmless, Text: fmt.Sprintf("the running kernel was started with %s, which %s; %s", word, c.why, argumentSource(&p.Loader)),
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

// argumentSource describes the source of a running kernel's argument that no file contains.
func argumentSource(l *Loader) string {
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

// overridden reports whether the last value on a command line undoes the conflicting one.
func (c *conflict) overridden(line string) bool {
	return c.undone != nil && c.undone(kernelargs.Values(line, c.name))
}

// files are the node's files as package kernelargs reads them, without bootstrap's own blocks. over has texts that replace
// those of the node's files, by path.
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

// loaderLines returns the command lines of the loader's files, without bootstrap's own words.
func loaderLines(tree state.Tree, l *Loader) []kernelargs.Line {
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
