package bench

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
	"github.com/kata-vfio/kata-vfio/test/internal/apt"
)

// TestClaimSystemCalls limits the system calls on files for a claim and for its Prepare alone, beyond the scripted kernel's. They depend
// on the node's size only by the functions of the device's slot and group.
func TestClaimSystemCalls(t *testing.T) {
	// The number varies with the load of the machine, by up to ten.
	limits := map[string]int{"gpu": 442, "vf": 586}
	const prepareLimit = 400
	const syncLimit = 10 // one is the CDI spec's, on tmpfs
	for kind, add := range scripted() {
		t.Run(kind, func(t *testing.T) {
			if os.Getenv(tracedVariable) != "" {
				traced(t, kind, add)
				return
			}
			c := countCalls(t, t.Name())
			t.Logf("%d system calls (%v), %d of them fsync; the bare loop makes %d, %d of them fsync; with the scripted kernel's: %v", c.own, c.halves, c.syncs, c.bare, c.bareSyncs, c.all)
			if c.own > limits[kind] || c.syncs > syncLimit {
				t.Errorf("a claim makes %d system calls, %d of them fsync; at most %d and %d are expected", c.own, c.syncs, limits[kind], syncLimit)
			}
			prepares, unprepares := c.halves["prepare"], c.halves["unprepare"]
			if prepares > prepareLimit || unprepares == 0 || prepares <= unprepares {
				t.Errorf("Prepare makes %d system calls, and Unprepare %d; want %d at most for Prepare, and fewer for Unprepare", prepares, unprepares, prepareLimit)
			}
			if c.syncs != c.bareSyncs {
				t.Errorf("a claim makes %d fsyncs, and the bare loop that it is compared with %d", c.syncs, c.bareSyncs)
			}
		})
	}
}

// callCount are the system calls on files of one claim and of the bare loop, without the scripted kernel's.
type callCount struct {
	own, syncs, bare, bareSyncs int
	halves                      map[string]int // of own
	all                         calls          // of tracedClaims claims, with the scripted kernel's
}

// countCalls counts them in a test that calls traced below strace.
func countCalls(tb testing.TB, test string) callCount {
	tb.Helper()
	none, claims := trace(tb, test, traceOf{}), trace(tb, test, traceOf{claims: tracedClaims})
	writes, bare := trace(tb, test, traceOf{writes: tracedClaims}), trace(tb, test, traceOf{bare: tracedClaims})
	own := map[string]int{}
	for _, half := range halves() {
		own[half] = (claims.in(half) - writes.in(half)) / tracedClaims
	}
	return callCount{
		halves: own, own: (claims.total() - writes.total()) / tracedClaims, syncs: (claims["fsync"] - none["fsync"]) / tracedClaims,
		bare: (bare.total() - none.total()) / tracedClaims, bareSyncs: (bare["fsync"] - none["fsync"]) / tracedClaims,
		all: claims.minus(none),
	}
}

const (
	tracedClaims   = 20
	tracedVariable = "KATA_VFIO_TRACED"
)

// traceOf says what runs below strace after a first claim: so many more claims, repetitions of its writes to the kernel, and bare loops.
type traceOf struct{ claims, writes, bare int }

// traced is what runs below strace.
func traced(t *testing.T, kind string, add func(*sysfstest.Kernel) pci.Address) {
	var n traceOf
	if _, err := fmt.Sscanf(os.Getenv(tracedVariable), "%d,%d,%d", &n.claims, &n.writes, &n.bare); err != nil {
		t.Fatal(err)
	}
	k := sysfstest.New(t)
	device := add(k)
	bare := recordBare(t, k, kind, device)
	p, kernelsPart := nativeClaim(t, k, kind, device, nil)
	for range n.claims {
		for _, half := range halves() {
			mark(half)
			must(t, halfOfClaim(t.Context(), p, half, kind, device))
		}
		mark("")
	}
	for range n.writes {
		for _, half := range halves() {
			mark(half)
			must(t, kernelsPart.repeatHalf(half))
		}
		mark("")
	}
	for range n.bare {
		must(t, bare.repeat())
	}
}

// markPath begins the path of a file that is not there. Asking for it marks where a half of a claim begins.
const markPath = "/kata-vfio-bench-"

func mark(half string) { _, _ = os.Stat(markPath + half) }

// calls counts system calls by name, and by the half of a claim with "prepare " or "unprepare " in front.
type calls map[string]int

// total is of all names.
func (c calls) total() (n int) {
	for name, count := range c {
		if !strings.Contains(name, " ") {
			n += count
		}
	}
	return n
}

// in is of one half.
func (c calls) in(half string) (n int) {
	for name, count := range c {
		if strings.HasPrefix(name, half+" ") {
			n += count
		}
	}
	return n
}

func (c calls) minus(other calls) calls {
	rest := calls{}
	for name, count := range c {
		if !strings.Contains(name, " ") {
			rest[name] = count - other[name]
		}
	}
	return rest
}

// trace runs a test of this binary below strace and returns its system calls on files.
func trace(tb testing.TB, test string, n traceOf) calls {
	tb.Helper()
	if _, err := exec.LookPath("strace"); err != nil {
		must(tb, apt.Install(tb.Context(), io.Discard, "strace"))
	}
	out := filepath.Join(tb.TempDir(), "calls")
	self, err := os.Executable()
	must(tb, err)
	cmd := exec.CommandContext(tb.Context(), "strace", "-f", "-s", "64", "-e", "trace=%file,%desc", "-o", out,
		self, "-test.count=1", "-test.run", "^"+strings.ReplaceAll(test, "/", "$/^")+"$")
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d,%d,%d", tracedVariable, n.claims, n.writes, n.bare))
	if said, err := cmd.CombinedOutput(); err != nil {
		tb.Fatalf("%s: %v\n%s", cmd, err, said)
	}
	lines, err := os.ReadFile(out)
	must(tb, err)
	return parseCalls(string(lines))
}

var (
	callMade = regexp.MustCompile(`^\d+ +([a-z0-9_]+)\(`)
	markMade = regexp.MustCompile(`"` + markPath + `([a-z]*)"`)
)

// parseCalls reads strace's lines: process, name and arguments. A line of a call that resumes has no name of this form.
func parseCalls(lines string) calls {
	found, half := calls{}, ""
	for line := range strings.Lines(lines) {
		made := callMade.FindStringSubmatch(line)
		if made == nil || strings.HasPrefix(made[1], "epoll") {
			continue // the latter are of the Go runtime's poller
		}
		if marked := markMade.FindStringSubmatch(line); marked != nil {
			half = marked[1]
			continue
		}
		found[made[1]]++
		if half != "" {
			found[half+" "+made[1]]++
		}
	}
	return found
}
