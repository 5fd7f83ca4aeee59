package bench

import (
	"context"
	"fmt"
	goruntime "runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/network/vf"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/prepare"
	"github.com/kata-vfio/kata-vfio/pkg/prepare/effects"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
)

// What a claim costs on this machine's own processor, beyond the kernel's writes: those are scripted, recorded in a first
// claim, and then repeated without the plugin.

// scripted has the nodes by the kind of their device.
func scripted() map[string]func(*sysfstest.Kernel) pci.Address {
	return map[string]func(*sysfstest.Kernel) pci.Address{"gpu": scriptedGPU, "vf": scriptedVF}
}

// aClaim prepares and unprepares a claim.
func aClaim(ctx context.Context, p *prepare.Preparer, kind string, a pci.Address) error {
	for _, half := range halves() {
		if err := halfOfClaim(ctx, p, half, kind, a); err != nil {
			return err
		}
	}
	return nil
}

// kernelsPart is what the plugin does to the scripted kernel in a claim, by [halves]: writes and resets, and messages to its netlink.
type kernelsPart struct {
	context context.Context
	kernel  *sysfstest.Kernel
	writes  map[string][]sysfstest.Write
	sent    map[string][]func(context.Context) error
}

// halves are the two halves of a claim.
func halves() []string { return []string{"prepare", "unprepare"} }

// repeat does it all again.
func (p *kernelsPart) repeat() error {
	for _, half := range halves() {
		if err := p.repeatHalf(half); err != nil {
			return err
		}
	}
	return nil
}

func (p *kernelsPart) repeatHalf(half string) error {
	for _, again := range p.sent[half] {
		if err := again(p.context); err != nil {
			return err
		}
	}
	for _, w := range p.writes[half] {
		if err := p.kernel.Write(w.Path, []byte(w.Value)); err != nil {
			return fmt.Errorf("write %q to %s: %w", w.Value, w.Path, err)
		}
	}
	return nil
}

// nativeClaim returns a Preparer, and what repeats the kernel's part of a claim.
func nativeClaim(tb testing.TB, k *sysfstest.Kernel, kind string, a pci.Address, observe effects.Observer) (*prepare.Preparer, *kernelsPart) {
	tb.Helper()
	var messages recordedLinks
	p := preparerOn(tb, k, observe, func(c *prepare.Config) {
		policy := *c.Parts.VFs.(*vf.Policy)
		messages.Links, policy.Links = policy.Links, &messages
		c.Parts.VFs = &policy
	})
	part := &kernelsPart{tb.Context(), k, map[string][]sysfstest.Write{}, map[string][]func(context.Context) error{}}
	for _, half := range halves() {
		before := len(k.Writes())
		must(tb, halfOfClaim(tb.Context(), p, half, kind, a))
		part.writes[half], part.sent[half] = k.Writes()[before:], messages.sent
		messages.sent = nil
	}
	messages.ended = true
	return p, part
}

// halfOfClaim prepares or unprepares a claim.
func halfOfClaim(ctx context.Context, p *prepare.Preparer, half, kind string, a pci.Address) error {
	if half == "prepare" {
		_, err := p.Prepare(ctx, request(kind, a))
		return err
	}
	_, err := p.Unprepare(ctx, a.Label())
	return err
}

// turnClaims are the claims of one turn, so that what the runtime does for several of them is shared alike. A bare loop takes so much less
// that a turn has more of them.
func turnClaims() int { return sized(20, 1) }

const barePerClaim = 8

// recordedLinks records the messages to the scripted netlink until it has ended.
type recordedLinks struct {
	vf.Links
	sent  []func(context.Context) error
	ended bool
}

func (l *recordedLinks) Read(ctx context.Context, number int) (*vf.Link, error) {
	l.add(func(ctx context.Context) error {
		_, err := l.Links.Read(ctx, number)
		return err
	})
	return l.Links.Read(ctx, number)
}

func (l *recordedLinks) Write(ctx context.Context, number, index int, s device.VFSetting, to *device.VFSettings) error {
	l.add(func(ctx context.Context) error { return l.Links.Write(ctx, number, index, s, to) })
	return l.Links.Write(ctx, number, index, s, to)
}

func (l *recordedLinks) add(message func(context.Context) error) {
	if !l.ended {
		l.sent = append(l.sent, message)
	}
}

// BenchmarkNativeClaim prepares and unprepares claims natively, in turns with a bare loop of the same accesses to files. It prints the
// ratio of the processor time that both take without the scripted kernel, its spread, the ratio of their system calls, and the time of
// each phase. Phases overlap.
func BenchmarkNativeClaim(b *testing.B) {
	for kind, add := range scripted() {
		b.Run(kind, func(b *testing.B) {
			var phases phaseTimes
			k := sysfstest.New(b)
			added := add(k)
			bare := recordBare(b, k, kind, added)
			p, kernelsPart := nativeClaim(b, k, kind, added, phases.observe)
			phases.reset()
			// With more processors the runtime's threads also use them to look for work, as much as there is nothing else to do.
			defer goruntime.GOMAXPROCS(goruntime.GOMAXPROCS(1))
			var own, kernel time.Duration
			var ratios []float64
			for b.Loop() {
				claims := turnOf(b, func() error { return aClaim(b.Context(), p, kind, added) })
				goruntime.GC() // what the claims have left is theirs
				writes := turnOf(b, kernelsPart.repeat)
				least := turnOf(b, func() error {
					for range barePerClaim {
						must(b, bare.repeat())
					}
					return nil
				}) / barePerClaim
				own, kernel = own+claims, kernel+writes
				ratios = append(ratios, float64(claims-writes)/float64(least))
			}
			slices.Sort(ratios)
			per := time.Duration(b.N * turnClaims())
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(ratios[len(ratios)/2], "own/bare-processor")
			b.ReportMetric(ratios[0], "own/bare-processor-least")
			b.ReportMetric(ratios[len(ratios)-1], "own/bare-processor-most")
			b.ReportMetric(float64((own-kernel)/per)/float64(time.Millisecond), "own-processor-ms")
			counted := countCalls(b, "TestClaimSystemCalls/"+kind)
			reportAim(b, float64(counted.own)/float64(counted.bare), "own/bare-syscalls", 3)
			fmt.Printf("a claim with a %s, natively: %v of processor time, %v of it for the scripted kernel; %d system calls, the bare loop %d; phases by the clock: %s\n",
				kind, (own / per).Round(time.Microsecond), (kernel / per).Round(time.Microsecond), counted.own, counted.bare, phases.table(int(per)))
		})
	}
}

// turnOf returns what this process has used of its processors for the work of one turn.
func turnOf(tb testing.TB, work func() error) time.Duration {
	tb.Helper()
	before := processorUsed()
	for range turnClaims() {
		must(tb, work())
	}
	return processorUsed() - before
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

func processorUsed() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // fails for no argument of ours
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
