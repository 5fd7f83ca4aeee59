package sanitizer

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sanitize"
)

// MemoryOptions are the options of [Memory].
type MemoryOptions struct {
	Options Options
	// BARs are the windows to wipe. Without them, all prefetchable memory BARs are: reads of those have no side effects
	// (PCI Local Bus Specification 3.0, 6.2.5.1), while others are registers.
	BARs []int
	// ExpectBytes is how much memory the device has, 0 if that is not known. More than the windows show is Unknown.
	ExpectBytes uint64
}

// methodMemory is the method of checks of memory.
const methodMemory = "FillVerifyZeroVerify"

// Memory wipes what a device shows of its memory. It fills the windows with a random pattern, verifies all of it, writes
// zeros, and verifies them. The pattern of a word depends on its offset in all windows, so that memory that appears in
// two places is found, too. The error is [ErrInterrupted].
//
// It turns the garbage collector off, and leaves it off if the work does not end in time.
func Memory(ctx context.Context, o MemoryOptions) (*sanitize.Result, error) {
	return bounded(ctx, o.Options.Timeout, uncollected(o.sanitize))
}

// uncollected returns the work with the garbage collector off until the work has ended. A collection stops all goroutines, and waits forever
// for one whose processor waits for the device, so that the result would never be written. (A goroutine that waits in a system call, as
// those of [NVMe] do, is not waited for.) To turn the collector on again stops them, too, so the goroutine of the work does it.
func uncollected(work func(context.Context, *progress) error) func(context.Context, *progress) error {
	return func(ctx context.Context, p *progress) error {
		defer debug.SetGCPercent(debug.SetGCPercent(-1))
		return work(ctx, p)
	}
}

func (o *MemoryOptions) sanitize(ctx context.Context, p *progress) error {
	g, err := openGuest(o.Options.Root)
	if err != nil {
		return err
	}
	defer func() { _ = g.close() }() // nothing was written to its files that close could lose
	f, err := g.pick(o.Options.Device, func(f function) bool { return !f.ofVM() && f.hasMemory() })
	if err != nil {
		return err
	}
	p.update(func(r *sanitize.Result) { r.Device = f.id() })
	o.Options.Log.Info("found the device", slog.String("function", f.String()))
	bars, err := o.windows(f)
	if err != nil {
		return err
	}
	// A driver in the guest may use the memory, so it goes first. enable turns on decoding, without which reads return all ones.
	if err := g.unbind(ctx, f.address); err != nil {
		return err
	}
	if err := g.enable(ctx, f.address); err != nil {
		return err
	}
	g.measure(ctx, f.address, p, o.Options.Log)
	all, err := mapAll(o.Options.Root, f, bars)
	if err != nil {
		return err
	}
	defer all.unmap()
	o.expect(p, all)
	return wipe(ctx, p, all, func() bool { return g.offBus(f.address) }, o.Options.Log)
}

// windows returns the numbers of the BARs to wipe.
func (o *MemoryOptions) windows(f function) ([]int, error) {
	var bars []int
	for i, r := range f.bars {
		if isMemory(r) && r.Prefetchable() {
			bars = append(bars, i)
		}
	}
	if o.BARs != nil {
		bars = o.BARs
	}
	if len(bars) == 0 {
		return nil, fmt.Errorf("%s has no prefetchable memory BAR: if another BAR is memory and not registers, name it with --bar", f)
	}
	for _, n := range bars {
		switch {
		case n >= len(f.bars) || !isMemory(f.bars[n]):
			return nil, fmt.Errorf("%s has no memory BAR %d", f, n)
		case f.bars[n].Unassigned():
			return nil, fmt.Errorf("BAR %d of %s has no address: the VM's kernel found no room for it", n, f)
		}
	}
	return bars, nil
}

// expect notes memory that no window shows.
func (o *MemoryOptions) expect(p *progress, all windows) {
	if shown := all.bytes(); o.ExpectBytes > shown {
		p.fail(sanitize.Unknown, fmt.Sprintf("the device has %d bytes of memory, and its BARs show %d: the rest can't be reached", o.ExpectBytes, shown))
	}
}

// wipe fills, verifies, zeros and verifies all windows, and notes a check for each. A device that is dirty is wiped as
// well as it can be.
func wipe(ctx context.Context, p *progress, all windows, offBus func() bool, log *slog.Logger) error {
	seed, err := newSeed()
	if err != nil {
		return err
	}
	fill := func(base, i uint64) uint64 { return pattern(seed, base+i) }
	zero := func(_, _ uint64) uint64 { return 0 }
	for _, step := range []struct {
		name     string
		verifies bool
		content  expected
	}{
		// All windows are filled before one is verified, and no two with the same words: two windows onto the same memory
		// don't both verify.
		{"fill", false, fill},
		{"verify the pattern", true, fill},
		{"write zeros", false, zero},
		{"verify the zeros", true, zero},
	} {
		for _, w := range all {
			log.Info("step begins", slog.String("step", step.name), slog.String("window", w.name), slog.Uint64("bytes", w.bytes()))
			run := w.fill
			if step.verifies {
				run = w.verify
			}
			if err := w.pass(step.name, func() error { return run(ctx, step.content) }, offBus); err != nil {
				return err
			}
		}
	}
	for _, w := range all {
		p.check(w.check())
	}
	return nil
}

// pass runs a pass on the window, and notes the first mismatch. A device that answers all ones everywhere is no longer
// there: nothing can be said about its memory.
func (w *window) pass(name string, run func() error, offBus func() bool) error {
	begun := time.Now()
	err := run()
	w.spent += time.Since(begun)
	wrong, ok := errors.AsType[*mismatchError](err)
	switch {
	case !ok:
		return err
	case wrong.ones && (w.allOnes() || offBus()):
		return fmt.Errorf("%s: %w of %s: reads return all ones: the device is off the bus", name, wrong, w.name)
	case w.dirty == "":
		w.dirty = fmt.Sprintf("%s: %s", name, wrong)
	}
	return nil
}

// check returns what was found in the window.
func (w *window) check() sanitize.Check {
	c := sanitize.Check{
		Name: w.name, Method: methodMemory, Verdict: sanitize.Clean, Bytes: w.bytes(),
		Pattern: "64-bit words of a random seed and the offset, then zeros", Seconds: w.spent.Seconds(),
	}
	if w.dirty != "" {
		c.Verdict, c.Reason = sanitize.Dirty, w.dirty
	}
	return c
}

// newSeed returns a number that the device can't know.
func newSeed() (uint64, error) {
	var seed [8]byte
	if _, err := rand.Read(seed[:]); err != nil {
		return 0, fmt.Errorf("make a random seed: %w", err)
	}
	return binary.NativeEndian.Uint64(seed[:]), nil
}

// measure notes the measurements that each PCI function has: its revision, and the hash of its expansion ROM.
func (g *guest) measure(ctx context.Context, a pci.Address, p *progress, log *slog.Logger) {
	revision, err := g.fs.ReadString(attributePath(a, "revision"))
	if err != nil {
		log.Warn("read the revision", slog.Any("error", err))
	} else {
		p.measured("revision", sanitize.Version, revision)
	}
	hash, err := g.hashROM(ctx, a)
	if err != nil {
		log.Warn("the expansion ROM is not measured", slog.Any("error", err))
	} else if hash != "" {
		p.measured("rom", sanitize.SHA256, hash)
	}
}

// measured adds a measurement. Firmware may have any bytes in a version: what is not printable is replaced.
func (p *progress) measured(name string, algorithm sanitize.Algorithm, value string) {
	value = cmp.Or(printable(value), "(empty)")
	p.update(func(r *sanitize.Result) {
		r.Firmware = append(r.Firmware, sanitize.Measurement{Name: name, Algorithm: algorithm, Value: value})
	})
}

// printable replaces what is not printable ASCII.
func printable(value string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, strings.TrimSpace(value))
}
