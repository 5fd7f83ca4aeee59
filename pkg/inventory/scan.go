// Package inventory reads what a node has: every PCI function with its place,
// binding, IOMMU group and children, what on the node needs it, and the facts
// of the host. [Scan] reads all of it, [Rescan] what has changed, and a
// [Watcher] keeps a snapshot up to date by the kernel's uevents.
//
// A function that goes away while it is read is left out. Whatever else can't
// be read fails the scan: a node that is half read looks like a node with free
// devices.
package inventory

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"path"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/network/vf/link"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// Option changes how a scan is made.
type Option func(*scan)

// WithNames resolves vendor and model names from a pci.ids database. Names are for display only.
func WithNames(names *Names) Option { return func(s *scan) { s.names = names } }

// Lightly makes a [Rescan] keep facts that can't change while a device stays on the bus, such as the list of its capabilities. It still
// reads the parts of capabilities that software can change: the control words of ACS, ATS, PRI and PASID. It reads the capabilities of
// ports in full. It keeps more of a PF that is read only because of its VFs. Use it if only bindings, uses and isolation matter.
func Lightly() Option { return func(s *scan) { s.light = true } }

// KeepHost makes a [Rescan] keep which drivers and modules are loaded on the host, and their parameters. These facts matter only for new
// claims.
func KeepHost() Option { return func(s *scan) { s.keepHost = true } }

// scan is one reading of a node, or of a part of it.
type scan struct {
	fs    *sysfs.FS
	names *Names
	light bool
	// keepHost is that of [KeepHost].
	keepHost bool
	// asked are the functions that a rescan reads for their own sake, unlike functions that it reads only because of another one, such as
	// the PF of a VF.
	asked map[pci.Address]bool
	// base is the previous snapshot, whose facts count for all that is not read again; empty for a full scan.
	base *device.Snapshot
	// functions and groups hold what was read; nil for a function or group that does not exist.
	functions map[pci.Address]*device.Function
	groups    map[int]*device.Group
	// places are the places of functions in the device tree. It has only functions that were found in the directory that lists functions.
	places map[pci.Address]string
	// The sources of uses are read when the first function needs them. If ask is nil, the scan makes a connection of its own.
	ask     *link.Rtnetlink
	network *network
	mounts  *mounts
	storage *storage
	// frames are the firmware's frame buffers, nil before they are read.
	frames *frameBuffers
}

func newScan(fs *sysfs.FS, base *device.Snapshot, opts []Option) *scan {
	s := &scan{
		fs:        fs,
		base:      base,
		functions: map[pci.Address]*device.Function{},
		groups:    map[int]*device.Group{},
		asked:     map[pci.Address]bool{},
		places:    map[pci.Address]string{},
	}
	for _, o := range opts {
		o(s)
	}
	return s
}

// function returns what is known of a function, nil if there is none.
func (s *scan) function(a pci.Address) *device.Function {
	if f, ok := s.functions[a]; ok {
		return f
	}
	f, _ := s.base.Function(a)
	return f
}

// Scan reads the whole node. On an error it returns no snapshot.
func Scan(ctx context.Context, fs *sysfs.FS, opts ...Option) (*device.Snapshot, error) {
	s := newScan(fs, &device.Snapshot{}, opts)
	host, err := readHost(fs)
	if err != nil {
		return nil, fmt.Errorf("scan host facts: %w", err)
	}
	addrs, err := s.listFunctions()
	if err != nil {
		return nil, fmt.Errorf("scan PCI functions: %w", err)
	}
	if err := s.read(ctx, addrs); err != nil {
		return nil, fmt.Errorf("scan PCI functions: %w", err)
	}
	if err := s.readGroups(ctx); err != nil {
		return nil, fmt.Errorf("scan IOMMU groups: %w", err)
	}
	if err := s.finish(ctx, s.fresh()); err != nil {
		return nil, err
	}
	return s.snapshot(host), nil
}

// listFunctions returns the sorted addresses of the node's functions, and keeps their places: reading one link after the other is cheap in
// the directory that lists them.
func (s *scan) listFunctions() ([]pci.Address, error) {
	dir, err := s.fs.OpenDir(sysfs.Devices)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Names()
	if err != nil {
		return nil, err
	}
	addrs := make([]pci.Address, len(names))
	for i, name := range names {
		if addrs[i], err = pci.ParseAddress(name); err != nil {
			return nil, fmt.Errorf("list %s: %w", sysfs.Devices, err)
		}
		target, ok, err := dir.Link(name)
		if err != nil {
			return nil, err
		}
		if ok {
			s.places[addrs[i]] = path.Join(sysfs.Devices, target)
		}
	}
	slices.SortFunc(addrs, pci.Address.Compare)
	return addrs, nil
}

// read reads the functions at addrs.
func (s *scan) read(ctx context.Context, addrs []pci.Address) error {
	found := make([]*device.Function, len(addrs))
	err := spread(ctx, len(addrs), func(i int) (err error) {
		found[i], err = readFunction(s.fs, addrs[i], s.places[addrs[i]], s.keeps(addrs[i]))
		return err
	})
	if err != nil {
		return err
	}
	for i, f := range found {
		if f != nil {
			s.recall(f)
		}
		s.functions[addrs[i]] = f
	}
	return nil
}

// recall restores the former capabilities of a function whose configuration space can't be read now, because an operation on it hangs in
// the kernel. It does the same for the speed of its port.
func (s *scan) recall(f *device.Function) {
	before, ok := s.base.Function(f.Address)
	known := ok && sameDevice(f, before)
	if known && f.Locked && f.Capabilities.Truncated {
		f.Capabilities = before.Capabilities
	}
	switch {
	case f.PortSpeed != unknownSpeed:
	case known:
		f.PortSpeed = before.PortSpeed
	default:
		f.PortSpeed = 0
	}
}

// spread does n pieces of work on all processors: reading consists of system calls, some of which wait for slow registers of devices. It
// ends with the first error.
func spread(ctx context.Context, n int, work func(i int) error) error {
	if n == 1 && ctx.Err() == nil { // as when a claim ends: a goroutine costs as much as some reads
		return work(0)
	}
	g, ctx := errgroup.WithContext(ctx)
	workers := min(runtime.GOMAXPROCS(0), n)
	for first := range workers {
		g.Go(func() error {
			for i := first; i < n; i += workers {
				if err := ctx.Err(); err != nil {
					return err
				}
				if err := work(i); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// finish adds to the functions of fresh the facts that are known only once all functions and groups are read: names, switches, VF numbers,
// nested children and uses.
func (s *scan) finish(ctx context.Context, fresh []*device.Function) error {
	for _, f := range fresh {
		s.place(f)
		s.number(f)
	}
	s.names.apply(fresh)
	if err := s.readManagers(ctx, fresh); err != nil {
		return err
	}
	fresh = slices.DeleteFunc(slices.Clone(fresh), s.briefly)
	if err := s.adopt(fresh); err != nil {
		return fmt.Errorf("scan device nodes and children: %w", err)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := s.judgeUses(ctx, fresh); err != nil {
		return fmt.Errorf("scan what uses the functions: %w", err)
	}
	return nil
}

// fresh returns the functions that were read and are there, by address.
func (s *scan) fresh() []*device.Function {
	fresh := make([]*device.Function, 0, len(s.functions))
	for _, f := range s.functions {
		if f != nil {
			fresh = append(fresh, f)
		}
	}
	slices.SortFunc(fresh, func(a, b *device.Function) int { return a.Address.Compare(b.Address) })
	return fresh
}

// snapshot returns what is known as a value.
func (s *scan) snapshot(host device.Host) *device.Snapshot {
	return &device.Snapshot{
		Functions: merge(s.base.Functions, s.functions, func(f *device.Function) pci.Address { return f.Address }, pci.Address.Compare),
		Groups:    merge(s.base.Groups, s.groups, func(g *device.Group) int { return g.Number }, cmp.Compare[int]),
		Host:      host,
		Stale:     s.base.Stale,
	}
}

// merge returns base, which is sorted by key, with its entries replaced by those that were read under the same key. A nil entry removes the
// one of base.
func merge[K comparable, V any](base []V, read map[K]*V, key func(*V) K, compare func(a, b K) int) []V {
	keys := slices.SortedFunc(maps.Keys(read), compare)
	merged := make([]V, 0, len(base)+len(keys))
	for _, k := range keys {
		n := 0
		for n < len(base) && compare(key(&base[n]), k) < 0 {
			n++
		}
		merged = append(merged, base[:n]...)
		base = base[n:]
		if len(base) > 0 && key(&base[0]) == k {
			base = base[1:]
		}
		if v := read[k]; v != nil {
			merged = append(merged, *v)
		}
	}
	return append(merged, base...)
}

// parsePlace finds a function's root bus and the bridges above it in its place in
// the device tree:
//
//	sys/devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0
//	sys/devices/platform/bus@0/pci0002:00/0002:00:00.0/0002:01:00.0
//	sys/devices/pci0000:00/0000:00:0e.0/pci10000:e0/10000:e0:06.0/10000:e1:00.0
//
// The root is the last that is named, so that the domain behind a VMD
// controller has its own root and not the controller's.
func parsePlace(where string) (root string, upstream []pci.Address) {
	for element := range strings.SplitSeq(where, "/") {
		if isRoot(element) {
			root, upstream = element, nil
			continue
		}
		if a, err := pci.ParseAddress(element); err == nil {
			upstream = append(upstream, a)
		}
	}
	if len(upstream) < 2 { // the function itself, or a place made by hand
		return root, nil
	}
	return root, upstream[:len(upstream)-1]
}

// isRoot reports whether an element names a root bus, "pciDDDD:BB".
func isRoot(element string) bool {
	domainAndBus, ok := strings.CutPrefix(element, "pci")
	if !ok {
		return false
	}
	// An address is a root bus' name with a device and a function.
	_, err := pci.ParseAddress(domainAndBus + ":00.0")
	return err == nil
}

// lastAddress returns the function that a place in the device tree belongs to.
func lastAddress(where string) (pci.Address, bool) {
	for {
		i := strings.LastIndexByte(where, '/')
		if a, err := pci.ParseAddress(where[i+1:]); err == nil {
			return a, true
		}
		if i < 0 {
			return pci.Address{}, false
		}
		where = where[:i]
	}
}

// place finds the lowest switch above f: the nearest bridge that is a switch's upstream port. If a bridge on the way can't be read, the
// lowest switch is unknown, and none is set.
func (s *scan) place(f *device.Function) {
	f.Switch = nil
	for i := len(f.Upstream) - 1; i >= 0; i-- {
		bridge := s.function(f.Upstream[i])
		// The kernel shows 64 bytes only without CAP_SYS_ADMIN (pci_read_config in drivers/pci/pci-sysfs.c), and the port's type
		// lies behind them.
		if bridge == nil || bridge.Capabilities.Express == nil && bridge.Capabilities.Truncated {
			return
		}
		if e := bridge.Capabilities.Express; e != nil && e.Type == pci.UpstreamPort {
			f.Switch = &f.Upstream[i]
			return
		}
	}
}

// number gives a VF its index: its place in its PF's list.
func (s *scan) number(f *device.Function) {
	if f.VF == nil {
		return
	}
	f.VF.Index = -1
	if pf := s.function(f.VF.PF); pf != nil && pf.PF != nil {
		f.VF.Index = slices.Index(pf.PF.VFs, f.Address)
	}
	if f.VF.Index < 0 {
		f.VF.Index = s.rank(f)
	}
}

// rank counts the VFs of the same PF before f. The kernel creates a VF before the PF's link to it. Until the link exists, the count is the
// VF's index, because VFs appear in the order of index and address.
func (s *scan) rank(f *device.Function) int {
	n := 0
	for _, other := range s.functions {
		if other != nil && precedes(other, f) {
			n++
		}
	}
	for i := range s.base.Functions {
		other := &s.base.Functions[i]
		if _, read := s.functions[other.Address]; !read && precedes(other, f) {
			n++
		}
	}
	return n
}

// precedes reports whether other is a VF of f's PF and comes before f.
func precedes(other, f *device.Function) bool {
	return other.VF != nil && other.VF.PF == f.VF.PF && other.Address.Compare(f.Address) < 0
}
