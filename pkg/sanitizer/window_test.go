package sanitizer

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/sanitize"
)

// honest is memory that keeps what is written.
type honest []uint64

func (m honest) count() uint64         { return uint64(len(m)) }
func (m honest) load(i uint64) uint64  { return m[i] }
func (m honest) store(i, value uint64) { m[i] = value }

// lying is memory with a fault.
type lying struct {
	honest
	onLoad  func(i, value uint64) uint64
	onStore func(i, value uint64)
}

func (m *lying) load(i uint64) uint64 {
	if m.onLoad != nil {
		return m.onLoad(i, m.honest.load(i))
	}
	return m.honest.load(i)
}

func (m *lying) store(i, value uint64) {
	if m.onStore != nil {
		m.onStore(i, value)
		return
	}
	m.honest.store(i, value)
}

const ones = ^uint64(0)

// faults are memories of 4096 words, in one or several windows, with the fault that must be found in each.
func faults() map[string]struct {
	make    func() []words
	offBus  bool
	verdict sanitize.Verdict
	reason  string
} {
	fresh := func() honest { return make(honest, 4096) }
	one := func(change func(*lying)) func() []words {
		return func() []words {
			m := &lying{honest: fresh()}
			change(m)
			return []words{m}
		}
	}
	return map[string]struct {
		make    func() []words
		offBus  bool
		verdict sanitize.Verdict
		reason  string
	}{
		"honest":      {func() []words { return []words{fresh()} }, false, sanitize.Clean, ""},
		"two windows": {func() []words { return []words{fresh(), fresh()} }, false, sanitize.Clean, ""},
		"of one word": {func() []words { return []words{make(honest, 1)} }, false, sanitize.Clean, ""},
		"shown twice": {func() []words { m := fresh(); return []words{m, m} }, false, sanitize.Dirty, "bar0: verify the pattern: the memory at offset 0x0"},
		"overlapping": {func() []words { m := fresh(); return []words{m[:3000], m[2000:]} }, false, sanitize.Dirty, "bar0: verify the pattern: the memory at offset 0x3e80"},
		"half as big": {one(func(m *lying) {
			m.onStore = func(i, v uint64) { m.honest[i%2048] = v }
			m.onLoad = func(i, _ uint64) uint64 { return m.honest[i%2048] }
		}), false, sanitize.Dirty, "offset 0x0 "},
		"keeps a word": {one(func(m *lying) { m.onStore = skip(m, 4095) }), false, sanitize.Dirty, "verify the pattern: the memory at offset 0x7ff8"},
		"ignores all":  {one(func(m *lying) { m.onStore = func(uint64, uint64) {} }), false, sanitize.Dirty, "offset 0x0 "},
		"ignores zeros": {one(func(m *lying) {
			m.onStore = func(i, v uint64) {
				if v != 0 || i != 77 {
					m.honest[i] = v
				}
			}
		}), false, sanitize.Dirty, "verify the zeros: the memory at offset 0x268"},
		"flips a bit":       {one(func(m *lying) { m.onLoad = flip(1000, 1<<17) }), false, sanitize.Dirty, "offset 0x1f40"},
		"flips the last":    {one(func(m *lying) { m.onLoad = flip(4095, 1<<63) }), false, sanitize.Dirty, "offset 0x7ff8"},
		"a word of ones":    {one(func(m *lying) { m.onLoad = at(5, ones) }), false, sanitize.Dirty, "offset 0x28"},
		"all ones":          {one(func(m *lying) { m.onLoad = func(uint64, uint64) uint64 { return ones } }), false, sanitize.Unknown, "off the bus"},
		"a word, and no id": {one(func(m *lying) { m.onLoad = at(5, ones) }), true, sanitize.Unknown, "off the bus"},
		"leaves meanwhile": {one(func(m *lying) {
			loads := 0
			m.onLoad = func(_, v uint64) uint64 {
				if loads++; loads > 5000 {
					return ones
				}
				return v
			}
		}), false, sanitize.Unknown, "verify the zeros: the memory at offset 0x1c40 is not what was written of bar0: reads return all ones"},
		"the second window": {func() []words { return []words{fresh(), &lying{honest: fresh(), onLoad: flip(0, 1)}} }, false, sanitize.Dirty, "bar1: "},
		"is taken away":     {one(func(m *lying) { m.onLoad = func(uint64, uint64) uint64 { panic("fault") } }), false, sanitize.Unknown, "access to the device: fault"},
	}
}

func flip(word, bits uint64) func(i, v uint64) uint64 {
	return func(i, v uint64) uint64 {
		if i == word {
			return v ^ bits
		}
		return v
	}
}

func at(word, value uint64) func(i, v uint64) uint64 {
	return func(i, v uint64) uint64 {
		if i == word {
			return value
		}
		return v
	}
}

func skip(m *lying, word uint64) func(i, v uint64) {
	return func(i, v uint64) {
		if i != word {
			m.honest[i] = v
		}
	}
}

// windowsOf are the windows of a device on the memories.
func windowsOf(memories []words) (all windows) {
	var base uint64
	for i, m := range memories {
		all = append(all, &window{name: "bar" + string(rune('0'+i)), memory: m, base: base})
		base += m.count()
	}
	return all
}

func TestWipe(t *testing.T) {
	for name, row := range faults() {
		t.Run(name, func(t *testing.T) {
			memories := row.make()
			r, err := bounded(t.Context(), time.Minute, func(ctx context.Context, p *progress) error {
				p.update(func(r *sanitize.Result) { r.Device = &sanitize.Device{Vendor: "0x1234", Device: "0x1111"} })
				return wipe(ctx, p, windowsOf(memories), func() bool { return row.offBus }, slog.New(slog.DiscardHandler))
			})
			if err != nil {
				t.Fatal(err)
			}
			expectVerdict(t, r, row.verdict, row.reason)
			if m, ok := memories[0].(honest); ok && row.verdict != sanitize.Unknown {
				for i, v := range m {
					if v != 0 {
						t.Fatalf("word %d is 0x%x after the run, want 0", i, v)
					}
				}
			}
		})
	}
}

// TestReasonHasNoData: what the device has instead of the pattern may be a tenant's.
func TestReasonHasNoData(t *testing.T) {
	p := &progress{}
	m := &lying{honest: make(honest, 4096), onLoad: at(9, 0x5345435245543432)}
	if err := wipe(t.Context(), p, windowsOf([]words{m}), func() bool { return false }, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	if reason := p.snapshot().Reason; !strings.Contains(reason, "0x48") || strings.Contains(strings.ToLower(reason), "53454352") {
		t.Errorf("the reason is %q", reason)
	}
}

// TestHang gives up at the deadline although the access never returns.
func TestHang(t *testing.T) {
	hangs := make(chan struct{})
	defer close(hangs)
	m := &lying{honest: make(honest, 4096), onLoad: func(_, v uint64) uint64 { <-hangs; return v }}
	r, err := bounded(t.Context(), 50*time.Millisecond, func(ctx context.Context, p *progress) error {
		p.update(func(r *sanitize.Result) { r.Device = &sanitize.Device{Vendor: "0x1234", Device: "0x1111"} })
		return wipe(ctx, p, windowsOf([]words{m}), func() bool { return false }, slog.New(slog.DiscardHandler))
	})
	if err != nil {
		t.Fatal(err)
	}
	expectVerdict(t, r, sanitize.Unknown, "the device was not sanitized within 50ms")
	if r.Device == nil {
		t.Error("the result does not say which device it was")
	}
}

// TestSlow stops at the deadline between two accesses.
func TestSlow(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w := windowsOf([]words{make(honest, 10)})[0]
	value := func(_, i uint64) uint64 { return i }
	if w.fill(ctx, value) == nil || w.verify(ctx, value) == nil {
		t.Error("a pass went on after its context had ended")
	}
}

// TestMappedFault survives memory that the kernel takes away: here a file that gets shorter.
func TestMappedFault(t *testing.T) {
	path := filepath.Join(t.TempDir(), "resource0")
	if err := os.WriteFile(path, make([]byte, barSize), 0o600); err != nil {
		t.Fatal(err)
	}
	w, err := mapBAR(path, 0, barSize)
	if err != nil {
		t.Fatal(err)
	}
	defer w.unmap()
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	err = guarded(t.Context(), &progress{}, func(ctx context.Context, _ *progress) error {
		return w.fill(ctx, func(_, _ uint64) uint64 { return 0 })
	})
	if err == nil || !strings.Contains(err.Error(), "access to the device") {
		t.Errorf("got %v, want an error about the access", err)
	}
}

// TestMapWithinPage maps a BAR that begins within a page, and nothing around it.
func TestMapWithinPage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "resource0")
	if err := os.WriteFile(path, make([]byte, 512), 0o600); err != nil {
		t.Fatal(err)
	}
	w, err := mapBAR(path, 0xfe000100, 512)
	if err != nil {
		t.Fatal(err)
	}
	w.memory.store(0, ones)
	if w.bytes() != 512 {
		t.Errorf("the window has %d bytes, want 512", w.bytes())
	}
	w.unmap()
	content, err := os.ReadFile(path)
	if err != nil || content[255] != 0 || content[256] != 0xff || content[264] != 0 {
		t.Errorf("the first word is not at 0x100: %v, %x", err, content[250:270])
	}
}

// TestPattern gives no two words the same value, nor the same word the same value in two runs.
func TestPattern(t *testing.T) {
	seen := map[uint64]bool{}
	for i := range uint64(100_000) {
		seen[pattern(1, i)] = true
	}
	if len(seen) != 100_000 {
		t.Errorf("100000 words have %d values", len(seen))
	}
	if pattern(1, 0) == pattern(2, 0) {
		t.Error("two seeds give the same value")
	}
	a, err1 := newSeed()
	b, err2 := newSeed()
	if a == b || err1 != nil || err2 != nil {
		t.Errorf("two seeds: %d, %d, %v, %v", a, b, err1, err2)
	}
}
