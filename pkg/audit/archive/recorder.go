package archive

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sync/errgroup"

	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// Recorder records what is read through a file system. Safe for concurrent use.
type Recorder struct {
	node *sysfs.FS // untapped

	mu      sync.Mutex // guards those below
	entries map[string]*entry
	dirs    map[string]string // directories as they were asked for, and where they are
	plain   map[string]bool   // places that are no links
	// text is what [Recorder.Rewrite] does with a text.
	text func(string) string
}

// entry is what the recorder knows of one file.
type entry struct {
	data    []byte
	read    bool
	target  string
	link    bool
	names   []string
	listed  bool
	opened  bool
	info    fs.FileInfo
	failed  map[sysfs.Op]error
	content bool // made by the collector
}

// Record returns a file system like node whose reads are kept.
func Record(node *sysfs.FS) (*sysfs.FS, *Recorder) {
	r := &Recorder{node: node, entries: map[string]*entry{}, dirs: map[string]string{}, plain: map[string]bool{}, text: func(s string) string { return s }}
	return node.WithTap(r.saw), r
}

// Put adds a file that the node does not have, with answers of the kernel or of a program. It does not replace a file of
// the node.
func (r *Recorder) Put(name string, data []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.entry(name)
	if e.read {
		return
	}
	*e = entry{data: data, read: true, content: true}
}

// Rewrite has every content pass through f with its name, and every name, link and
// list without one, and leaves out the files that drop names. It is called last
// before [Recorder.Write].
func (r *Recorder) Rewrite(f func(place string, data []byte) []byte, drop func(place string) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	text := func(s string) string { return string(f("", []byte(s))) }
	r.text = text
	renamed := make(map[string]*entry, len(r.entries))
	for place, e := range r.entries {
		if drop(place) {
			continue
		}
		e.target = text(e.target)
		if e.read {
			e.data = f(place, e.data)
		}
		for i := range e.names {
			e.names[i] = text(e.names[i])
		}
		slices.Sort(e.names)
		renamed[text(place)] = e
	}
	r.entries = renamed
}

// Contents returns the contents of the files whose names match, by name. The slices
// are the recorder's own: don't change them.
func (r *Recorder) Contents(match func(place string) bool) map[string][]byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	found := map[string][]byte{}
	for place, e := range r.entries {
		if e.read && match(place) {
			found[place] = e.data
		}
	}
	return found
}

// Each calls f for each file with a link's target, a directory's names, or the content. They belong to the recorder:
// don't change or keep them.
func (r *Recorder) Each(f func(place, target string, names []string, data []byte)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for place, e := range r.entries {
		f(place, e.target, e.names, e.data)
	}
}

// saw keeps an access, but not a ledger's content, which may be large: that is for
// [Recorder.Ledger].
func (r *Recorder) saw(a sysfs.Access) {
	if a.Op == sysfs.OpRead && a.Err == nil && path.Dir(a.Path) == ledger.DefaultDir && isHistory(path.Base(a.Path)) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.entry(r.place(a.Path, a.Op != sysfs.OpLink))
	if a.Err != nil {
		if errors.Is(a.Err, syscall.EINVAL) && a.Op == sysfs.OpLink { // it is there, and no link
			e.opened = true
			return
		}
		if e.failed == nil {
			e.failed = map[sysfs.Op]error{}
		}
		e.failed[a.Op] = a.Err
		return
	}
	e.keep(a)
}

func (e *entry) keep(a sysfs.Access) {
	switch a.Op {
	case sysfs.OpOpen:
		e.opened = true
	case sysfs.OpRead:
		if !e.read || len(a.Data) > len(e.data) {
			e.data = slices.Clone(a.Data)
		}
		e.read = true
	case sysfs.OpList:
		e.names, e.listed = slices.Clone(a.Names), true
	case sysfs.OpLink:
		e.target, e.link = string(a.Data), true
	case sysfs.OpStat:
		e.info, e.opened = a.Info, true
	}
}

// entry returns the entry of a place, and creates a missing one. Callers hold mu.
func (r *Recorder) entry(place string) *entry {
	e := r.entries[place]
	if e == nil {
		e = &entry{}
		r.entries[place] = e
	}
	return e
}

// place resolves a path, and records its links. Callers hold mu.
func (r *Recorder) place(name string, follow bool) string {
	dir, last := path.Split(path.Clean(name))
	if dir == "" || last == ".." {
		return walk(name, follow, r.linkAt)
	}
	where, ok := r.dirs[dir]
	if !ok {
		where = walk(dir, true, r.linkAt)
		r.dirs[dir] = where
	}
	return walk(path.Join(where, last), follow, r.linkAt)
}

// linkAt returns the target of the link at a place whose parents are not links.
func (r *Recorder) linkAt(place string) (string, bool) {
	if e := r.entries[place]; e != nil && e.link {
		return e.target, true
	}
	if r.plain[place] {
		return "", false
	}
	target, err := r.node.ReadLink(place)
	if err != nil {
		r.plain[place] = true
		return "", false
	}
	e := r.entry(place)
	e.target, e.link = target, true
	return target, true
}

// maxWide is how much of a file is read that no check of this version asks for, and
// maxMatches how many files one pattern may match.
const (
	maxWide    = 1 << 20
	maxMatches = 1 << 17
)

// Wide reads what later versions may judge by: with what the checks of this
// version read, that is what an archive has. What can't be read is kept as the
// reason. Reading any of it has no effect and does not wait for a device.
func Wide(ctx context.Context, fsys *sysfs.FS) error {
	w := wide{fs: fsys, lists: map[string][]string{}}
	for _, pattern := range Patterns() {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("read the node's files: %w", err)
		}
		w.read(pattern)
	}
	return nil
}

// Patterns are the files that an archive has, whatever the checks ask for: by path.Match,
// element by element.
func Patterns() []string {
	all := []string{
		"proc/cmdline", "proc/version", "proc/cpuinfo", "proc/modules", "proc/swaps", "proc/filesystems",
		"proc/sys/kernel/*", "proc/sys/vm/*", "proc/sys/net/core/bpf_*", "proc/sys/net/ipv4/ip_forward",
		"sys/bus/pci/devices/*/p2pmem/*", "sys/bus/pci/devices/*/power/control", "sys/bus/pci/devices/*/power/runtime_status",
		"sys/bus/pci/devices/*/msi_irqs/*", "sys/bus/thunderbolt/devices/*/*",
		"sys/kernel/iommu_groups/*/*", "sys/kernel/irq/*/*", "sys/kernel/security/*", "sys/kernel/mm/ksm/*",
		"sys/kernel/mm/transparent_hugepage/enabled", "sys/kernel/livepatch/*/enabled",
		"sys/class/iommu/*/*/*", "sys/class/net/*/*", "sys/class/net/*/statistics/*", "sys/class/infiniband/*/*",
		"sys/class/dmi/id/sys_vendor", "sys/class/dmi/id/product_name", "sys/class/dmi/id/bios_*", "sys/class/dmi/id/board_name",
		"sys/class/dmi/id/board_vendor", "sys/class/dmi/id/chassis_type", "sys/hypervisor/type",
		"sys/devices/system/cpu/*", "sys/devices/system/cpu/vulnerabilities/*", "sys/devices/system/cpu/smt/*",
		"sys/devices/system/cpu/*/microcode/version", "sys/devices/system/node/*", "sys/devices/system/edac/mc/*/*",
		"sys/devices/system/clocksource/*/*",
		"sys/firmware/acpi/tables/DMAR", "sys/firmware/acpi/tables/IVRS", "sys/firmware/acpi/tables/IORT",
		"sys/firmware/efi/efivars/SecureBoot-*", "sys/firmware/efi/efivars/SetupMode-*",
		"etc/default/grub", "etc/default/grub.d/*", "etc/kernel/cmdline", "boot/loader/entries/*", "etc/modules", "etc/modules-load.d/*",
		"etc/os-release", "usr/lib/os-release", "etc/sysctl.conf", "etc/sysctl.d/*", "usr/lib/sysctl.d/*", "run/sysctl.d/*",
		"etc/udev/rules.d/*", "usr/lib/udev/rules.d/*vfio*", "etc/driverctl.d/*",
		"etc/cdi/*", "var/run/cdi/*", "run/cdi/*", "etc/containerd/*.toml", "etc/containerd/*/*.toml", "etc/crio/*", "etc/crio/*/*",
		"etc/kata-containers/*", "etc/kata-containers/*/*", "opt/kata/share/defaults/kata-containers/*",
		"opt/kata/share/defaults/kata-containers/*/*", "usr/share/defaults/kata-containers/*", "usr/share/nvidia/nvswitch/*.cfg",
		"etc/kata-vfio/*", "etc/kata-vfio/*/*", "etc/kubernetes/kubelet*", "var/lib/kubelet/config.yaml",
		journal.DefaultDir + "/*", journal.DefaultDir + "/unclean/*", journal.DefaultDir + "/drained/*", journal.DefaultDir + "/fatal-errors/*", "run/kata-vfio/*.json",
	}
	for _, attribute := range functionAttributes() {
		all = append(all, sysfs.Devices+"/*/"+attribute)
	}
	for _, dir := range []string{"etc", "run", "usr/local/lib", "usr/lib", "lib"} {
		all = append(all, dir+"/modprobe.d/*")
	}
	for _, module := range []string{"vfio*", "iommu*", "kvm*", "module", "nvidia*", "mlx5_core", "nvme*", "amdgpu", "pcie_*"} {
		all = append(all, "sys/module/"+module+"/parameters/*")
	}
	return all
}

// functionAttributes are what the kernel remembers of a function or reads from
// its header: not what acts when it is read (rom), asks the device at length
// (vpd), maps its memory (resource0) or takes its lock.
func functionAttributes() []string {
	return []string{
		"aer_dev_*", "aer_rootport_*", "broken_parity_status", "d3cold_allowed", "dma_mask_bits", "enable", "irq", "label", "index",
		"class", "device", "subsystem_device", "subsystem_vendor", "vendor",
		"local_cpulist", "msi_bus", "numa_node", "power_state", "removable", "reset_method", "resource", "secondary_bus_number",
		"subordinate_bus_number", "sriov_offset", "sriov_stride", "sriov_totalvfs", "sriov_vf_device", "sriov_drivers_autoprobe", "uevent",
		"xgmi_*",
	}
}

// private are files that match and must stay on the node: keys.
func private(name string) bool {
	base := path.Base(name)
	return strings.Contains(base, "key") || strings.HasSuffix(base, ".pem") || strings.Contains(base, "random") || strings.HasSuffix(base, ".secret")
}

// wide reads files by patterns.
type wide struct {
	fs    *sysfs.FS
	lists map[string][]string
}

func (w *wide) read(pattern string) {
	found := []string{""}
	for element := range strings.SplitSeq(pattern, "/") {
		var next []string
		for _, dir := range found {
			next = append(next, w.match(dir, element)...)
			if len(next) > maxMatches {
				return
			}
		}
		found = next
	}
	found = slices.DeleteFunc(found, private)
	inParallel(found, func(name string) {
		// The recorder keeps what it gave, an error too.
		_, _ = w.fs.ReadAtMost(name, maxWide)
	})
}

// inParallel calls f for each item, on all processors: the kernel takes most of the time.
func inParallel(items []string, f func(string)) {
	var g errgroup.Group
	part := max(1, (len(items)+runtime.GOMAXPROCS(0)-1)/runtime.GOMAXPROCS(0))
	for chunk := range slices.Chunk(items, part) {
		g.Go(func() error {
			for _, item := range chunk {
				f(item)
			}
			return nil
		})
	}
	_ = g.Wait() // f returns no error
}

// match returns what of a directory matches one element.
func (w *wide) match(dir, element string) []string {
	if !strings.ContainsAny(element, "*?[") {
		return []string{path.Join(dir, element)}
	}
	names, ok := w.lists[dir]
	if !ok {
		names, _ = w.fs.ReadDir(dir)
		w.lists[dir] = names
	}
	var found []string
	for _, name := range names {
		if ok, err := path.Match(element, name); err == nil && ok {
			found = append(found, path.Join(dir, name))
		}
	}
	return found
}
