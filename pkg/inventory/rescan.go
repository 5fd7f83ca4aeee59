package inventory

import (
	"context"
	"fmt"
	"path"
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// Rescan returns prev with the functions at addrs read again, and with them their IOMMU groups, the PFs of VFs,
// the VFs of a PF whose number changed, and what is loaded on the host. Everything else is shared with prev:
// names, uses and children of other functions, interrupt chips and module aliases. An address without a function
// drops out. After an error prev stays valid, and no snapshot is returned.
func Rescan(ctx context.Context, fs *sysfs.FS, prev *device.Snapshot, addrs []pci.Address, opts ...Option) (*device.Snapshot, error) {
	s, host := newScan(fs, prev, opts), prev.Host
	var err error
	if !s.keepHost {
		if host, err = refreshHost(fs, prev.Host); err != nil {
			return nil, fmt.Errorf("rescan host facts: %w", err)
		}
	}
	// A group may have members that neither the caller nor prev knows, and these may have changed other groups. Each function is read once,
	// so the loop ends.
	for next := addrs; len(next) > 0; {
		for _, a := range next {
			s.asked[a] = true
		}
		if err := s.reread(ctx, next); err != nil {
			return nil, fmt.Errorf("rescan PCI functions: %w", err)
		}
		if next, err = s.rereadGroups(); err != nil {
			return nil, fmt.Errorf("rescan IOMMU groups: %w", err)
		}
		if len(next) == 0 {
			next = s.unasked()
		}
	}
	fresh := s.fresh()
	inheritNames(prev, fresh)
	if err := s.finish(ctx, fresh); err != nil {
		return nil, err
	}
	return s.snapshot(host), nil
}

// reread reads the functions at addrs, and all functions that a change of these may affect. It reads no function twice.
func (s *scan) reread(ctx context.Context, addrs []pci.Address) error {
	for len(addrs) > 0 {
		// A VF affects its PF, and the PF its VFs, so a function that was read must not be read again.
		now := slices.DeleteFunc(distinct(addrs), func(a pci.Address) bool {
			_, done := s.functions[a]
			return done
		})
		there, err := s.locate(now)
		if err != nil {
			return err
		}
		if err := s.read(ctx, there); err != nil {
			return err
		}
		addrs = nil
		for _, a := range now {
			before, _ := s.base.Function(a)
			addrs = append(addrs, concerned(before, s.functions[a])...)
		}
	}
	return nil
}

// locate finds the places of functions in the device tree, and returns the addresses of those that exist. One look-up for each is enough in
// the directory that lists all functions.
func (s *scan) locate(addrs []pci.Address) (there []pci.Address, err error) {
	dir, err := s.fs.OpenDir(sysfs.Devices)
	if err != nil && !sysfs.Vanished(err) {
		return nil, err
	}
	if err == nil {
		defer dir.Close()
	}
	for _, a := range addrs {
		target, exists := "", false
		if dir != nil {
			if target, exists, err = dir.Entry(a.String()); err != nil {
				return nil, err
			}
		}
		if !exists {
			s.functions[a] = nil
			continue
		}
		if target != "" {
			s.places[a] = path.Join(sysfs.Devices, target)
		}
		there = append(there, a)
	}
	return there, nil
}

// distinct returns the addresses in order and without doubles.
func distinct(addrs []pci.Address) []pci.Address {
	addrs = slices.Clone(addrs)
	slices.SortFunc(addrs, pci.Address.Compare)
	return slices.Compact(addrs)
}

// concerned returns the functions that a change of one function from before to after may also have changed; before or after is nil if the
// function did not or does not exist. These are the PF of a VF, and all VFs of a PF that has gained or lost any, since its VFs appear and
// disappear together.
func concerned(before, after *device.Function) []pci.Address {
	var other []pci.Address
	for _, f := range []*device.Function{before, after} {
		if f != nil && f.VF != nil {
			other = append(other, f.VF.PF)
		}
	}
	if old, now := listVFs(before), listVFs(after); !slices.Equal(old, now) {
		other = slices.Concat(other, old, now)
	}
	return other
}

func listVFs(f *device.Function) []pci.Address {
	if f == nil || f.PF == nil {
		return nil
	}
	return f.PF.VFs
}

// rereadGroups reads the former and present groups of the functions that were read, and returns their members that
// were not known.
func (s *scan) rereadGroups() (unknown []pci.Address, err error) {
	numbers := map[int]bool{}
	for a, now := range s.functions {
		before, _ := s.base.Function(a)
		if now != nil && s.briefly(now) && same(before.Group, now.Group) {
			continue
		}
		for _, f := range []*device.Function{before, now} {
			if f != nil && f.Group != nil {
				numbers[*f.Group] = true
			}
		}
	}
	for n := range numbers {
		g, err := readGroup(s.fs, n, s.knownGroup(n))
		if err != nil {
			return nil, err
		}
		s.groups[n] = g
		unknown = append(unknown, s.unknown(g)...)
	}
	return unknown, nil
}

// same reports whether two functions are in one group, or in none.
func same(a, b *int) bool { return a == b || a != nil && b != nil && *a == *b }

// knownGroup returns the group whose regions may be kept, nil if there is none.
func (s *scan) knownGroup(number int) *device.Group {
	if !s.light {
		return nil
	}
	g, _ := s.base.Group(number)
	return g
}

// unknown returns the members of a group that were not read and are not in base.
func (s *scan) unknown(g *device.Group) []pci.Address {
	if g == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(g.Members), func(a pci.Address) bool {
		_, read := s.functions[a]
		return read || s.function(a) != nil
	})
}

// inheritNames gives the functions the names that prev has for their ids. It goes through prev once, because a rescan
// may be of thousands of functions.
func inheritNames(prev *device.Snapshot, fresh []*device.Function) {
	type key struct{ vendor, device pci.ID }
	named := map[key]*device.Function{}
	for i := range prev.Functions {
		f := &prev.Functions[i]
		if k := (key{f.Vendor, f.Device}); f.Model != "" && named[k] == nil {
			named[k] = f
		}
	}
	for _, f := range fresh {
		if like := named[key{f.Vendor, f.Device}]; like != nil {
			f.VendorName, f.Model = like.VendorName, like.Model
		}
	}
}
