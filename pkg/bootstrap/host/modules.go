package host

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/kernelargs"
)

const modulesPart = "modules"

// modules loads VFIO modules at boot, unless they are built into the kernel. systemd-modules-load fails on a name
// that the kernel does not have, so only existing modules are named, and only vfio-pci if that is unknown.
func (n *node) modules() {
	names := []string{"vfio_pci"}
	if known := n.platform.Modules; known != nil {
		names = nil
		for _, name := range []string{"vfio_pci", "vfio_iommu_type1", "iommufd"} {
			if known[name].Loadable {
				names = append(names, name)
			}
		}
	}
	if len(names) == 0 {
		return
	}
	n.file(state.File{
		Part: modulesPart, Path: "etc/modules-load.d/kata-vfio.conf", Content: []byte(header + strings.Join(names, "\n") + "\n"),
		Why: "loads VFIO at boot", Then: []state.FollowUp{state.ModulesLoad},
	})
}

// option is an option of a module.
type option struct {
	module, name, value string
	// fixed is true if the kernel accepts the option only when the module is loaded.
	fixed bool
}

func (n *node) moduleOptions() []option {
	denylist := "N"
	if n.blueprint.VFIO.DisableDenylist {
		denylist = "Y"
	}
	// disable_denylist has mode 0444 in sysfs (drivers/vfio/pci/vfio_pci.c), so only loading the module sets it.
	all := []option{
		{"vfio_pci", "disable_denylist", denylist, true},
		{"vfio_iommu_type1", "allow_unsafe_interrupts", "N", false},
	}
	if n.platform.Modules["iommufd"].There() {
		all = append(all, option{"iommufd", "allow_unsafe_interrupts", "N", false})
	}
	return all
}

// options writes modprobe.d(5), and the same settings for loaded modules.
func (n *node) options() {
	var text strings.Builder
	text.WriteString(header)
	for _, o := range n.moduleOptions() {
		fmt.Fprintf(&text, "options %s %s=%s\n", o.module, o.name, o.value)
		n.setting(state.Setting{
			Part: modulesPart, Path: path.Join("sys/module", o.module, "parameters", o.name), Value: o.value, AtBoot: o.fixed,
			Why: fmt.Sprintf("%s is loaded with %s=%s", o.module, o.name, o.value),
		})
	}
	// No option is written for this one: it is off unless something else sets it, which contradictions looks for.
	n.setting(state.Setting{
		Part: modulesPart, Path: "sys/module/vfio/parameters/enable_unsafe_noiommu_mode", Value: "N",
		Why: "no VM gets a function without an IOMMU",
	})
	f := state.File{Part: modulesPart, Path: optionsFile, Content: []byte(text.String()), Why: "keeps VFIO's protections on"}
	if n.blueprint.Kernel.EarlyBinding {
		f.Then = []state.FollowUp{state.Initramfs} // it contains the file, and loads the modules
	}
	n.file(f)
	n.contradictions()
}

const optionsFile = kernelargs.ModprobeSite + "/50-kata-vfio.conf"

// contradictions reports lines of other files that override the options or prevent the
// modules from loading.
func (n *node) contradictions() {
	for _, file := range kernelargs.ModprobeFiles(func(dir string) []string {
		names, _ := n.tree.ReadDir(n.real(dir)) // usually it does not exist; modprobe skips it too
		return names
	}) {
		if file != optionsFile {
			n.contradictionsIn(file, kernelargs.ModprobeLines)
		}
	}
	n.contradictionsIn(kernelargs.InitramfsModules, kernelargs.LoadedModules)
}

func (n *node) contradictionsIn(file string, lines func(text string) []kernelargs.ModprobeLine) {
	content, _ := n.text(modulesPart, file)
	for _, line := range lines(content) {
		if why := n.contradicts(strings.Fields(line.Text)); why != "" {
			n.problem(state.Problem{
				Part: modulesPart, Code: rule.ModuleOptionConflict, Fatal: true, Path: file, Text: fmt.Sprintf("/%s line %d: %s", file, line.Number, why),
				Fix: "remove the line: " + strings.TrimSpace(written(file, line.Text)),
			})
		}
	}
}

// written returns a line as its file has it.
func written(file, line string) string {
	if file == kernelargs.InitramfsModules {
		return strings.TrimPrefix(line, "options ")
	}
	return line
}

// contradicts returns the reason why a line conflicts with the options, or "".
func (n *node) contradicts(words []string) string {
	if len(words) < 2 {
		return ""
	}
	module := strings.ReplaceAll(words[1], "-", "_")
	ours := slices.Contains([]string{"vfio", "vfio_pci", "vfio_iommu_type1", "iommufd"}, module)
	switch {
	case !ours:
		return ""
	// blacklist only stops the loading by alias. A command in its place also replaces `modprobe vfio-pci` (modprobe.d(5)).
	case words[0] == "blacklist", words[0] == "install" && (strings.Contains(strings.Join(words, " "), "/false") || strings.Contains(strings.Join(words, " "), "/true")):
		return fmt.Sprintf("it prevents %s from loading", module)
	case words[0] == "install":
		return fmt.Sprintf("it runs a command whenever %s is loaded, which may bind other functions or set other options", module)
	case words[0] != "options":
		return ""
	}
	given := strings.Join(words[2:], " ")
	for _, o := range append(n.moduleOptions(), option{"vfio", "enable_unsafe_noiommu_mode", "N", false}) {
		for _, value := range kernelargs.Values(given, o.name) {
			on, ok := kernelargs.Bool(value)
			if wanted, _ := kernelargs.Bool(o.value); o.module == module && (!ok || on != wanted) {
				return fmt.Sprintf("it sets %s of %s to %s, but the blueprint requires %s", o.name, module, value, o.value)
			}
		}
	}
	if module == "vfio_pci" && len(kernelargs.Values(given, "ids")) > 0 {
		return "vfio-pci binds every function with these IDs, including ones that are added later; list addresses in vfio.keepOff instead"
	}
	return ""
}

// Modules checks the modules that parts need. It returns a problem that names missing modules, and a fact that names those that are
// not loaded yet. Built-in modules count as loaded. If the kernel's list of modules can't be read, it returns neither.
func Modules(needed []state.Module, p *Platform) ([]state.Problem, []state.Fact) {
	if p.Modules == nil {
		return nil, nil
	}
	var lacking []state.Module
	var loadable []string
	for _, m := range needed {
		switch has := p.Modules[m.Name]; {
		case !has.There():
			lacking = append(lacking, m)
		case p.Live && !has.BuiltIn && !has.Loaded:
			loadable = append(loadable, m.Name)
		}
	}
	return lacks(lacking, p), loads(loadable, p)
}

func lacks(modules []state.Module, p *Platform) []state.Problem {
	if len(modules) == 0 {
		return nil
	}
	var names, options []string
	for _, m := range modules {
		names, options = append(names, fmt.Sprintf("%s (%s)", m.Name, m.Why)), append(options, m.Config)
	}
	return []state.Problem{{
		Part: preflightPart, Code: rule.KernelModuleMissing, Fatal: true, Text: fmt.Sprintf("kernel %s lacks modules that Kata needs: %s", p.Kernel, strings.Join(names, ", ")),
		Fix: fmt.Sprintf("install the kernel's package of extra modules, or another kernel (%s)", strings.Join(options, ", ")),
	}}
}

func loads(names []string, p *Platform) []state.Fact {
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	return []state.Fact{{
		Part: preflightPart, Name: "modules to load", Value: strings.Join(names, " ") + ": the kernel loads each when Kata first needs it",
		Source: path.Join("/usr/lib/modules", p.Kernel, "modules.dep"),
	}}
}
