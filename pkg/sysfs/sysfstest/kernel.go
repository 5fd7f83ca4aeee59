// Package sysfstest is a scripted node: a directory with sys, proc, dev and
// lib trees of plain files and links that reads like a Linux node with PCI
// functions, and a Write method that answers like the kernel and changes the
// tree as the kernel would. Code that reads goes through the directory
// ([Kernel.Root]); code that writes takes the [Kernel] as its
// control.Writer. Nothing needs privileges, nothing outside the directory is
// touched.
//
//	k := sysfstest.New(t)
//	gpu := k.AddGPU(0x3b)
//	c := control.New(k, fs, time.Second)
//
// # The rules it speaks
//
// They were read in Linux 6.12; the names are those of its functions.
//
//   - A write creates nothing: a missing attribute is ENOENT, one without a
//     store function EACCES, an empty write does nothing (fs/kernfs/file.c
//     kernfs_fop_write_iter, fs/sysfs/file.c sysfs_kf_write). One trailing
//     newline of an address or word does not count (sysfs_streq); an address in
//     another case names nothing.
//   - driver_override: set; cleared by "\n"; EINVAL from 4095 bytes on; reads
//     "(null)" when not set; rebinds nothing (drivers/base/dd.c
//     __device_set_driver_override, driver_set_override in older kernels). It is
//     lost with the function and on reboot.
//   - unbind: ENODEV unless the function is bound to that very driver
//     (drivers/base/bus.c unbind_store). The links go first, then the driver's
//     remove function runs, which may block, then the function is free
//     (drivers/base/dd.c __device_release_driver): during a blocked unbind the
//     driver link is gone, but the driver still has the function.
//   - drivers_probe: ENODEV for an unknown address. Success without effect when
//     the function is bound already, when nothing matched, and when the driver's
//     own probe failed, since the kernel then tries the next driver (drivers/base/bus.c
//     bus_rescan_devices_helper, drivers/base/dd.c __device_attach_driver).
//     EINVAL when the attempt failed before the driver's probe: a host driver in
//     a group whose DMA a VFIO user owns (drivers/pci/pci-driver.c
//     pci_dma_configure, drivers/iommu/iommu.c iommu_device_use_default_domain).
//   - bind: ENODEV without a match, EBUSY when bound already or when the
//     group's DMA is owned, else the error of the driver's probe (dd.c
//     device_driver_attach).
//   - Matching: with a driver_override, that driver alone and whatever its id
//     table says; else id tables in the order of registration (pci-driver.c
//     pci_match_device). VFIO drivers match by override only (override_only
//     ids). A VF of a PF with sriov_drivers_autoprobe 0 is not probed without an
//     override (pci_device_can_probe).
//   - A driver that is registered later is offered all unbound functions (dd.c
//     driver_attach).
//   - VFIO drivers refuse bridges (EINVAL), PFs with enabled VFs (EBUSY) and
//     functions without an IOMMU group (EINVAL), and make /dev/vfio/<group> for
//     the first member and, with iommufd, vfio-dev/vfioN and
//     /dev/vfio/devices/vfioN; the group node goes with the last member
//     (drivers/vfio/pci/vfio_pci_core.c vfio_pci_core_register_device,
//     drivers/vfio/group.c). Unbinding waits while a holder has the function
//     open (drivers/vfio/vfio_main.c vfio_unregister_group_dev): by then the
//     function's own character device is gone, the group's is not.
//   - reset_method: EINVAL for a word that the function does not offer, the old
//     list stays; "default" restores, "\n" disables; reset: EINVAL unless 1,
//     then the methods in order, going on after ENOTTY only (drivers/pci/pci.c
//     reset_method_store, __pci_reset_function_locked). The header of the
//     configuration space is saved and restored around a reset. The store function
//     of reset_method does not take the device lock.
//   - VFIO's hot reset reaches all functions below the bridge above: EINVAL unless
//     the caller has the groups of all of them, EBUSY while a process has one open
//     (drivers/vfio/pci/vfio_pci_core.c vfio_pci_dev_set_hot_reset).
//   - sriov_numvfs: EINVAL, ERANGE above sriov_totalvfs, ENOENT without a driver
//     that does SR-IOV, EBUSY from one number to another (drivers/pci/iov.c
//     sriov_numvfs_store). A VF's configuration space has ffff for its ids. The
//     removal of a VF waits for its holder. Unbinding the PF's driver removes
//     the VFs, unless the driver leaves them ([Driver.KeepsVFs]).
//
// # Where it differs
//
//   - All writes that concern one function come one after another, hooks
//     included. The kernel's device lock covers most of them, but a drivers_probe
//     during a blocked unbind, for one, returns at once and does nothing.
//   - Reads of the plain tree never block. The kernel's show functions of
//     sriov_numvfs and driver_override take the device lock in some versions, so that
//     reading them hangs as long as an unbind does, and a reset keeps everybody from
//     the configuration space: [Kernel.Reading] does that.
//   - Device nodes are empty regular files, since mknod takes privileges; the
//     numbers are in sysfs' dev attributes and in [Kernel.Node].
//   - Groups are as the test says; they are not derived from ACS.
//   - Uevents are sent for functions, their drivers, their VFs and what drivers make
//     of them ([Kernel.OnUevent]); modules and the IOMMU send none.
//   - Drivers have no new_id and remove_id, and attributes that kata-vfio never
//     writes are read-only.
package sysfstest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// TB is the part of testing.TB that New needs. It keeps package testing out of programs that use [NewAt].
type TB interface {
	Helper()
	TempDir() string
	Cleanup(func())
	Fatalf(format string, args ...any)
}

// Kernel is the scripted node. Its methods are safe for concurrent use, except
// that those which build or reboot the node must not run beside a Write.
//
// Methods that build the node end the test when what they are asked for can't
// be (an address twice, a bus that nothing leads to). Without a test the first
// such error is kept, and [Kernel.Err] returns it.
type Kernel struct {
	dir string
	tb  TB // nil for NewAt

	mu        sync.Mutex // guards all below and every change of the tree
	closed    bool
	err       error // the first thing that went wrong; sticky
	roots     []Root
	functions map[pci.Address]*function
	drivers   []*driver // in the order of registration
	modules   map[string]loadable
	groups    map[int]*group
	holders   map[int]*Holder // by PID
	nodes     map[string]Number
	buses     map[bus]*function        // the ports that lead to them
	taken     map[string]bool          // names given to children: eth0, card1, vfio0
	lowest    map[string]int           // by prefix: below it all numbers are taken
	removed   map[pci.Address]*os.File // directories of removed functions, see keepInode
	host      host
	script    script

	wedges wedges
}

// New returns a node in a temporary directory of the test: an IOMMU, remapped
// interrupts, vfio-pci loaded, no functions. At the test's end all holders let
// go, so that a blocked write returns.
func New(tb TB) *Kernel {
	tb.Helper()
	k := newKernel(tb.TempDir(), tb)
	tb.Cleanup(k.Close)
	k.boot()
	return k
}

// NewAt is New without a test, in an empty directory, which is made if it does
// not exist.
func NewAt(dir string) (*Kernel, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("make a scripted node: %w", err)
	}
	if len(entries) > 0 {
		return nil, fmt.Errorf("make a scripted node: %s is not empty", dir)
	}
	k := newKernel(dir, nil)
	k.boot()
	return k, k.Err()
}

func newKernel(dir string, tb TB) *Kernel {
	return &Kernel{
		dir:       dir,
		tb:        tb,
		functions: map[pci.Address]*function{},
		groups:    map[int]*group{},
		holders:   map[int]*Holder{},
		nodes:     map[string]Number{},
		buses:     map[bus]*function{},
		taken:     map[string]bool{},
		lowest:    map[string]int{},
		removed:   map[pci.Address]*os.File{},
	}
}

// Root returns the directory that stands for "/".
func (k *Kernel) Root() string { return k.dir }

// Path returns where the node's file lies on the real file system; name is
// relative to the node's root.
func (k *Kernel) Path(name string) string { return filepath.Join(k.dir, name) }

// Err returns the first thing that went wrong while the node was built or
// changed, other than errors that the kernel itself would answer.
func (k *Kernel) Err() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.err
}

// Close lets all holders go, so that blocked writes return, and leaves the
// tree as it is from then on.
func (k *Kernel) Close() {
	k.mu.Lock()
	k.closed = true
	for _, dir := range k.removed {
		_ = dir.Close()
	}
	clear(k.removed)
	k.mu.Unlock()
	for _, h := range k.Holders() {
		h.Release()
	}
}

// build runs a change of the node by the test under the lock, and ends the
// test when it went wrong.
func (k *Kernel) build(change func()) {
	k.mu.Lock()
	change()
	err := k.err
	k.mu.Unlock()
	if err != nil && k.tb != nil {
		k.tb.Helper()
		k.tb.Fatalf("sysfstest: %v", err)
	}
}

// wrong keeps the first error. Callers hold mu.
func (k *Kernel) wrong(format string, args ...any) {
	if k.err == nil {
		k.err = fmt.Errorf(format, args...)
	}
}

// Modes of attributes, as the kernel's DEVICE_ATTR_RO, _RW and _WO give them.
const (
	readOnly  fs.FileMode = 0o444
	readWrite fs.FileMode = 0o644
	writeOnly fs.FileMode = 0o200
)

// scratch is where new contents are written before they are renamed to their
// place. A reader never sees an attribute half written, as it never does in
// sysfs, and a file's mode does not matter to its replacement.
const scratch = ".kernel"

// The methods below change the tree. Paths are relative to the node's root.
// Errors are kept by [Kernel.wrong]; a closed node is left alone. Callers hold mu.

// mkdir makes a directory and its parents.
func (k *Kernel) mkdir(name string) {
	if k.closed {
		return
	}
	if err := os.MkdirAll(k.Path(name), 0o755); err != nil {
		k.wrong("make a directory: %w", err)
	}
}

// create writes a new file into a directory that exists.
func (k *Kernel) create(name, content string, mode fs.FileMode) {
	if k.closed {
		return
	}
	if err := write(k.Path(name), content, mode); err != nil {
		k.wrong("make file %s: %w", name, err)
	}
}

// write writes a new file by bare system calls: [os.File] takes twice as many,
// and a large node is a quarter of a million of them.
func write(name, content string, mode fs.FileMode) error {
	fd, err := unix.Open(name, unix.O_CREAT|unix.O_TRUNC|unix.O_WRONLY|unix.O_CLOEXEC, uint32(mode))
	if err != nil {
		return err
	}
	if content != "" {
		_, err = unix.Write(fd, []byte(content))
	}
	return errors.Join(err, unix.Close(fd))
}

// put writes a file at once, whether it exists or not, with its parents.
func (k *Kernel) put(name, content string, mode fs.FileMode) {
	if k.closed {
		return
	}
	tmp := path.Join(scratch, "new")
	if err := write(k.Path(tmp), content, mode); err != nil {
		k.wrong("write %s: %w", name, err)
		return
	}
	if os.Rename(k.Path(tmp), k.Path(name)) == nil {
		return
	}
	k.mkdir(path.Dir(name))
	if err := os.Rename(k.Path(tmp), k.Path(name)); err != nil {
		k.wrong("replace %s: %w", name, err)
	}
}

// link makes a symbolic link to another path of the tree, relative as those of
// sysfs are. Its directory exists.
func (k *Kernel) link(name, to string) {
	if k.closed {
		return
	}
	rel, err := filepath.Rel(path.Dir(name), to)
	if err != nil {
		k.wrong("make a link: %w", err)
		return
	}
	k.symlink(name, rel)
}

// symlink makes a symbolic link with the very text.
func (k *Kernel) symlink(name, text string) {
	if k.closed {
		return
	}
	if err := os.Symlink(text, k.Path(name)); err != nil {
		k.wrong("make a link: %w", err)
	}
}

// remove removes a file, a link or a whole directory, if it is there.
func (k *Kernel) remove(name string) {
	if k.closed {
		return
	}
	if err := os.RemoveAll(k.Path(name)); err != nil {
		k.wrong("remove: %w", err)
	}
}

// exists reports whether there is something at name, links followed.
func (k *Kernel) exists(name string) bool {
	_, err := os.Stat(k.Path(name))
	return err == nil
}

// free returns the first of prefix0, prefix1, ... (from first on) that no
// child has, and takes it: the kernel too gives out the lowest free number.
func (k *Kernel) free(prefix string, first int) (name string, number int) {
	for n := max(first, k.lowest[prefix]); ; n++ {
		name := prefix + strconv.Itoa(n)
		if !k.taken[name] {
			k.taken[name] = true
			k.lowest[prefix] = n + 1
			return name, n
		}
	}
}

// giveBack makes the name of a child free again.
func (k *Kernel) giveBack(name string) {
	delete(k.taken, name)
	clear(k.lowest)
}

// lines joins lines, each with a newline.
func lines(all ...string) string {
	return strings.Join(all, "\n") + "\n"
}
