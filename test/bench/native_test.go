package bench

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/prepare"
	"github.com/kata-vfio/kata-vfio/pkg/prepare/effects"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
	"github.com/kata-vfio/kata-vfio/test/internal/apt"
)

// What a claim costs on this machine's own processor, beyond the kernel's writes: those are scripted, recorded in a first
// claim, and then repeated without the plugin.

// scripted has the nodes by the kind of their device.
func scripted() map[string]func(*sysfstest.Kernel) pci.Address {
	return map[string]func(*sysfstest.Kernel) pci.Address{"gpu": scriptedGPU, "vf": scriptedVF}
}

// aClaim prepares and unprepares a claim.
func aClaim(ctx context.Context, p *prepare.Preparer, kind string, a pci.Address) error {
	if _, err := p.Prepare(ctx, request(kind, a)); err != nil {
		return err
	}
	_, err := p.Unprepare(ctx, a.Label())
	return err
}

// writesOf returns what repeats the kernel's part of a claim: the writes and resets that the plugin made in one.
func writesOf(tb testing.TB, k *sysfstest.Kernel, p *prepare.Preparer, kind string, a pci.Address) func() error {
	tb.Helper()
	before := len(k.Writes())
	must(tb, aClaim(tb.Context(), p, kind, a))
	writes := k.Writes()[before:]
	return func() error {
		for _, w := range writes {
			if err := k.Write(w.Path, []byte(w.Value)); err != nil {
				return fmt.Errorf("write %q to %s: %w", w.Value, w.Path, err)
			}
		}
		return nil
	}
}

// BenchmarkNativeClaim prepares and unprepares a claim natively, and prints the time of each phase. Phases overlap.
func BenchmarkNativeClaim(b *testing.B) {
	for kind, add := range scripted() {
		b.Run(kind, func(b *testing.B) {
			var phases phaseTimes
			k := sysfstest.New(b)
			device := add(k)
			p := preparerOn(b, k, phases.observe)
			replay := writesOf(b, k, p, kind, device)
			phases.reset()
			var own, kernel time.Duration
			for b.Loop() {
				own += usedBy(func() { must(b, aClaim(b.Context(), p, kind, device)) })
				kernel += usedBy(func() { must(b, replay()) })
			}
			per := time.Duration(b.N)
			b.ReportMetric(0, "ns/op")
			reportAim(b, float64((own-kernel)/per)/float64(time.Millisecond), "own-processor-ms", 5)
			fmt.Printf("a claim with a %s, natively: %v of processor time, %v of it for the scripted kernel; phases by the clock: %s\n",
				kind, (own / per).Round(time.Microsecond), (kernel / per).Round(time.Microsecond), phases.table(b.N))
		})
	}
}

// phaseTimes adds up the time of each phase.
type phaseTimes struct {
	mu    sync.Mutex
	order []effects.Phase
	took  map[effects.Phase]time.Duration
}

func (t *phaseTimes) reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.order, t.took = nil, nil
}

func (t *phaseTimes) observe(e effects.Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.took == nil {
		t.took = map[effects.Phase]time.Duration{}
	}
	if _, known := t.took[e.Phase]; !known {
		t.order = append(t.order, e.Phase)
	}
	t.took[e.Phase] += e.Took
}

func (t *phaseTimes) table(n int) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var words []string
	for _, phase := range t.order {
		words = append(words, fmt.Sprintf("%s %v", phase, (t.took[phase]/time.Duration(n)).Round(time.Microsecond)))
	}
	return strings.Join(words, ", ")
}

// usedBy returns what this process has used of its processors for the work.
func usedBy(work func()) time.Duration {
	before := processorUsed()
	work()
	return processorUsed() - before
}

func processorUsed() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // fails for no argument of ours
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// TestClaimSystemCalls limits the system calls on files for a claim, beyond the scripted kernel's. For a VF they include
// those of the scripted netlink. They depend on the node's size only by the functions of the device's slot and group.
func TestClaimSystemCalls(t *testing.T) {
	// The number varies with the load of the machine: 729 to 739 were measured for a VF.
	limits := map[string]int{"gpu": 436, "vf": 750}
	const syncLimit = 10 // one is the CDI spec's, on tmpfs
	for kind, add := range scripted() {
		t.Run(kind, func(t *testing.T) {
			if os.Getenv(tracedVariable) != "" {
				traced(t, kind, add)
				return
			}
			none, claims, writes := trace(t, 0, 0), trace(t, tracedClaims, 0), trace(t, 0, tracedClaims)
			own := (claims.total() - writes.total()) / tracedClaims
			syncs := (claims["fsync"] - none["fsync"]) / tracedClaims
			t.Logf("%d system calls, %d of them fsync; with the scripted kernel's: %v", own, syncs, claims.minus(none))
			if own > limits[kind] || syncs > syncLimit {
				t.Errorf("a claim makes %d system calls, %d of them fsync; at most %d and %d are expected", own, syncs, limits[kind], syncLimit)
			}
		})
	}
}

const (
	tracedClaims   = 20
	tracedVariable = "KATA_VFIO_TRACED"
)

// traced is what runs below strace: a claim, then as many more claims or repetitions of its writes as the environment says.
func traced(t *testing.T, kind string, add func(*sysfstest.Kernel) pci.Address) {
	var claims, writes int
	if _, err := fmt.Sscanf(os.Getenv(tracedVariable), "%d,%d", &claims, &writes); err != nil {
		t.Fatal(err)
	}
	k := sysfstest.New(t)
	device := add(k)
	p := preparerOn(t, k, nil)
	replay := writesOf(t, k, p, kind, device)
	for range claims {
		must(t, aClaim(t.Context(), p, kind, device))
	}
	for range writes {
		must(t, replay())
	}
}

// calls counts system calls by name.
type calls map[string]int

func (c calls) total() (n int) {
	for _, count := range c {
		n += count
	}
	return n
}

func (c calls) minus(other calls) calls {
	rest := calls{}
	for name, count := range c {
		rest[name] = count - other[name]
	}
	return rest
}

// trace runs this test below strace and returns its system calls on files.
func trace(t *testing.T, claims, writes int) calls {
	t.Helper()
	if _, err := exec.LookPath("strace"); err != nil {
		must(t, apt.Install(t.Context(), io.Discard, "strace"))
	}
	out := filepath.Join(t.TempDir(), "calls")
	self, err := os.Executable()
	must(t, err)
	cmd := exec.CommandContext(t.Context(), "strace", "-f", "-c", "-e", "trace=%file,%desc", "-o", out,
		self, "-test.count=1", "-test.run", "^"+strings.ReplaceAll(t.Name(), "/", "$/^")+"$")
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d,%d", tracedVariable, claims, writes))
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, said)
	}
	table, err := os.ReadFile(out)
	must(t, err)
	return parseCalls(string(table))
}

// parseCalls reads strace's table: time, seconds, microseconds a call, calls, errors if any, name.
func parseCalls(table string) calls {
	found := calls{}
	for line := range strings.Lines(table) {
		fields := strings.Fields(line)
		if len(fields) < 5 || strings.HasPrefix(fields[len(fields)-1], "epoll") || fields[len(fields)-1] == "total" {
			continue // the Go runtime's poller
		}
		if n, err := strconv.Atoi(fields[3]); err == nil {
			found[fields[len(fields)-1]] = n
		}
	}
	return found
}
