package sysfstest

import (
	"path"
	"strconv"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// UnloadDriver unloads a driver's module, as "rmmod" does: its functions lose it
// first, and PFs their VFs with it, unless the driver keeps them. [Kernel.Load]
// loads it again.
func (k *Kernel) UnloadDriver(name string) {
	k.mu.Lock()
	d := k.driverByName(name)
	bound := []*function{}
	for _, f := range k.sorted() {
		if d != nil && f.driver == d {
			bound = append(bound, f)
		}
	}
	if d == nil {
		k.wrong("unload driver %s: it is not loaded", name)
	}
	k.mu.Unlock()
	for _, f := range bound {
		f.acquire()
		if k.has(f, d) { // a VF goes with its PF
			_ = k.detach(f) // what went wrong is kept
		}
		f.release()
	}
	k.build(func() {})
	k.AddModule(name, d.Driver)
	k.RemoveDriver(name)
}

// SlowVFs makes each VF of the PF take a while: mlx5 takes 200 ms for one. A
// write to sriov_numvfs answers that much later, and the PF's lock is held.
// Tests run it in a bubble of testing/synctest, where no time passes.
func (k *Kernel) SlowVFs(pf pci.Address, each time.Duration) {
	k.OnWrite(func(name, value string) error {
		dir, attr := path.Split(name)
		if attr == "sriov_numvfs" && path.Base(dir) == pf.String() {
			n, _ := strconv.Atoi(word(value)) // the kernel answers what is no number
			<-time.After(time.Duration(n) * each)
		}
		return nil
	})
}
