package sysfstest

import (
	"errors"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// A refusedProbe is the error of a driver's own probe function. After it, the kernel tries the next driver, unlike after
// earlier errors.
type refusedProbe struct{ error }

func (e refusedProbe) Unwrap() error { return e.error }

// acquire and release lock and unlock the device lock.
func (f *function) acquire() { f.lock <- struct{}{} }
func (f *function) release() { <-f.lock }

// attach offers f to the drivers that match it until one takes it
// (drivers/base/dd.c __device_attach). Callers hold f's lock, or f is new.
func (k *Kernel) attach(f *function) error {
	for _, d := range k.candidates(f) {
		err := k.probe(f, d)
		if _, ok := errors.AsType[refusedProbe](err); ok {
			continue
		}
		return err
	}
	return nil
}

// candidates returns the drivers that match f, none when it has one.
func (k *Kernel) candidates(f *function) []*driver {
	k.mu.Lock()
	defer k.mu.Unlock()
	if f.driver != nil || f.gone {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(k.drivers), func(d *driver) bool { return !d.matches(f) })
}

// probe binds f to d (drivers/base/dd.c really_probe). Callers hold f's lock,
// or f is new.
func (k *Kernel) probe(f *function, d *driver) error {
	if err := k.mayProbe(f, d); err != nil {
		return err
	}
	if d.Probe != nil {
		if err := d.Probe(f.Address); err != nil {
			return refusedProbe{err}
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if f.gone {
		return unix.ENODEV
	}
	f.driver = d
	k.link(path.Join(f.dir, "driver"), d.dir())
	k.link(path.Join(d.dir(), f.Address.String()), f.dir)
	k.put(path.Join(f.dir, "uevent"), f.uevent(), readWrite)
	if d.servesVFIO(f) {
		k.openVFIO(f)
	} else {
		k.makeChildren(f)
	}
	k.addFiles(f)
	k.say("bind", f.dir, "pci")
	return k.err
}

// mayProbe returns the error that keeps d from taking f: first the kernel's, from before the driver's probe function,
// then that of the probe function.
func (k *Kernel) mayProbe(f *function, d *driver) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case f.gone:
		return unix.ENODEV
	case f.driver != nil:
		return unix.EBUSY
	case !d.managesDMA(f) && k.owned(f.group):
		return unix.EBUSY
	case f.pf != nil && !f.pf.autoprobe && f.override == "":
		return refusedProbe{unix.ENODEV}
	case !d.servesVFIO(f):
		return nil
	case f.bridge != nil, f.group == nil && !k.host.noIOMMUMode:
		return refusedProbe{unix.EINVAL}
	case f.numVFs > 0:
		return refusedProbe{unix.EBUSY}
	}
	return nil
}

// detach takes f from its driver (drivers/base/dd.c __device_release_driver)
// and waits as long as the driver does. Callers hold f's lock.
func (k *Kernel) detach(f *function) error {
	k.mu.Lock()
	d := f.driver
	k.unlinkDriver(f)
	k.closeVFIO(f)
	k.mu.Unlock()

	k.await(f)
	if d.Remove != nil {
		d.Remove(f.Address)
	}
	if f.numVFs > 0 && !d.KeepsVFs {
		k.disableVFs(f)
	}

	k.mu.Lock()
	defer k.mu.Unlock()
	if f.gone { // while it waited; the kernel still says that it is unbound
		return k.err
	}
	k.dropChildren(f)
	k.leaveVFIOGroup(f)
	f.driver = nil
	k.put(path.Join(f.dir, "uevent"), f.uevent(), readWrite)
	k.say("unbind", f.dir, "pci")
	return k.err
}

// unlinkDriver removes the links between f and its driver. Callers hold mu.
func (k *Kernel) unlinkDriver(f *function) {
	if f.driver == nil {
		return
	}
	k.remove(path.Join(f.driver.dir(), f.Address.String()))
	k.remove(path.Join(f.dir, "driver"))
	for name := range f.files {
		k.remove(path.Join(f.dir, name))
	}
	f.files = nil
}

// addFiles adds the attributes of f's driver. Callers hold mu.
func (k *Kernel) addFiles(f *function) {
	if f.driver.Files == nil {
		return
	}
	var pf *pci.Address
	if f.pf != nil {
		pf = &f.pf.Address
	}
	f.files = map[string]File{}
	for _, file := range f.driver.Files(f.Address, pf) {
		f.files[file.Name] = file
		k.showFile(f, file)
	}
}

func (k *Kernel) showFile(f *function, file File) {
	mode := readOnly
	if file.Store != nil {
		mode = readWrite
	}
	k.put(path.Join(f.dir, file.Name), file.Content+"\n", mode)
}

// SetFile changes what a driver's attribute of a function reads. It may be called from a Store function.
func (k *Kernel) SetFile(a pci.Address, name, content string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if f := k.functions[a]; f != nil && f.files[name].Name != "" {
		file := f.files[name]
		file.Content = content
		f.files[name] = file
		k.showFile(f, file)
	}
}

// FixFile makes a driver's attribute of a function read-only.
func (k *Kernel) FixFile(a pci.Address, name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if f := k.functions[a]; f != nil {
		file := f.files[name]
		file.Store = nil
		f.files[name] = file
		k.showFile(f, file)
	}
}

// RemoveFile takes a driver's attribute away from a function, as a kernel that does not have it.
func (k *Kernel) RemoveFile(a pci.Address, name string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	f := k.functions[a]
	if f == nil || f.files[name].Name == "" {
		return unix.ENOENT
	}
	delete(f.files, name)
	k.remove(path.Join(f.dir, name))
	return k.err
}

// ReadFile returns what a driver's attribute of a function reads, without the newline; empty if there is none.
func (k *Kernel) ReadFile(a pci.Address, name string) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if f := k.functions[a]; f != nil {
		return f.files[name].Content
	}
	return ""
}

// storeFile is the store function of a driver's attribute.
func (k *Kernel) storeFile(a pci.Address, file File, value string) error {
	content, err := file.Store(word(value))
	if err == nil {
		k.SetFile(a, file.Name, content)
	}
	return err
}

// override sets or clears driver_override. Callers hold mu.
func (k *Kernel) override(f *function, driver string) {
	f.override = driver
	text := driver
	if text == "" {
		text = "(null)"
	}
	k.put(path.Join(f.dir, "driver_override"), text+"\n", readWrite)
}

// storeOverride is driver_override's store function (drivers/base/driver.c
// driver_set_override).
func (k *Kernel) storeOverride(t target, value string) error {
	if len(value) >= pageSize-1 {
		return unix.EINVAL
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if t.function.gone {
		return unix.ENODEV
	}
	driver, _, _ := strings.Cut(text(value), "\n")
	k.override(t.function, driver)
	return k.err
}

// storeUnbind is unbind_store of drivers/base/bus.c.
func (k *Kernel) storeUnbind(t target, _ string) error {
	if t.function == nil || !k.has(t.function, t.driver) {
		return unix.ENODEV
	}
	return k.detach(t.function)
}

// has reports whether d has f.
func (k *Kernel) has(f *function, d *driver) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return !f.gone && f.driver == d
}

// storeBind is bind_store of drivers/base/bus.c.
func (k *Kernel) storeBind(t target, _ string) error {
	if t.function == nil || !k.wants(t.driver, t.function) {
		return unix.ENODEV
	}
	err := k.probe(t.function, t.driver)
	if refused, ok := errors.AsType[refusedProbe](err); ok {
		return refused.error
	}
	return err
}

// wants reports whether d matches f.
func (k *Kernel) wants(d *driver, f *function) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return !f.gone && d.matches(f)
}

// storeProbe is drivers_probe_store of drivers/base/bus.c. If the function is not bound for another reason than a
// driver's refusal, the write fails with EINVAL.
func (k *Kernel) storeProbe(t target, _ string) error {
	if t.function == nil {
		return unix.ENODEV
	}
	if err := k.attach(t.function); err != nil {
		return unix.EINVAL
	}
	return k.Err()
}
