package sysfstest

import (
	"cmp"
	"fmt"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// spacing returns the distance of the first VF from the PF and of the VFs from
// one another, in routing ids.
func (f *function) spacing() (offset, stride int) {
	if f.SRIOV != nil {
		offset, stride = f.SRIOV.Offset, f.SRIOV.Stride
	}
	return cmp.Or(offset, 16), cmp.Or(stride, 1)
}

// storeNumVFs is sriov_numvfs_store of drivers/pci/iov.c.
func (k *Kernel) storeNumVFs(t target, value string) error {
	f := t.function
	n, ok := number(value)
	switch {
	case !ok || n > 0xffff:
		return unix.EINVAL
	case n > uint64(f.Capabilities.SRIOV.TotalVFs):
		return unix.ERANGE
	}
	k.mu.Lock()
	d, now, gone := f.driver, f.numVFs, f.gone
	k.mu.Unlock()
	switch {
	case gone:
		return unix.ENODEV
	case int(n) == now:
		return nil
	case d == nil || !d.SRIOV:
		return unix.ENOENT
	case n == 0:
		k.disableVFs(f)
		return k.Err()
	case now > 0:
		return unix.EBUSY
	}
	return k.enableVFs(f, int(n))
}

// enableVFs makes n VFs and probes them. Callers hold f's lock, or f is new.
func (k *Kernel) enableVFs(f *function, n int) error {
	k.mu.Lock()
	first, count := f.vfSpec(0), f.vfSpec(n-1)
	if first.Address.Bus < f.Address.Bus || count.Address.Bus < first.Address.Bus {
		k.mu.Unlock()
		return unix.ENOMEM // past the last bus
	}
	for i := range n {
		k.addVF(f, i)
	}
	k.setNumVFs(f, n)
	vfs := f.vfs
	k.mu.Unlock()
	for _, vf := range vfs {
		vf.acquire()
		_ = k.attach(vf) // the PF does not mind what becomes of its VFs
		vf.release()
	}
	return k.Err()
}

// addVF makes VF i of f, without a driver. Callers hold mu.
func (k *Kernel) addVF(f *function, i int) {
	spec := f.vfSpec(i)
	if k.functions[spec.Address] != nil {
		k.wrong("add VF %d of %s: %s is there already", i, f.Address, spec.Address)
		return
	}
	vf := &function{Function: spec, root: f.root, pf: f, index: i, dir: path.Join(path.Dir(f.dir), spec.Address.String())}
	k.appear(vf)
	k.link(path.Join(vf.dir, "physfn"), f.dir)
	k.link(path.Join(f.dir, "virtfn"+strconv.Itoa(i)), vf.dir)
	f.vfs = append(f.vfs, vf)
}

// vfSpec returns what VF i of f is like.
func (f *function) vfSpec(i int) Function {
	spec := Function{
		Address: f.vfAddress(i),
		Vendor:  f.Vendor, Device: f.Capabilities.SRIOV.VFDevice,
		SubVendor: f.SubVendor, SubDevice: f.SubDevice,
		Class: f.Class, Revision: f.Revision,
		ResetMethods: []string{"flr"},
		Capabilities: pci.Capabilities{
			Express: &pci.Express{Type: pci.Endpoint, FLR: true},
			MSIX:    true,
		},
	}
	if s := f.SRIOV; s != nil {
		spec.Class = cmp.Or(s.Class, spec.Class)
		spec.BARs = s.BARs
		if s.ResetMethods != nil {
			spec.ResetMethods = s.ResetMethods
		}
	}
	return spec
}

// vfAddress returns where VF i of f is: its routing id is the PF's plus the
// offset and i strides (SR-IOV 2.1.2).
func (f *function) vfAddress(i int) pci.Address {
	offset, stride := f.spacing()
	a := f.Address
	id := int(a.Bus)<<8 + int(a.Device)<<3 + int(a.Function) + offset + i*stride
	return pci.Address{Domain: a.Domain, Bus: uint8(id >> 8), Device: uint8(id >> 3 & 0x1f), Function: uint8(id & 7)}
}

// disableVFs removes all VFs of f, each as soon as no process holds it. Callers hold f's lock.
func (k *Kernel) disableVFs(f *function) {
	k.mu.Lock()
	vfs := f.vfs
	k.mu.Unlock()
	for _, vf := range vfs {
		vf.acquire()
		k.await(vf)
		k.mu.Lock()
		k.vanish(vf)
		k.mu.Unlock()
		vf.release()
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if f.gone {
		return
	}
	for i := range vfs {
		k.remove(path.Join(f.dir, "virtfn"+strconv.Itoa(i)))
	}
	f.vfs = nil
	k.setNumVFs(f, 0)
}

// setNumVFs shows the number of VFs in sysfs and in the SR-IOV capability.
// Callers hold mu.
func (k *Kernel) setNumVFs(f *function, n int) {
	k.changeConfig(f, func() { f.numVFs = n })
	k.put(path.Join(f.dir, "sriov_numvfs"), fmt.Sprintln(n), readWrite)
	k.say("change", f.dir, "pci")
}

// storeAutoprobe is sriov_drivers_autoprobe_store of drivers/pci/iov.c.
func (k *Kernel) storeAutoprobe(t target, value string) error {
	on, ok := boolean(value)
	if !ok {
		return unix.EINVAL
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if t.function.gone {
		return unix.ENODEV
	}
	t.function.autoprobe = on
	k.put(path.Join(t.function.dir, "sriov_drivers_autoprobe"), digit(on), readWrite)
	return k.err
}

// number parses a value as kstrtoul does with base 0.
func number(value string) (uint64, bool) {
	n, err := strconv.ParseUint(word(value), 0, 64)
	return n, err == nil
}

// boolean parses a value as kstrtobool does: by its first letter, or two for
// "on" and "off".
func boolean(value string) (on, ok bool) {
	v := strings.ToLower(text(value))
	switch {
	case v == "":
		return false, false
	case strings.ContainsRune("1yt", rune(v[0])), strings.HasPrefix(v, "on"):
		return true, true
	}
	return false, strings.ContainsRune("0nf", rune(v[0])) || strings.HasPrefix(v, "of")
}
