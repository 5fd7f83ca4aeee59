package host

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/sysfs/kernelargs"
)

// Managed describes a system whose own tool sets the kernel's arguments, and would overwrite edits of the boot loader's
// files.
type Managed struct {
	// Text names the tool or the configuration that sets them: "Talos is configured by its machine config, not by files".
	Text string
	// ReadOnly is true if the system keeps none of the other files that bootstrap writes either.
	ReadOnly bool
	fix      func(words []string) string
}

// Fix says how to add arguments.
func (m *Managed) Fix(words []string) string { return m.fix(words) }

// Notice says in advance what bootstrap can do on a system that keeps none of its files. It is empty for other systems.
func (l *Loader) Notice() string {
	switch {
	case l.Managed == nil || !l.Managed.ReadOnly:
		return ""
	case l.Kind == Talos:
		return "Bootstrap changes nothing on Talos. It prints the schematic of the node's image and the machine config, which you apply. Kata has to come with a system extension."
	}
	return fmt.Sprintf("Kernel part only: bootstrap changes nothing on %s. It prints how to set the kernel's arguments. Configure the container runtime, Kata and the other listed files in the system's own way.", l.Kind)
}

// managed is a row of the table of [systems].
type managed struct {
	kind  LoaderKind
	signs signs
	is    Managed
}

// signs identify a system. One of them is enough.
type signs struct {
	// ids are values of ID, and fields are fields of os-release(5).
	ids, fields []string
	files, dirs []string
	// words are prefixes of arguments, of the running kernel and of boot loader entries.
	words []string
}

// systems returns the table. The first row with a sign that the node shows applies, so a derived system comes before the system
// that it is made from.
func systems() []managed {
	return []managed{
		{Talos, signs{ids: []string{"talos"}}, Managed{
			"Talos has the kernel's arguments in its image, or with GRUB in its machine config", true, talosFix,
		}},
		{Bottlerocket, signs{ids: []string{"bottlerocket"}}, Managed{
			"Bottlerocket is configured by its API's settings, and its /etc does not last", true, bottlerocket,
		}},
		{NixOS, signs{ids: []string{"nixos"}, files: []string{"etc/NIXOS"}}, Managed{
			"NixOS generates the boot loader's entries and /etc from its configuration", true, nixos,
		}},
		{Harvester, signs{ids: []string{"harvester", "sle-micro-rancher"}, files: []string{"oem/harvester.config"}}, Managed{
			"Harvester's root is an image (/etc/cos/bootargs.cfg has the kernel's arguments), and its /etc does not last", true, oemVariable("/"+kernelargs.OEMEnvironment, "third_party_kernel_args"),
		}},
		{Elemental, signs{files: []string{kernelargs.BootArguments, "etc/kairos-release"}, words: []string{"cos-img/filename="}}, Managed{
			"the root is an image of Elemental or Kairos (/etc/cos/bootargs.cfg has the kernel's arguments), and its /etc does not last", true, oemVariable("/"+kernelargs.OEMEnvironment, "extra_cmdline"),
		}},
		{COS, signs{ids: []string{"cos"}}, Managed{
			"Container-Optimized OS has the kernel's arguments in its image, and its /etc does not last", true, cos,
		}},
		{UbuntuCore, signs{ids: []string{"ubuntu-core"}}, Managed{
			"snapd sets the kernel's arguments on Ubuntu Core, and its /etc is read-only", true, snapd,
		}},
		{OpenShift, signs{ids: []string{"rhcos", "scos"}}, Managed{
			"OpenShift's machine config operator sets the kernel's arguments", false, machineConfig,
		}},
		{OSTree, signs{
			fields: []string{"OSTREE_VERSION"}, files: []string{"run/ostree-booted"}, dirs: []string{"sysroot/ostree", "ostree/repo", "ostree/deploy"}, words: []string{"ostree="},
		}, Managed{
			"OSTree (rpm-ostree, bootc) writes the boot loader's entries again with each deployment", false, ostree,
		}},
		{ABRoot, signs{files: []string{"usr/bin/abroot"}}, Managed{
			"ABRoot (Vanilla OS) has the kernel's arguments, and writes GRUB's configuration again with each new root", false, abroot,
		}},
		{Kernelstub, signs{files: []string{"etc/kernelstub/configuration"}}, Managed{
			"kernelstub writes the boot loader's entries again at each kernel update, from /etc/kernelstub/configuration", false, kernelstub,
		}},
		{KernelOptions, signs{words: []string{kernelOptionsWord}}, Managed{
			"the boot loader's entries, and those of later kernels, take their arguments from kernelopts in GRUB's environment (/boot/grub2/grubenv), which grubby sets", false, grubby,
		}},
		{Limine, signs{files: []string{kernelargs.LimineDefaults, kernelargs.LimineConfig}}, Managed{
			"Limine starts the kernel", false, limine,
		}},
		{REFInd, signs{files: []string{kernelargs.REFIndConfig}}, Managed{
			"rEFInd starts the kernel, and bootstrap does not edit its files", false, refind,
		}},
	}
}

// managed returns the loader of a system whose own tool sets the kernel's arguments, or false. If the node has kernelopts in
// GRUB's environment, bootstrap can edit that file as the tool does, and the loader is not [Managed].
func (r *reader) managed(system *OS, cmdline string) (Loader, bool) {
	for _, s := range systems() {
		if r.shows(&s.signs, system, cmdline) {
			if l, ok := r.kernelOptions(); s.kind == KernelOptions && ok {
				return l, true
			}
			l := Loader{Kind: s.kind, Managed: &s.is, EntryFiles: r.allEntryFiles()}
			if s.kind == Limine {
				l.Defaults, l.EntryFiles = r.first(kernelargs.LimineDefaults), []string{kernelargs.LimineConfig}
			}
			return l, true
		}
	}
	return Loader{}, false
}

// shows reports whether the node has one of the signs.
func (r *reader) shows(s *signs, system *OS, cmdline string) bool {
	return slices.Contains(s.ids, system.ID) ||
		slices.ContainsFunc(s.fields, func(field string) bool { return slices.Contains(system.fields, field) }) ||
		r.any(s.files...) ||
		slices.ContainsFunc(s.dirs, func(dir string) bool { return len(r.list(dir)) > 0 }) ||
		r.hasArgument(s.words, cmdline)
}

func (r *reader) allEntryFiles() []string {
	var all []string
	for _, partition := range kernelargs.Partitions() {
		all = append(all, r.entryFiles(partition)...)
	}
	return all
}

// hasArgument reports whether the running kernel or an entry of the boot loader has an argument with one of the
// prefixes.
func (r *reader) hasArgument(prefixes []string, cmdline string) bool {
	if len(prefixes) == 0 {
		return false
	}
	lines := []string{cmdline}
	for _, file := range r.allEntryFiles() {
		lines = append(lines, r.text(file))
	}
	for word := range strings.FieldsSeq(strings.Join(lines, " ")) {
		if slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(word, p) }) {
			return true
		}
	}
	return false
}

// Removal says how to remove an argument from a file that a tool of the system writes again. It is empty if the file
// itself can be edited.
func (l *Loader) Removal(name, word string) string {
	written := slices.Contains(l.EntryFiles, name) || l.Kind == Limine && name == l.Defaults
	if !written || l.Kind == Limine && l.Defaults == "" {
		return ""
	}
	format, ok := map[LoaderKind]string{
		NixOS:      "remove %s from boot.kernelParams or what else sets it in /etc/nixos/configuration.nix, from which NixOS writes the line, and run `nixos-rebuild boot`",
		OpenShift:  "remove %s from kernelArguments in the MachineConfig of the node's pool",
		OSTree:     "run `rpm-ostree kargs --delete-if-present=%s` (without rpm-ostree: `ostree admin kargs edit-in-place`). In an image for bootc, remove it from /usr/lib/bootc/kargs.d",
		Kernelstub: "run `kernelstub --delete-options %q`",
		Limine:     "remove %s from KERNEL_CMDLINE of /etc/default/limine, run `limine-update`, then reboot",
	}[l.Kind]
	if !ok {
		return ""
	}
	return fmt.Sprintf(format, word)
}

// items returns one line for each argument.
func items(words []string, format string) string {
	var b strings.Builder
	for word := range strings.FieldsSeq(strings.Join(words, " ")) {
		fmt.Fprintf(&b, format, word)
	}
	return b.String()
}

// bottlerocket returns the fix for Bottlerocket, where a parameter's values are a list (bottlerocket.dev, "settings.boot").
func bottlerocket(words []string) string {
	values := map[string][]string{}
	var names []string
	for word := range strings.FieldsSeq(strings.Join(words, " ")) {
		name, value, _ := strings.Cut(word, "=")
		if _, there := values[name]; !there {
			names = append(names, name)
		}
		values[name] = append(values[name], fmt.Sprintf("%q", value))
	}
	var b strings.Builder
	b.WriteString("add to the user data, or by `apiclient apply`, then reboot:\n[settings.boot]\nreboot-to-reconcile = true\n[settings.boot.kernel-parameters]\n")
	for _, name := range names {
		fmt.Fprintf(&b, "%q = [%s]\n", name, strings.Join(values[name], ", "))
	}
	return b.String()
}

// cos returns the fix for Container-Optimized OS. GRUB's configuration is on the EFI system partition, and an update of the
// image replaces it.
func cos(words []string) string {
	return fmt.Sprintf("append to each line linux of efi/boot/grub.cfg on the EFI system partition (/dev/disk/by-label/EFI-SYSTEM), then reboot: %s. "+
		"An update of the system replaces that file. Other files that bootstrap would write belong in the node's cloud-init user data", strings.Join(words, " "))
}

func abroot(words []string) string {
	return fmt.Sprintf("run `abroot kargs edit`, add the arguments, then reboot: %s", strings.Join(words, " "))
}

func nixos(words []string) string {
	return "add to /etc/nixos/configuration.nix, run `nixos-rebuild boot`, then reboot:\nboot.kernelParams = [" + items(words, " %q") + " ];\nboot.kernelModules = [ \"vfio_pci\" \"vfio_iommu_type1\" ];\n"
}

// oemVariable returns the fix for systems whose GRUB appends a variable of its environment. The environment is on the OEM
// partition, which updates keep.
func oemVariable(file, variable string) func([]string) string {
	return func(words []string) string {
		return fmt.Sprintf("append to the variable that `grub2-editenv %s list` shows (keep what it has), then reboot: `grub2-editenv %s set %s=\"... %s\"`. "+
			"Other files that bootstrap would write belong in a cloud-config below /oem", file, file, variable, strings.Join(words, " "))
	}
}

func snapd(words []string) string {
	return fmt.Sprintf("run `snap set system system.kernel.dangerous-cmdline-append=%q` (cmdline-append if the gadget permits these arguments), then reboot", strings.Join(words, " "))
}

func machineConfig(words []string) string {
	return "apply a MachineConfig for the node's pool, which reboots its nodes:\napiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfig\nspec:\n  kernelArguments:\n" + items(words, "  - %s\n")
}

func ostree(words []string) string {
	return "run `rpm-ostree kargs" + items(words, " --append-if-missing=%s") + "` (without rpm-ostree: `ostree admin kargs edit-in-place" + items(words, " --append-if-missing=%s") +
		"`), then reboot. In an image for bootc, add a file to /usr/lib/bootc/kargs.d: kargs = [" + strings.TrimSuffix(items(words, "%q, "), ", ") + "]"
}

func kernelstub(words []string) string {
	return fmt.Sprintf("run `kernelstub --add-options %q`, then reboot", strings.Join(words, " "))
}

func grubby(words []string) string {
	return fmt.Sprintf("run `grubby --update-kernel=ALL --args=%q`, then reboot", strings.Join(words, " "))
}

func limine(words []string) string {
	return fmt.Sprintf("add to KERNEL_CMDLINE of /etc/default/limine and run `limine-update`, or to cmdline of each entry of /boot/limine.conf, then reboot: %s", strings.Join(words, " "))
}

func refind(words []string) string {
	return fmt.Sprintf("add to each line of /boot/refind_linux.conf, then reboot: %s", strings.Join(words, " "))
}
