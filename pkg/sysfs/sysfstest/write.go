package sysfstest

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// pageSize is what one write to an attribute carries at most.
const pageSize = 4096

// Write is one write that reached an attribute, or was refused before.
type Write struct {
	// Path is the path as given, below the node's root and without a leading slash.
	Path  string
	Value string
	// Err is the kernel's answer.
	Err error
}

// script has the test's orders for writes. It is guarded by Kernel.mu.
type script struct {
	refuse error
	before []func(file, value string) error
	after  []func(file, value string)
	log    []Write
	resets []ResetCall
	reset  map[pci.Address]func(method string) (ResetEffect, error)
	uevent func(Uevent)
}

// OnWrite calls hook before each write takes effect, if its attribute exists and is writable. An error of hook is the
// kernel's answer, and the write has no effect. hook may block: writes for other functions continue, and those for the
// same function wait. It may call [Kernel.Remove]. It must not write for the same function or call AddDriver, which
// would wait for it. Several hooks are called in order.
func (k *Kernel) OnWrite(hook func(file, value string) error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.script.before = append(k.script.before, hook)
}

// AfterWrite has hook called after each write that succeeded, before Write
// returns. It may do anything: write itself, as udev does when it gives a
// function back to the driver that has just lost it (such writes come here
// too), or call AddDriver, as a late module load does.
func (k *Kernel) AfterWrite(hook func(file, value string)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.script.after = append(k.script.after, hook)
}

// Refuse makes every write from now on end with err before it reaches its
// attribute: unix.EROFS for a read-only /sys, unix.EACCES for a writer without
// privileges. nil ends that.
func (k *Kernel) Refuse(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.script.refuse = err
}

// Writes returns all writes so far, in the order in which they ended.
func (k *Kernel) Writes() []Write {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.script.log)
}

// Write writes one attribute and answers as the kernel would, with a
// [unix.Errno]. It implements control.Writer.
func (k *Kernel) Write(name string, data []byte) error {
	value := string(data)
	t, err := k.open(name, value)
	if err == nil && value != "" {
		err = k.store(t, name, value)
	}
	k.mu.Lock()
	k.script.log = append(k.script.log, Write{Path: name, Value: value, Err: err})
	after := slices.Clone(k.script.after)
	k.mu.Unlock()
	if err != nil {
		return err
	}
	for _, hook := range after {
		hook(name, value)
	}
	return nil
}

// A target is the attribute of a write.
type target struct {
	store storeFunc
	// function is the function that the write affects: the attribute's own, or the one in the value; nil if there is
	// none.
	function *function
	driver   *driver // of bind and unbind
}

// A storeFunc is the kernel's function for a write. The function's lock is held (see store), Kernel.mu is not.
type storeFunc func(k *Kernel, t target, value string) error

// store runs the hooks and the store function, under the function's lock except for
// reset_method, whose store function does not take it.
func (k *Kernel) store(t target, name, value string) error {
	if t.function != nil && path.Base(name) != "reset_method" {
		t.function.acquire()
		defer t.function.release()
	}
	k.mu.Lock()
	before := slices.Clone(k.script.before)
	k.mu.Unlock()
	for _, hook := range before {
		if err := hook(name, value); err != nil {
			return err
		}
	}
	return t.store(k, t, value)
}

// open finds the attribute, as open(2) with O_WRONLY does.
func (k *Kernel) open(name, value string) (target, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	name = path.Clean(name)
	if !filepath.IsLocal(name) {
		return target{}, unix.ENOENT
	}
	info, err := os.Stat(k.Path(name))
	if err != nil {
		return target{}, unix.ENOENT
	}
	if info.IsDir() {
		return target{}, unix.EISDIR
	}
	if k.script.refuse != nil {
		return target{}, k.script.refuse
	}
	t := k.find(name, value)
	if t.store == nil {
		return target{}, unix.EACCES
	}
	return t, nil
}

// find returns the target of a write, without a store function if the file
// can't be written. Callers hold mu.
func (k *Kernel) find(name, value string) target {
	dir, attr := path.Split(name)
	dir = path.Clean(dir)
	if name == "sys/bus/pci/drivers_probe" {
		return target{store: (*Kernel).storeProbe, function: k.named(value)}
	}
	if path.Dir(dir) == "sys/bus/pci/drivers" {
		return target{store: driverStore(attr), function: k.named(value), driver: k.driverByName(path.Base(dir))}
	}
	if t, ok := k.driverFile(name); ok {
		return t
	}
	a, err := pci.ParseAddress(path.Base(dir))
	f := k.functions[a]
	if err != nil || f == nil || dir != f.dir && path.Dir(dir) != "sys/bus/pci/devices" {
		return target{}
	}
	return target{store: functionStore(attr), function: f}
}

// driverFile returns the target of a write to an attribute of a function's driver. Callers hold mu.
func (k *Kernel) driverFile(name string) (target, bool) {
	rest, ok := strings.CutPrefix(name, "sys/bus/pci/devices/")
	function, name, below := strings.Cut(rest, "/")
	a, err := pci.ParseAddress(function)
	if !ok || !below || err != nil || k.functions[a] == nil {
		return target{}, false
	}
	file, ok := k.functions[a].files[name]
	if !ok || file.Store == nil {
		return target{}, false
	}
	store := func(k *Kernel, _ target, value string) error { return k.storeFile(a, file, value) }
	return target{store: store, function: k.functions[a]}, true
}

func driverStore(attr string) storeFunc {
	switch attr {
	case "bind":
		return (*Kernel).storeBind
	case "unbind":
		return (*Kernel).storeUnbind
	}
	return nil
}

func functionStore(attr string) storeFunc {
	switch attr {
	case "driver_override":
		return (*Kernel).storeOverride
	case "reset":
		return (*Kernel).storeReset
	case "reset_method":
		return (*Kernel).storeResetMethod
	case "sriov_numvfs":
		return (*Kernel).storeNumVFs
	case "sriov_drivers_autoprobe":
		return (*Kernel).storeAutoprobe
	case "remove":
		return (*Kernel).storeRemove
	}
	return nil
}

// named returns the function that a value names as the kernel compares it: by
// its text, with or without a newline. Callers hold mu.
func (k *Kernel) named(value string) *function {
	word := word(value)
	a, err := pci.ParseAddress(word)
	if err != nil || a.String() != word {
		return nil
	}
	return k.functions[a]
}

// text returns the value up to a NUL, where the kernel's strings end.
func text(value string) string {
	value, _, _ = strings.Cut(value, "\x00")
	return value
}

// word returns the value as sysfs_streq compares it: one newline at the end
// does not count.
func word(value string) string { return strings.TrimSuffix(text(value), "\n") }

// storeRemove is remove_store of drivers/pci/pci-sysfs.c.
func (k *Kernel) storeRemove(t target, value string) error {
	n, ok := number(value)
	if !ok {
		return unix.EINVAL
	}
	if n == 0 {
		return nil
	}
	k.await(t.function)
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, below := range k.behind(t.function) {
		k.vanish(below)
	}
	k.vanish(t.function)
	return k.err
}

// Forget empties the lists of writes and resets, for tests that make very many.
func (k *Kernel) Forget() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.script.log, k.script.resets = nil, nil
}
