package sysfstest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// TB is what New needs of a testing.TB; an interface of our own keeps package
// testing out of programs that use [NewAt].
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
