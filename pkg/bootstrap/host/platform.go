package host

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/kernelargs"
)

// Platform describes the node. A zero field means unknown: an image does not show its firmware, for example.
type Platform struct {
	// Live is true if the tree is the running node's, with its kernel's /proc and /sys.
	Live bool
	OS   OS
	// Arch is "amd64", "arm64" or empty.
	Arch     string
	CPU      CPU
	Xen      Xen
	Firmware Firmware
	// IOMMUs are the IOMMUs that the running kernel drives.
	IOMMUs []string
	// Kernel is the running release, or the newest installed one.
	Kernel string
	// Modules are that kernel's modules, by names with "_". It is nil if the list of modules can't be read.
	Modules map[string]Module
	// Cmdline is the running kernel's command line.
	Cmdline string
	// Lockdown and SecureBoot are for display.
	Lockdown, SecureBoot string
	Loader               Loader
	Initramfs            Initramfs
	// Systemd is true if the node has systemd, which reads unit files.
	Systemd bool
	// SystemdRuns and UdevRuns say whether systemd and udev run and can be notified of changes, as sd_booted(3) and udevadm(8)
	// define it. They are false for an image.
	SystemdRuns, UdevRuns bool
	Networkd              bool
	// Unread are the errors of existing files that could not be read.
	Unread []string
	// denied are the errors of the files that this process may not read.
	denied []string
}

// OS is the system according to os-release(5).
type OS struct {
	ID, Name string
	// Version is VERSION_ID, such as "v1.13.2".
	Version string
	// fields are the names of all its fields.
	fields []string
}

// CPU is the processor according to /proc/cpuinfo.
type CPU struct {
	// Virtualizes is true if VT-x or SVM is available and enabled.
	Virtualizes bool
	// Guest is true if a hypervisor runs the node.
	Guest bool
}

// Xen is the node's role under Xen.
type Xen string

// Kinds. Xen uses the IOMMU itself, and its guests have none. An image may be started by Xen if its boot loader is
// configured for it.
const (
	XenDom0       Xen = "Xen's dom0"
	XenGuest      Xen = "a guest of Xen"
	XenConfigured Xen = "configured for Xen"
)

// Firmware has the ACPI tables about IOMMUs. Absent tables are nil.
type Firmware struct {
	DMAR *facts.DMAR
	IVRS *facts.IVRS
	IORT *facts.IORT
	// Readable is true if the directory of tables is not empty, and the tables above could be read.
	Readable bool
}

// Initramfs is the tool that generates the initial RAM file system.
type Initramfs string

// The tools' names.
const (
	UpdateInitramfs Initramfs = "update-initramfs"
	Dracut          Initramfs = "dracut"
	// TransactionalDracut: the root is read-only, and transactional-update runs dracut in a new snapshot.
	TransactionalDracut Initramfs = "dracut by transactional-update"
	Mkinitcpio          Initramfs = "mkinitcpio"
	Booster             Initramfs = "booster"
)

// Detect determines the platform from the files of a tree. live says that the tree is the running node's.
func Detect(tree state.Tree, live bool) *Platform {
	r := &reader{tree: tree}
	p := &Platform{Live: live, OS: r.system(), Arch: r.architecture()}
	if live {
		p.CPU, p.Firmware = r.cpu(), r.firmware()
		p.IOMMUs = r.list("sys/class/iommu")
		p.Cmdline = r.text(kernelargs.Running)
		p.Lockdown, p.SecureBoot = r.lockdown(), r.secureBoot()
		p.SystemdRuns = slices.Contains(r.list("run/systemd"), "system")
		p.UdevRuns = slices.Contains(r.list("run/udev"), "control")
	}
	p.Xen = r.xen(live)
	p.Kernel = r.kernel(live)
	p.Modules = r.modules(p.Kernel, live)
	p.Loader = r.loader(&p.OS, live, p.Cmdline)
	p.Initramfs = r.initramfs()
	p.Systemd = r.any("usr/lib/systemd/systemd", "lib/systemd/systemd")
	p.Networkd = r.any("usr/lib/systemd/systemd-networkd", "lib/systemd/systemd-networkd")
	p.Unread, p.denied = r.unread, r.denied
	return p
}

// reader reads files that may be absent, and records those that it can't read.
type reader struct {
	tree           state.Tree
	unread, denied []string
}

// maxSource is the maximum size in bytes of a file that is read. modules.dep has a megabyte.
const maxSource = 8 << 20

func (r *reader) text(name string) string {
	data, err := r.tree.ReadAtMost(name, maxSource)
	r.note(err)
	return string(data)
}

func (r *reader) list(dir string) []string {
	names, err := r.tree.ReadDir(dir)
	r.note(err)
	return names
}

func (r *reader) note(err error) {
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.unread = append(r.unread, err.Error())
	}
	if errors.Is(err, fs.ErrPermission) {
		r.denied = append(r.denied, err.Error())
	}
}

// any reports whether one of the files exists. A directory does not count, nor does a file that can't be read; the
// latter is noted if access was denied.
func (r *reader) any(names ...string) bool { return r.first(names...) != "" }

// first returns the first file that exists.
func (r *reader) first(names ...string) string {
	for _, name := range names {
		_, err := r.tree.ReadAtMost(name, 1)
		if err == nil {
			return name
		}
		if errors.Is(err, fs.ErrPermission) {
			r.note(err)
		}
	}
	return ""
}

func (r *reader) system() OS {
	// The first file that exists applies; it replaces the other completely (os-release(5)).
	file := r.first("etc/os-release", "usr/lib/os-release")
	if file == "" {
		return OS{}
	}
	fields := map[string]string{}
	for line := range strings.Lines(r.text(file)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		fields[key] = strings.Trim(value, `"'`)
	}
	return OS{ID: fields["ID"], Name: fields["PRETTY_NAME"], Version: fields["VERSION_ID"], fields: slices.Collect(maps.Keys(fields))}
}

// architecture reads a program's ELF header, because an image has no running kernel.
func (r *reader) architecture() string {
	const machine = 18
	for _, name := range []string{"usr/bin/env", "usr/lib/systemd/systemd", "bin/sh"} {
		head, err := r.tree.ReadAtMost(name, machine+2)
		if err != nil || len(head) < machine+2 || !strings.HasPrefix(string(head), "\x7fELF") {
			continue
		}
		switch head[machine] { // e_machine: EM_X86_64, EM_AARCH64
		case 62:
			return "amd64"
		case 183:
			return "arm64"
		}
	}
	return ""
}

// initramfs returns the installed tool. Since version 108, Debian's package of dracut also has a program update-initramfs,
// which runs dracut and never the hooks of initramfs-tools. The two packages can't be installed together, and only
// initramfs-tools has hook-functions.
func (r *reader) initramfs() Initramfs {
	dracut := r.any("usr/bin/dracut", "usr/sbin/dracut")
	switch {
	case r.any("usr/sbin/update-initramfs") && (!dracut || r.any("usr/share/initramfs-tools/hook-functions")):
		return UpdateInitramfs
	case dracut && r.any(transactionalUpdate):
		return TransactionalDracut
	case dracut:
		return Dracut
	case r.any("usr/bin/mkinitcpio"):
		return Mkinitcpio
	case r.any("usr/bin/booster"):
		return Booster
	}
	return ""
}

// Facts returns the findings, for people and for reports.
func (p *Platform) Facts() []state.Fact {
	var found []state.Fact
	add := func(name, value, source string) {
		if value != "" {
			found = append(found, state.Fact{Part: "platform", Name: name, Value: value, Source: source})
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
	if p.Firmware.IORT != nil {
		add("IORT", fmt.Sprintf("SMMUs: %d", p.Firmware.IORT.SMMUs), "/"+tables+"/IORT")
	}
	add("hypervisor", string(p.Xen), "/sys/hypervisor/type, /etc/default/grub.d")
	add("IOMMUs", strings.Join(p.IOMMUs, " "), "/sys/class/iommu")
	add("lockdown", p.Lockdown, "/sys/kernel/security/lockdown")
	add("Secure Boot", p.SecureBoot, "/"+efivars)
	for _, text := range p.Unread {
		add("not readable", text, "")
	}
	return found
}

// Denied returns the problem that this process may not read files that describe the node, or none. All other results are
// unreliable then.
func (p *Platform) Denied() []state.Problem {
	if !p.Live || len(p.denied) == 0 {
		return nil
	}
	return []state.Problem{{
		Part: "platform", Code: rule.FileUnreadable, Fatal: true, Text: "files that describe the node could not be read, so the results below are unreliable: " + strings.Join(p.denied, "; "),
		Fix: "run bootstrap as root",
	}}
}

// source names the file that configures the loader.
func (l *Loader) source() string {
	for _, name := range append([]string{l.Defaults, l.Config, l.Cmdline}, l.EntryFiles...) {
		if name != "" {
			return "/" + name
		}
	}
	return "/"
}
