package host

import (
	"cmp"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/kernelargs"
)

// Module says how a kernel has a module: as a loadable file, or built in. If Loadable and BuiltIn are false, the kernel does
// not have the module.
type Module struct {
	Loadable, BuiltIn bool
	// Loaded is true if the running kernel has loaded the module. It is false for an image and for most built-in modules.
	Loaded bool
}

// There reports whether the kernel has the module, loadable or built in.
func (m Module) There() bool { return m.Loadable || m.BuiltIn }

func (r *reader) cpu() CPU {
	// The kernel clears vmx if the firmware disabled VT-x (arch/x86/kernel/cpu/feat_ctl.c).
	flags := device.CPUFlags(r.text("proc/cpuinfo"))
	return CPU{
		Virtualizes: slices.Contains(flags, "vmx") || slices.Contains(flags, "svm"),
		Guest:       device.DetectMachine(r.text).Hypervisor != "",
	}
}

func (r *reader) xen(live bool) Xen {
	if !live {
		if r.startsXen() {
			return XenConfigured
		}
		return ""
	}
	switch device.DetectMachine(r.text).Hypervisor {
	case device.XenDom0:
		return XenDom0
	case device.XenGuest:
		return XenGuest
	default:
		return ""
	}
}

// startsXen reports whether GRUB's settings have arguments for Xen, and Xen is installed or the arguments are for its
// dom0. Every openSUSE has GRUB_CMDLINE_XEN_DEFAULT with a video mode, with or without Xen.
func (r *reader) startsXen() bool {
	settings := kernelargs.NewSettings(nil)
	for _, name := range append([]string{kernelargs.GRUBDefaults}, r.dropIns(kernelargs.GRUBDropIns)...) {
		settings.Source(name, r.text(name))
	}
	set, dom0 := false, false
	for _, name := range []string{"GRUB_CMDLINE_XEN", "GRUB_CMDLINE_XEN_DEFAULT"} {
		set = set || settings.Has(name)
		dom0 = dom0 || slices.ContainsFunc(strings.Fields(settings.Text(name)), func(word string) bool { return strings.HasPrefix(word, "dom0") })
	}
	return dom0 || set && r.hasXen()
}

// hasXen reports whether a Xen that a boot loader can start is installed: GRUB looks for /boot/xen*.gz and the like
// (GRUB's util/grub.d/20_linux_xen.in).
func (r *reader) hasXen() bool {
	return slices.ContainsFunc(r.list("boot"), func(name string) bool {
		return strings.HasPrefix(name, "xen") && slices.Contains([]string{".gz", ".efi", ".xz"}, path.Ext(name))
	})
}

func (r *reader) dropIns(dir string) []string {
	var all []string
	for _, name := range r.list(dir) {
		all = append(all, path.Join(dir, name))
	}
	return all
}

const tables = "sys/firmware/acpi/tables"

func (r *reader) firmware() Firmware {
	names := r.list(tables)
	f := Firmware{Readable: len(names) > 0}
	if slices.Contains(names, "DMAR") {
		f.DMAR = parsed(r, &f, "DMAR", facts.ParseDMAR)
	}
	if slices.Contains(names, "IVRS") {
		f.IVRS = parsed(r, &f, "IVRS", facts.ParseIVRS)
	}
	if slices.Contains(names, "IORT") {
		f.IORT = parsed(r, &f, "IORT", facts.ParseIORT)
	}
	return f
}

// parsed returns an existing table, or nil if it can't be read. A table that can't be parsed is returned empty.
func parsed[T any](r *reader, f *Firmware, name string, parse func(string) (T, error)) *T {
	data, err := r.tree.ReadAtMost(path.Join(tables, name), maxSource)
	r.note(err)
	if err != nil {
		f.Readable = false
		return nil
	}
	table, err := parse(string(data))
	r.note(err)
	return &table
}

func (r *reader) lockdown() string {
	// The active mode is in brackets: "none [integrity] confidentiality".
	_, rest, _ := strings.Cut(r.text("sys/kernel/security/lockdown"), "[")
	mode, _, _ := strings.Cut(rest, "]")
	return mode
}

// secureBoot reads the variable, whose value follows four bytes of attributes.
func (r *reader) secureBoot() string {
	switch value := r.text(efivars + "SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"); {
	case len(value) != 5:
		return ""
	case value[4] == 1:
		return "on"
	}
	return "off"
}

const efivars = "sys/firmware/efi/efivars/"

// kernel returns the running release. For an image it returns the newest installed one, by the numbers in the names.
func (r *reader) kernel(live bool) string {
	if live {
		return strings.TrimSpace(r.text("proc/sys/kernel/osrelease"))
	}
	newest := ""
	for _, release := range r.list("usr/lib/modules") {
		// A removed kernel may leave a directory, for example with DKMS modules. Without modules.dep, modprobe can't
		// load from it.
		if r.any(path.Join("usr/lib/modules", release, "modules.dep")) && newer(release, newest) {
			newest = release
		}
	}
	return newest
}

// newer reports whether a release is newer than another: 6.12 is newer than 6.9. A number is newer than a text, so that
// a release is newer than its candidates ("6.12.0-1" and "6.12.0-rc1").
func newer(a, b string) bool {
	return slices.CompareFunc(parts(a), parts(b), func(a, b string) int {
		m, errA := strconv.ParseUint(a, 10, 64)
		n, errB := strconv.ParseUint(b, 10, 64)
		switch {
		case errA == nil && errB == nil:
			return cmp.Compare(m, n)
		case errA == nil:
			return 1
		case errB == nil:
			return -1
		}
		return strings.Compare(a, b)
	}) > 0
}

// parts returns the numbers and texts of a name, without separators.
func parts(name string) []string {
	var all []string
	kind := 0
	for _, c := range name {
		before := kind
		switch {
		case c >= '0' && c <= '9':
			kind = 1
		case strings.ContainsRune("-._+~", c):
			kind = 0
			continue
		default:
			kind = 2
		}
		if kind != before || before == 0 {
			all = append(all, "")
		}
		all[len(all)-1] += string(c)
	}
	return all
}

// modules returns the kernel's modules, or nil if the kernel's list can't be read.
func (r *reader) modules(release string, live bool) map[string]Module {
	dir := path.Join("usr/lib/modules", release)
	if release == "" || !r.any(path.Join(dir, "modules.dep")) {
		// Systems without a merged /usr have the modules here.
		dir = path.Join("lib/modules", release)
	}
	dep, builtin := r.text(path.Join(dir, "modules.dep")), r.text(path.Join(dir, "modules.builtin"))
	if release == "" || dep == "" {
		return nil
	}
	modules := map[string]Module{}
	for line := range strings.Lines(dep) {
		name, _, _ := strings.Cut(line, ":")
		modules[moduleName(name)] = Module{Loadable: true}
	}
	for line := range strings.Lines(builtin) {
		modules[moduleName(line)] = Module{BuiltIn: true}
	}
	if live {
		r.markLoaded(modules)
	}
	return modules
}

// markLoaded marks the modules in /sys/module. A built-in module appears there only if it has parameters.
func (r *reader) markLoaded(modules map[string]Module) {
	for _, name := range r.list("sys/module") {
		if m, known := modules[name]; known {
			m.Loaded = true
			modules[name] = m
		}
	}
}

// moduleName returns the name of a module's file: "kernel/a/vfio-pci.ko.zst".
func moduleName(file string) string {
	name, _, _ := strings.Cut(path.Base(strings.TrimSpace(file)), ".ko")
	// A loaded module's name has underscores only, even if its file's name has dashes (modprobe(8)).
	return strings.ReplaceAll(name, "-", "_")
}
