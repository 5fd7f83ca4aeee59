package sanitizer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// words is memory that is read and written by the eight bytes.
type words interface {
	// count returns the number of words.
	count() uint64
	load(i uint64) uint64
	store(i, value uint64)
}

// window is what one BAR shows of the device's memory.
type window struct {
	name   string
	memory words
	// base is the number of words in the windows before this one.
	base  uint64
	spent time.Duration
	// dirty is the first thing that was wrong.
	dirty string
	// mapping is the mapped part of the BAR's file; nil if the memory is not a device's.
	mapping []byte
}

// unmap ends the access to the memory.
func (w *window) unmap() {
	if w.mapping != nil {
		_ = unix.Munmap(w.mapping)
	}
}

func (w *window) bytes() uint64 { return w.memory.count() * wordSize }

const wordSize = 8

// windows are those of one device.
type windows []*window

func (all windows) bytes() (sum uint64) {
	for _, w := range all {
		sum += w.bytes()
	}
	return sum
}

func (all windows) unmap() {
	for _, w := range all {
		w.unmap()
	}
}

// expected returns what the word i of a window has to contain, whose first word is the word base of all windows.
type expected func(base, i uint64) uint64

// pattern returns a value for a word: a permutation of all 64-bit numbers (splitmix64 by Sebastiano Vigna), so that no
// two words have the same.
func pattern(seed, word uint64) uint64 {
	x := seed + (word+1)*0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// stride is the number of words between two looks at the context.
const stride = 1 << 16

// mismatchError is a word that is not what was written. It does not say what the word was: that may be a tenant's data.
type mismatchError struct {
	offset uint64 // in bytes
	ones   bool   // it was all ones
}

func (e *mismatchError) Error() string {
	return fmt.Sprintf("the memory at offset 0x%x is not what was written", e.offset)
}

// fill writes all words.
func (w *window) fill(ctx context.Context, value expected) error {
	for i := range w.memory.count() {
		if i%stride == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		w.memory.store(i, value(w.base, i))
	}
	return nil
}

// verify reads all words up to the first that is wrong, for which the error is a [*mismatchError].
func (w *window) verify(ctx context.Context, value expected) error {
	for i := range w.memory.count() {
		if i%stride == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if got := w.memory.load(i); got != value(w.base, i) {
			return &mismatchError{offset: i * wordSize, ones: got == ^uint64(0)}
		}
	}
	return nil
}

// allOnes reports whether words all over the window are all ones, which is what a read returns that nobody answers.
func (w *window) allOnes() bool {
	const probes = 64
	n := w.memory.count()
	for i := range min(uint64(probes), n) {
		if w.memory.load(i*(n/min(probes, n))) != ^uint64(0) {
			return false
		}
	}
	return true
}

// mapAll maps the BARs of a function.
func mapAll(root string, f function, bars []int) (all windows, err error) {
	var base uint64
	for _, n := range bars {
		path := filepath.Join(root, attributePath(f.address, "resource"+strconv.Itoa(n)))
		w, err := mapBAR(path, f.bars[n].Start, f.bars[n].Size())
		if err != nil {
			all.unmap()
			return nil, fmt.Errorf("map BAR %d of %s: %w", n, f, err)
		}
		w.name, w.base = "bar"+strconv.Itoa(n), base
		base += w.memory.count()
		all = append(all, w)
	}
	return all, nil
}

// mapBAR maps a BAR by its file in sysfs (Documentation/PCI/sysfs-pci.rst). The kernel maps whole pages: a BAR that is
// smaller, or begins within one, is a part of them.
func mapBAR(path string, start, size uint64) (w *window, err error) {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() < 0 || uint64(info.Size()) != size {
		return nil, fmt.Errorf("its file has %d bytes, and the BAR %d", info.Size(), size)
	}
	page := uint64(os.Getpagesize())
	within := start % page
	length := (within + size + page - 1) / page * page
	data, err := unix.Mmap(int(file.Fd()), 0, int(length), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	// A memory BAR has a size and an address that are multiples of 16 (PCI Local Bus Specification 3.0, 6.2.5.1).
	mapped := mappedWords(unsafe.Slice((*uint64)(unsafe.Pointer(&data[within])), size/wordSize))
	return &window{memory: mapped, mapping: data}, nil
}

// mappedWords is mapped memory of a device. An atomic access is one access of its size, which the compiler neither splits
// nor leaves out.
type mappedWords []uint64

func (m mappedWords) count() uint64         { return uint64(len(m)) }
func (m mappedWords) load(i uint64) uint64  { return atomic.LoadUint64(&m[i]) }
func (m mappedWords) store(i, value uint64) { atomic.StoreUint64(&m[i], value) }
