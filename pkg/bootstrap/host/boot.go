package host

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/blueprint"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/kernelargs"
)

// KernelPart is the name of the part that requires the boot loader's files.
const KernelPart = "kernel"

// LoaderWanted returns the required files of the boot loader, so that the kernel starts with an IOMMU and the blueprint's
// arguments. It supports GRUB, with and without boot loader entries and kernelopts, systemd-boot, proxmox-boot-tool, u-boot-menu, extlinux,
// Armbian and Flatcar. For other loaders, and where a tool of the system would write over the files, it describes what to
// add where.
//
// It keeps users' settings: fragments and marked blocks only append, and nothing is appended that the file already
// has.
func LoaderWanted(tree state.Tree, b *blueprint.Blueprint, p *Platform) state.Wanted {
	words := Arguments(b, p)
	e := &editor{tree: tree, loader: &p.Loader, words: words}
	e.edit(p)
	e.wanted.Problems = append(e.wanted.Problems, conflicts(tree, b, p)...)
	if !p.Live {
		return e.wanted
	}
	for _, word := range words {
		e.wanted.Settings = append(e.wanted.Settings, state.Setting{
			Part: KernelPart, Path: kernelargs.Running, Value: word, AtBoot: true, Why: "an argument of the running kernel",
		})
	}
	return e.wanted
}

// editor collects the edits for one boot loader.
type editor struct {
	tree   state.Tree
	loader *Loader
	words  []string
	wanted state.Wanted
}

//nolint:funlen // one case for each boot loader
func (e *editor) edit(p *Platform) {
	l := e.loader
	if l.Managed != nil {
		e.managed(p, l.Managed)
		return
	}
	switch l.Kind {
	case GRUB:
		if l.Tool == "" {
			e.problem(rule.BootLoaderToolMissing, true, "GRUB's configuration is generated, but the tool for it (update-grub, grub2-mkconfig) is not installed", "install GRUB's tools")
		}
		e.shell("GRUB_CMDLINE_LINUX", "", grubFragment, state.BootConfig, state.Reboot)
	case GRUBEntries:
		e.shell("GRUB_CMDLINE_LINUX", "", grubFragment, state.Reboot)
		e.entries()
		e.cmdlineFile(state.Reboot)
	case KernelOptions:
		e.shell("GRUB_CMDLINE_LINUX", "", grubFragment, state.Reboot) // from which grub2-mkconfig sets kernelopts again
		e.replace(l.Environment, "adds the arguments for all kernels, also for those that are installed later", addToEnvironment(kernelOptions, e.words), state.Reboot)
		// No tool runs, so the entries are edited. The variable above is for a later grub2-mkconfig, which writes the
		// options of all entries from it (update_bls_cmdline in Fedora's 10_linux).
		e.entries()
		e.cmdlineFile(state.Reboot)
	case Entries:
		e.entries()
		e.cmdlineFile(state.Reboot)
		if l.DropIns != "" {
			// Garden Linux generates etc/kernel/cmdline again from the fragments when it installs a kernel.
			e.shell("CMDLINE_LINUX", "", grubFragment, state.Reboot)
		}
	case SDBootUtil:
		// The entries are not edited: sdbootutil writes all of them again from this file.
		e.cmdlineFile(state.BootConfig, state.Reboot)
	case UpdateExtlinux:
		e.shell("default_kernel_opts", "", "", state.BootConfig, state.Reboot)
	case UBootMenu:
		e.uBootMenu()
	case Extlinux:
		e.replace(l.Config, "adds the arguments for all kernels", addToDirectives("append", e.words), state.Reboot)
	case Flatcar:
		e.flatcar(p)
	case UnifiedImages:
		e.unifiedImages(p)
	case Unmounted:
		if !e.booted(p) {
			e.left(rule.BootLoaderConfigMissing, p.Live, "systemd-boot started the node, but the partition with its entries is not mounted at /boot, /efi or /boot/efi",
				"mount the EFI system partition there (`bootctl status` names it), then run bootstrap again")
		}
	case Proxmox:
		e.proxmox(p)
	case Armbian:
		e.replace(l.Config, "adds the arguments for all kernels", addToVariable("extraargs", e.words), state.Reboot)
	default:
		e.byHand(p)
	}
}

// managed reports how to add the arguments with the system's own tool. If the system keeps no files of bootstrap, the problem
// is fatal for an image, too.
func (e *editor) managed(p *Platform, m *Managed) {
	if e.booted(p) {
		return
	}
	e.left(rule.BootLoaderManaged, p.Live || m.ReadOnly, m.Text, m.Fix(e.words))
}

func (e *editor) proxmox(p *Platform) {
	if e.loader.Tool == "" {
		e.problem(rule.BootLoaderToolMissing, true, "proxmox-boot-tool starts the node (/etc/kernel/proxmox-boot-uuids), but is not installed", "install the package proxmox-kernel-helper")
	}
	if e.loader.Defaults != "" {
		e.shell("GRUB_CMDLINE_LINUX", "", grubFragment, state.BootConfig, state.Reboot)
		return
	}
	e.cmdlineFile(state.BootConfig, state.Reboot)
	if !p.Live {
		e.left(rule.BootLoaderUnknown, false, "the image does not show whether proxmox-boot-tool starts it by systemd-boot, which reads /etc/kernel/cmdline, or by GRUB (Secure Boot, legacy BIOS)",
			"where GRUB starts it, run bootstrap again on the running node")
	}
}

// byHand handles unknown loaders. If the running kernel has all the words, there is no problem.
func (e *editor) byHand(p *Platform) {
	if e.booted(p) {
		return
	}
	e.left(rule.BootLoaderUnknown, p.Live, "the boot loader is unknown, so bootstrap can't add kernel arguments to its configuration",
		"add to the kernel command line, then reboot: "+strings.Join(e.words, " "))
}

// booted reports whether the running kernel was started with all the words.
func (e *editor) booted(p *Platform) bool {
	return p.Live && kernelargs.Add(p.Cmdline, e.words...) == p.Cmdline
}

func (e *editor) problem(code rule.Code, fatal bool, text, fix string) {
	e.wanted.Problems = append(e.wanted.Problems, state.Problem{Part: KernelPart, Code: code, Fatal: fatal, Text: text, Fix: fix})
}

// left records a problem that the user has to solve. Callers make it fatal for a running node only, unless the system keeps no
// files: the arguments of an image's kernel can't be verified. A problem that is not fatal is a manual step.
func (e *editor) left(code rule.Code, fatal bool, text, fix string) {
	e.wanted.Problems = append(e.wanted.Problems, state.Problem{Part: KernelPart, Code: code, Fatal: fatal, ByHand: !fatal, Text: text, Fix: fix})
}

func (e *editor) file(name string, content, why string, then ...state.FollowUp) {
	e.wanted.Files = append(e.wanted.Files, state.File{
		Part: KernelPart, Path: name, Content: []byte(content), Mode: 0o644, Why: why, Then: then,
	})
}

// read returns a file that [Detect] found; false, with a problem, if it can no longer be read.
func (e *editor) read(name string) (string, bool) {
	data, err := e.tree.ReadAtMost(name, maxFile+1)
	if err == nil && len(data) > maxFile {
		err = fmt.Errorf("read /%s: it is larger than %d bytes", name, maxFile)
	}
	if err != nil {
		e.wanted.Problems = append(e.wanted.Problems, state.Problem{
			Part: KernelPart, Code: rule.FileUnreadable, Fatal: true, Path: name, Text: err.Error(), Fix: "replace it with a readable file of normal size below the node's root",
		})
		return "", false
	}
	return string(data), true
}

const maxFile = 1 << 20

// replace edits an existing file.
func (e *editor) replace(name, why string, edit func(string) (string, error), then ...state.FollowUp) {
	e.edited(name, name, why, edit, then...)
}

// edited writes the file name with the edited content of the file from, which may be the same file.
func (e *editor) edited(from, name, why string, edit func(string) (string, error), then ...state.FollowUp) {
	content, ok := e.read(from)
	if !ok {
		return
	}
	changed, err := edit(content)
	if err != nil {
		e.wanted.Problems = append(e.wanted.Problems, state.Problem{
			Part: KernelPart, Code: rule.FileDamaged, Fatal: true, Path: from, Text: fmt.Sprintf("/%s: %v", from, err), Fix: "correct the file",
		})
		return
	}
	e.file(name, changed, why, then...)
}

// entries edits the boot loader's entries, as `grubby --update-kernel=ALL --args=...` does. Unlike grubby, this shows the
// change in advance, can be reverted to the byte, and works in an image. Kernels that are installed later get their command
// line from etc/kernel/cmdline or from the running kernel. An entry with $kernelopts is not edited, because it takes the
// arguments from that variable.
func (e *editor) entries() {
	for _, name := range e.loader.EntryFiles {
		// An entry without a kernel starts another EFI program, which takes no kernel arguments (Boot Loader Specification,
		// "efi").
		if content, ok := e.read(name); ok && hasDirective(content, "linux") && !strings.Contains(content, kernelOptionsWord) {
			e.replace(name, "adds the arguments for this kernel", addToDirectives("options", e.words), state.Reboot)
		}
	}
}

// cmdlineFile edits the command line of kernels that are installed later. A vendor's file below usr is copied to etc,
// which overrides it.
func (e *editor) cmdlineFile(then ...state.FollowUp) {
	if e.loader.Cmdline == "" {
		return
	}
	const name, why = kernelargs.KernelInstall, "adds the arguments for kernels that are installed later"
	e.edited(e.loader.Cmdline, name, why, func(content string) (string, error) {
		// kernel-install joins the lines, but Proxmox VE's guide wants the command line to be one line: the first one.
		line, rest, _ := strings.Cut(content, "\n")
		if !kernelargs.Closed(line) {
			return "", errOpenQuote
		}
		return kernelargs.Add(line, e.words...) + "\n" + rest, nil
	}, then...)
}

func (e *editor) unifiedImages(p *Platform) {
	e.cmdlineFile(state.Reboot)
	if e.booted(p) {
		return
	}
	e.left(rule.UnifiedKernelImage, false, "the kernels are unified images, which contain their command line",
		"rebuild and sign the images with the arguments "+strings.Join(e.words, " ")+", then reboot")
}

func (e *editor) flatcar(p *Platform) {
	const why = "makes Flatcar's boot loader append the arguments"
	if e.loader.Defaults != kernelargs.OEM {
		if e.booted(p) {
			return
		}
		e.left(rule.BootLoaderConfigMissing, p.Live, "there is no /oem/grub.cfg on Flatcar's OEM partition to edit",
			"append to the grub.cfg of the OEM partition, then reboot: "+strings.TrimSpace(flatcarLine(e.words)))
		return
	}
	e.replace(e.loader.Defaults, why, func(content string) (string, error) {
		return withBlock(content, flatcarLine(e.words))
	}, state.Reboot)
}

func flatcarLine(words []string) string {
	return fmt.Sprintf("set linux_append=\"$linux_append %s\"\n", strings.Join(words, " "))
}

// uBootMenu sets the variable that u-boot-update reads. If it is unset, the tool uses etc/kernel/cmdline, or "ro quiet"
// without that file. Setting the variable overrides both, so an existing file is edited instead, and "ro quiet" stays
// the default.
func (e *editor) uBootMenu() {
	const variable = "U_BOOT_PARAMETERS"
	_, err := e.tree.ReadAtMost(kernelargs.KernelInstall, 1)
	if err == nil && !e.assigns(variable) {
		e.loader.Cmdline = kernelargs.KernelInstall
		e.cmdlineFile(state.BootConfig, state.Reboot)
		return
	}
	e.shell(variable, "ro quiet", "zz-kata-vfio.conf", state.BootConfig, state.Reboot)
}

// assigns reports whether the loader's settings set a variable.
func (e *editor) assigns(variable string) bool {
	for _, name := range settings(e.tree, e.loader) {
		if sets(blank(read(e.tree, name)), variable) {
			return true
		}
	}
	return false
}

// grubFragment sorts after other fragments, so that none of them replaces the variables that it appends to.
const grubFragment = "zz-kata-vfio.cfg"

// shell appends to a variable of settings in shell syntax, in a separate fragment if the tool reads fragments.
func (e *editor) shell(variable, standard, fragment string, then ...state.FollowUp) {
	const why = "adds the arguments to the boot loader's generated configuration"
	script := appendScript(variable, standard, e.words)
	if e.loader.DropIns != "" {
		name := path.Join(e.loader.DropIns, fragment)
		e.file(name, header+script, why, then...)
		e.outlasts(name, header+script, variable)
		return
	}
	if _, err := e.tree.ReadAtMost(e.loader.Defaults, 1); err != nil {
		e.file(e.loader.Defaults, header+script, why, then...)
		return
	}
	e.replace(e.loader.Defaults, why, func(content string) (string, error) { return withBlock(content, script) }, then...)
}

// outlasts refuses settings in which a file after bootstrap's fragment replaces the variable, so that the arguments would
// not get into the generated configuration.
func (e *editor) outlasts(fragment, content, variable string) {
	// The fragment need not exist yet, so it is evaluated at its place in the order of names. Tools read Defaults before all
	// fragments.
	ours := &kernelargs.Sources{Settings: settings(e.tree, e.loader)}
	at := slices.IndexFunc(ours.Settings, func(name string) bool { return name != e.loader.Defaults && name > fragment })
	if at < 0 {
		at = len(ours.Settings)
	}
	ours.Settings = slices.Insert(ours.Settings, at, fragment)
	evaluated := ours.Evaluate(files{e.tree, map[string]string{fragment: content}})
	lost := slices.DeleteFunc(slices.Clone(e.words), func(word string) bool { return kernelargs.Has(evaluated.Text(variable), word) })
	if len(lost) == 0 {
		return
	}
	by := evaluated.Replaced(variable)
	e.wanted.Problems = append(e.wanted.Problems, state.Problem{
		Part: KernelPart, Code: rule.SettingOverridden, Fatal: true, Path: by.Path,
		Text: fmt.Sprintf("/%s line %d sets %s after /%s does, without %s", by.Path, by.Number, variable, fragment, strings.Join(lost, " ")),
		Fix:  fmt.Sprintf("append to the variable there (%s=\"$%s ...\"), or rename the file so that it sorts before %s", variable, variable, path.Base(fragment)),
	})
}

// Arguments returns the required kernel arguments: words, and groups of words that belong together.
func Arguments(b *blueprint.Blueprint, p *Platform) []string {
	words := append(iommuArguments(b.Kernel.IOMMU, p), hugePageArguments(b.Kernel.HugePages)...)
	return append(words, b.Kernel.Arguments...)
}

// iommuArguments returns the words that enable the IOMMU. Some kernels are built so that Intel's driver is off by
// default; AMD's is on. "intel_iommu=on" is set for both, because the processor that boots an image is unknown, and
// AMD's driver ignores it. "iommu=nopt" is set although it is the usual default: kernels may be built otherwise, and
// Kata's Rust runtime takes a PF's interface only if the command line has "iommu=". See
// Documentation/admin-guide/kernel-parameters.txt.
func iommuArguments(mode blueprint.IOMMUMode, p *Platform) []string {
	pass := mode == blueprint.IOMMUPassthrough
	if p.Arch == "arm64" {
		return []string{"iommu.passthrough=" + map[bool]string{true: "1", false: "0"}[pass]}
	}
	return []string{"intel_iommu=on", "iommu=" + map[bool]string{true: "pt", false: "nopt"}[pass]}
}

// hugePageArguments reserves pages of 1 GiB, because contiguous memory is scarce after the boot. Package host reserves
// smaller pages.
func hugePageArguments(all []blueprint.HugePages) []string {
	var counts []string
	for _, h := range all {
		switch {
		case h.Size != blueprint.HugePage1Gi:
		case h.Node != nil:
			counts = append(counts, fmt.Sprintf("%d:%d", *h.Node, h.Count))
		default:
			counts = append(counts, fmt.Sprint(h.Count))
		}
	}
	if len(counts) == 0 {
		return nil
	}
	return []string{"hugepagesz=1G hugepages=" + strings.Join(counts, ",")} // a number applies to the size before it
}
