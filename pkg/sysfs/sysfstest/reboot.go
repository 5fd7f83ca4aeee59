package sysfstest

import (
	"maps"
	"slices"
)

// Reboot restarts the node. What a reboot loses is lost: processes and their
// holds, everything below run, driver_override, VFs (but for those that a PF was
// added with, as if a boot script made them), what was written to
// configuration space or reset_method. There is a new boot id, every IOMMU
// group has another number, and all functions are probed anew. Drivers stay
// registered, as if loaded on boot.
//
// No Write may be under way.
func (k *Kernel) Reboot() {
	for _, h := range k.Holders() {
		h.Release()
	}
	var functions []*function
	k.build(func() {
		k.removeVFs()
		functions = k.sorted()
		k.renumber(functions)
		k.shutdown(functions)
		k.remove("run")
		k.mkdir("run")
		k.bootProc()
		for _, f := range functions {
			k.appear(f)
		}
	})
	for _, f := range functions {
		k.initialize(f)
	}
	k.build(func() {})
}

// removeVFs takes all VFs away. Callers hold mu.
func (k *Kernel) removeVFs() {
	for _, f := range k.sorted() {
		for _, vf := range f.vfs {
			k.vanish(vf)
		}
		f.vfs, f.numVFs = nil, 0
	}
}

// renumber gives each group the next one's number, so that an old number means
// another group and not merely nothing. Callers hold mu.
func (k *Kernel) renumber(functions []*function) {
	numbers := slices.Sorted(maps.Keys(k.groups))
	next := map[int]int{}
	for i, n := range numbers {
		next[n] = numbers[(i+1)%len(numbers)]
	}
	if len(numbers) == 1 {
		next[numbers[0]]++
	}
	for _, f := range functions {
		if f.group != nil && !f.group.noIOMMU {
			f.Group = next[f.group.number]
		}
	}
}

// shutdown takes all functions out of the tree. Callers hold mu.
func (k *Kernel) shutdown(functions []*function) {
	for _, f := range functions {
		k.unlinkDriver(f)
		k.dropChildren(f)
		k.closeVFIO(f)
		k.leaveVFIOGroup(f)
		k.leave(f)
		k.remove("sys/bus/pci/devices/" + f.Address.String())
		f.driver, f.override = nil, ""
	}
	for _, f := range functions {
		k.remove(f.dir)
	}
}
