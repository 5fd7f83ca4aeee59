package sysfstest

import (
	"bytes"
	"context"
	"errors"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// ResetEffect is the effect of a reset on a function's configuration space, which represents all of the function's state.
type ResetEffect int

const (
	// ResetWorks restores the configuration space after the header to its state when the function appeared. The kernel
	// saves and restores the header.
	ResetWorks ResetEffect = iota
	// ResetIgnored leaves everything as it is, although the reset succeeds.
	ResetIgnored
	// ResetKills leaves a function that does not answer: all ones.
	ResetKills
)

// ResetCall is one attempt at a reset.
type ResetCall struct {
	Address pci.Address
	// Method is the kernel's word, or "vfio_hot_reset" for [Kernel.HotReset].
	Method string
	Err    error
}

// OnReset decides what resets of the function do. The hook is called with the
// method; it may block, and it may return an errno, which is the outcome of
// that method: after ENOTTY the kernel tries the next one.
func (k *Kernel) OnReset(a pci.Address, hook func(method string) (ResetEffect, error)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.script.reset == nil {
		k.script.reset = map[pci.Address]func(string) (ResetEffect, error){}
	}
	k.script.reset[a] = hook
}

// Resets returns all attempts at resets so far, in order.
func (k *Kernel) Resets() []ResetCall {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.script.resets)
}

// SetConfig overwrites a part of a function's configuration space, as its driver or a tenant would. A reset that works
// undoes it after the header.
func (k *Kernel) SetConfig(a pci.Address, offset int, data ...byte) {
	k.build(func() {
		f := k.functions[a]
		if f == nil || offset < 0 || offset+len(data) > len(f.config) {
			k.wrong("set configuration space of %s at %#x: there is none", a, offset)
			return
		}
		copy(f.config[offset:], data)
		k.showConfig(f)
	})
}

// storeReset is reset_store of drivers/pci/pci-sysfs.c and
// __pci_reset_function_locked of drivers/pci/pci.c.
func (k *Kernel) storeReset(t target, value string) error {
	if n, ok := number(value); !ok || n != 1 {
		return unix.EINVAL
	}
	k.mu.Lock()
	methods := slices.Clone(t.function.methods)
	k.mu.Unlock()
	defer k.blockConfig(t.function)()
	for _, method := range methods {
		if err := k.reset(t.function, method); !errors.Is(err, unix.ENOTTY) {
			return err
		}
	}
	return unix.ENOTTY
}

// blockConfig keeps everybody from the configuration space of functions until the
// returned function is called (drivers/pci/access.c pci_cfg_access_lock, which
// pci_dev_lock takes).
func (k *Kernel) blockConfig(functions ...*function) (release func()) {
	add := func(n int) {
		k.mu.Lock()
		defer k.mu.Unlock()
		for _, f := range functions {
			f.resets += n
		}
	}
	add(1)
	return func() { add(-1) }
}

// reset tries one method. Callers hold f's lock.
func (k *Kernel) reset(f *function, method string) error {
	k.mu.Lock()
	hook := k.script.reset[f.Address]
	k.mu.Unlock()
	var effect ResetEffect
	var err error
	if hook != nil {
		effect, err = hook(method)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if err == nil && f.gone {
		err = unix.ENODEV
	}
	k.script.resets = append(k.script.resets, ResetCall{f.Address, method, err})
	if err != nil {
		return err
	}
	k.affect(f, effect)
	return k.err
}

// affect applies the effect of a reset to f. Callers hold mu.
func (k *Kernel) affect(f *function, effect ResetEffect) {
	switch effect {
	case ResetIgnored:
		return
	case ResetKills:
		f.config = bytes.Repeat([]byte{0xff}, len(f.config))
	case ResetWorks:
		clean := f.pristine()
		if !dead(f.config) {
			copy(clean, f.config[:headerSize])
		}
		f.config = clean
	}
	k.showConfig(f)
}

// dead reports whether a configuration space reads all ones.
func dead(config []byte) bool {
	return len(bytes.Trim(config, "\xff")) == 0
}

// changeConfig makes a change of f and carries over to its configuration space
// those registers that the change makes different. Callers hold mu.
func (k *Kernel) changeConfig(f *function, change func()) {
	before := f.pristine()
	change()
	for i, b := range f.pristine() {
		if b != before[i] {
			f.config[i] = b
		}
	}
	k.showConfig(f)
}

// showConfig writes the configuration space to the tree. Callers hold mu.
func (k *Kernel) showConfig(f *function) {
	k.put(path.Join(f.dir, "config"), string(f.config), readWrite)
}

// storeResetMethod is reset_method_store of drivers/pci/pci.c.
func (k *Kernel) storeResetMethod(t target, value string) error {
	f := t.function
	k.mu.Lock()
	defer k.mu.Unlock()
	if f.gone {
		return unix.ENODEV
	}
	var methods []string
	switch word(value) {
	case "":
	case "default":
		methods = f.ResetMethods
	default:
		methods = strings.Fields(text(value))
	}
	for _, m := range methods {
		if !slices.Contains(f.ResetMethods, m) {
			return unix.EINVAL
		}
	}
	f.methods = slices.Clone(methods)
	k.showMethods(f)
	return k.err
}

// showMethods writes reset_method to the tree. Callers hold mu.
func (k *Kernel) showMethods(f *function) {
	list := strings.Join(f.methods, " ")
	if list != "" {
		list += "\n"
	}
	k.put(path.Join(f.dir, "reset_method"), list, readWrite)
}

// HotReset resets all functions below the bridge above the set, as a user of
// VFIO_DEVICE_PCI_HOT_RESET does that opens their groups (drivers/vfio/pci/vfio_pci_core.c
// vfio_pci_dev_set_hot_reset): EPERM for a function that is not on a VFIO driver,
// EBUSY for a group that a process has open, EINVAL unless the set has all
// functions that the reset reaches, EINVAL for one without a bridge above it.
//
// Like the ioctl it ends when the hooks of [Kernel.OnReset] have returned, even if
// the context has ended.
func (k *Kernel) HotReset(_ context.Context, set []pci.Address) error {
	functions, err := k.together(set)
	if err != nil {
		return err
	}
	for _, f := range functions { // by address, as pci_bus_lock goes
		f.acquire()
		defer f.release()
	}
	defer k.blockConfig(functions...)()
	var errs error
	for _, f := range functions {
		errs = errors.Join(errs, k.reset(f, "vfio_hot_reset"))
	}
	return errs
}

// together returns the functions of the set by address, if a hot reset of them
// all may begin.
func (k *Kernel) together(set []pci.Address) ([]*function, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	functions := make([]*function, 0, len(set))
	for _, a := range set {
		f := k.functions[a]
		if f == nil || f.driver == nil || !f.driver.servesVFIO(f) {
			return nil, unix.EPERM
		}
		if k.owned(f.group) {
			return nil, unix.EBUSY
		}
		functions = append(functions, f)
	}
	slices.SortFunc(functions, func(a, b *function) int { return a.Address.Compare(b.Address) })
	functions = slices.Compact(functions)
	for _, f := range functions {
		if reached := k.reached(f); reached == nil || !slices.Equal(reached, functions) {
			return nil, unix.EINVAL
		}
	}
	return functions, nil
}

// reached returns the functions below the bridge directly above f, by address; nil without a bridge. VFs go with
// their PF. Callers hold mu.
func (k *Kernel) reached(f *function) []*function {
	var bridge *function
	for _, other := range k.functions {
		if other.bridge != nil && path.Dir(f.dir) == other.dir {
			bridge = other
		}
	}
	if bridge == nil {
		return nil
	}
	return slices.DeleteFunc(k.behind(bridge), func(other *function) bool { return other.pf != nil })
}
