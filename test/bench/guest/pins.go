package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// pinsRounds is how often the memory is mapped by one object and by several, in turns.
const pinsRounds = 5

// guestMemory is the size of the memory that stands for a guest's.
const guestMemory = 256 << 20

// pinned is what mapping cost.
type pinned struct {
	took time.Duration
	// accounted is the memory that the kernel counts as pinned (VmPin), tables that of the IOMMU's page tables.
	accounted, tables int
}

// comparePins maps the same memory for all functions by one iommufd object, and by an object for each, as Kata does.
func comparePins(addresses []string) error {
	for pages, advice := range map[string]int{"4KiB": unix.MADV_NOHUGEPAGE, "2MiB": unix.MADV_HUGEPAGE} {
		memory, err := unix.Mmap(-1, 0, guestMemory, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
		if err != nil {
			return fmt.Errorf("allocate the guest's memory: %w", err)
		}
		if err := errors.Join(unix.Madvise(memory, advice), unix.Madvise(memory, unix.MADV_POPULATE_WRITE)); err != nil {
			return fmt.Errorf("allocate pages of %s: %w", pages, err)
		}
		if err := errors.Join(comparePages(pages, memory, addresses), unix.Munmap(memory)); err != nil {
			return err
		}
	}
	return nil
}

func comparePages(pages string, memory []byte, addresses []string) error {
	var one, each []pinned
	for range pinsRounds {
		p, err := pin(memory, addresses)
		if err != nil {
			return err
		}
		one = append(one, p)
		var groups [][]string
		for _, a := range addresses {
			groups = append(groups, []string{a})
		}
		if p, err = pin(memory, groups...); err != nil {
			return err
		}
		each = append(each, p)
	}
	a, b := printPinned(pages+" pages, one object", one), printPinned(pages+" pages, an object each", each)
	fmt.Printf("pins-%s ratio each/one %.2f\n", pages, float64(b)/float64(a))
	return nil
}

func printPinned(what string, all []pinned) time.Duration {
	var times []time.Duration
	for _, p := range all {
		times = append(times, p.took)
	}
	last := all[len(all)-1]
	took := median(times)
	fmt.Printf("pins: %s: median of %d %v, VmPin %d kB, IOMMU page tables %d kB\n", what, pinsRounds, took.Round(100*time.Microsecond), last.accounted, last.tables)
	return took
}

// pin maps the memory by an object for each of the groups of functions. Only the maps are timed: QEMU has opened the
// functions before.
func pin(memory []byte, groups ...[]string) (p pinned, err error) {
	objects, spaces := make([]*object, len(groups)), make([]uint32, len(groups))
	for i, addresses := range groups {
		if objects[i], err = newObject(); err != nil {
			return p, err
		}
		defer objects[i].close()
		if spaces[i], err = objects[i].newSpace(); err != nil {
			return p, err
		}
		for _, address := range addresses {
			f, err := objects[i].open(address)
			if err != nil {
				return p, err
			}
			defer f.close()
			if err := f.attach(spaces[i]); err != nil {
				return p, fmt.Errorf("%s: %w", address, err)
			}
		}
	}
	tables := number("/proc/meminfo", "SecPageTables:")
	begin := time.Now()
	for i, o := range objects {
		if err := o.mapMemory(spaces[i], memory); err != nil {
			return p, err
		}
	}
	p.took = time.Since(begin)
	p.accounted, p.tables = number("/proc/self/status", "VmPin:"), number("/proc/meminfo", "SecPageTables:")-tables
	return p, nil
}

// number returns a number of kB of a file of /proc, -1 if it has none.
func number(file, name string) int {
	text, err := os.ReadFile(file)
	if err != nil {
		return -1
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			n, err := strconv.Atoi(strings.Fields(rest)[0])
			if err == nil {
				return n
			}
		}
	}
	return -1
}
