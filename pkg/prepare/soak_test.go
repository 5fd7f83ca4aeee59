package prepare_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/claim"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/ledger/writer"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/prepare"
	"github.com/kata-vfio/kata-vfio/pkg/prepare/effects"
)

// The soak's size, and what a plugin of such a life may cost. One claim in fifty is
// refused; the plugin is restarted after each hundred.
const (
	soakClaims   = 2000
	soakEnv      = "SOAK_CLAIMS" // another number, such as 50000
	refusedEvery = 50
	restartEvery = 100
	soakSegment  = 128 << 10
	soakLedger   = 1 << 20
)

// soak is a node on which claims come and go.
type soak struct {
	*world
	p *plugin
	// watch reads the journal as the metrics do: it lives as long as the process.
	watch    *journal.Store
	run      string // the directory of locks
	gpus     []pci.Address
	requests []*claim.Request
	refused  int
	restarts int
}

func newSoak(t *testing.T) *soak {
	s := &soak{world: newWorld(t), run: filepath.Join(t.TempDir(), "locks")}
	for i := range 3 {
		a := s.k.AddGPU(uint8(0x3b + i))
		s.gpus = append(s.gpus, a)
		s.requests = append(s.requests, s.request("any", a))
	}
	s.watch = journal.OpenReadOnly(filepath.Join(s.k.Root(), "var/lib/kata-vfio/journal"))
	s.restart()
	if _, err := s.p.Prepare(t.Context(), s.requestOf("long", 2)); err != nil { // what others are refused for
		t.Fatal(err)
	}
	return s
}

// requestOf asks for one of the GPUs under a claim.
func (s *soak) requestOf(uid string, gpu int) *claim.Request {
	req := *s.requests[gpu]
	req.UID, req.Name = uid, uid
	return &req
}

// restart begins a plugin as its process does, and recovers.
func (s *soak) restart() {
	s.t.Helper()
	var err error
	if s.records, err = journal.Open(filepath.Join(s.k.Root(), "var/lib/kata-vfio/journal")); err != nil {
		s.t.Fatal(err)
	}
	if s.locks, err = journal.NewLocks(s.run); err != nil {
		s.t.Fatal(err)
	}
	if err := s.locks.Sweep(effects.ClaimLocks); err != nil {
		s.t.Fatal(err)
	}
	boot, err := s.fs.ReadString("proc/sys/kernel/random/boot_id")
	if err != nil {
		s.t.Fatal(err)
	}
	s.p = s.plugin(nil, func(c *prepare.Config) {
		c.Parts.Ledger = writer.New(writer.Config{
			Dir: s.history, Node: "node-1", BootID: boot, Actor: ledger.Actor{Component: "test"},
			SegmentBytes: soakSegment, RetainBytes: soakLedger,
		})
		c.Parts.Observe = func(effects.Event) {}
	})
	r, err := s.p.Recover(s.t.Context())
	if err != nil || len(r.Unfinished) > 0 {
		s.t.Fatalf("Recover = %+v, %v; want nothing unfinished", r, err)
	}
	s.restarts++
}

// live is the life of one claim.
func (s *soak) live(n int) {
	s.t.Helper()
	uid, ctx := fmt.Sprintf("claim-%06d", n), s.t.Context()
	if n%refusedEvery == 0 {
		if _, err := s.p.Prepare(ctx, s.requestOf(uid, 2)); err == nil {
			s.t.Fatal("a function that another claim has was given away")
		}
		s.refused++
		return
	}
	if _, err := s.p.Prepare(ctx, s.requestOf(uid, n%2)); err != nil {
		s.t.Fatal(err)
	}
	if n%restartEvery == 7 { // while a claim is prepared
		s.restart()
		s.abandon(uid)
	}
	if err := s.p.HandOver(ctx, uid, journal.Sandbox{ID: "sandbox-" + uid}); err != nil {
		s.t.Fatal(err)
	}
	s.watch.List()
	if _, err := s.p.Unprepare(ctx, uid); err != nil {
		s.t.Fatal(err)
	}
}

// abandon has a caller give up while another has the claim's lock.
func (s *soak) abandon(uid string) {
	s.t.Helper()
	others, err := journal.NewLocks(s.run)
	if err != nil {
		s.t.Fatal(err)
	}
	release, err := others.Acquire(s.t.Context(), journal.Lock{Name: effects.ClaimLocks + uid, Transient: true})
	if err != nil {
		s.t.Fatal(err)
	}
	defer release()
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Millisecond)
	defer cancel()
	if _, err := s.p.Unprepare(ctx, uid); err == nil {
		s.t.Fatal("Unprepare did not wait for the claim's lock")
	}
}

// cost is what the process and its node hold at one time.
type cost struct {
	claims, refused, restarts   int
	rss, heap                   int64 // kB
	descriptors, threads        int
	locks, records, specs       int
	ledgerKB, hashesKB, seconds int64
}

func (s *soak) measure(claims int, begun time.Time) cost {
	s.t.Helper()
	s.k.Forget()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	c := cost{
		claims: claims, refused: s.refused, restarts: s.restarts, rss: rss(s.t), heap: int64(m.HeapAlloc) >> 10,
		descriptors: len(list(s.t, "/proc/self/fd")), threads: len(list(s.t, "/proc/self/task")), locks: len(list(s.t, s.run)),
		records: len(list(s.t, filepath.Join(s.k.Root(), "var/lib/kata-vfio/journal"))), seconds: int64(time.Since(begun).Seconds()),
	}
	uids, err := s.specs.Claims()
	if err != nil {
		s.t.Fatal(err)
	}
	c.specs = len(uids)
	for _, e := range list(s.t, s.history) {
		info, err := e.Info()
		if err != nil {
			s.t.Fatal(err)
		}
		if ledger.IsHashes(e.Name()) {
			c.hashesKB += info.Size() >> 10
		}
		if ledger.IsSegment(e.Name()) || ledger.IsKept(e.Name()) {
			c.ledgerKB += info.Size() >> 10
		}
	}
	return c
}

func list(t *testing.T, dir string) []os.DirEntry {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	return entries
}

// rss returns the process' resident memory in kB.
func rss(t *testing.T) int64 {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "VmRSS:")
	kB, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return kB
}

// soaked prints the costs as a table.
func soaked(costs []cost) string {
	var text strings.Builder
	tw := tabwriter.NewWriter(&text, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tw, "claims\trefused\trestarts\tRSS kB\theap kB\tfds\tthreads\tlocks\trecords\tspecs\tledger kB\thashes kB\tseconds\t")
	for _, c := range costs {
		fmt.Fprintf(tw, "%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t\n", c.claims, c.refused, c.restarts, c.rss, c.heap,
			c.descriptors, c.threads, c.locks, c.records, c.specs, c.ledgerKB, c.hashesKB, c.seconds)
	}
	_ = tw.Flush()
	return text.String()
}

// TestSoak lets very many claims come and go on one node, with refusals, restarts
// and abandoned waits, and checks that what the plugin holds does not grow with
// them.
func TestSoak(t *testing.T) {
	claims := soakClaims
	if text := os.Getenv(soakEnv); text != "" {
		var err error
		if claims, err = strconv.Atoi(text); err != nil || claims < 200 {
			t.Fatalf("%s=%q: want a number from 200 on", soakEnv, text)
		}
	}
	s, begun := newSoak(t), time.Now()
	var costs []cost
	for n := 1; n <= claims; n++ {
		s.live(n)
		if n%(claims/10) == 0 {
			costs = append(costs, s.measure(n, begun))
		}
	}
	t.Logf("\n%s", soaked(costs))
	s.wantFlat(costs[0], costs[len(costs)-1])
	if r, err := ledger.Verify(os.DirFS(s.history), ledger.Options{}); err != nil || !r.OK() || r.Dropped == 0 {
		t.Errorf("ledger: %+v, %v; want it sound, and its oldest events dropped", r, err)
	}
}

// wantFlat compares the last tenth's end with the first's.
func (s *soak) wantFlat(first, last cost) {
	s.t.Helper()
	for what, grown := range map[string]struct{ by, most int64 }{
		"RSS (kB)":               {last.rss - first.rss, 48 << 10},
		"heap (kB)":              {last.heap - first.heap, 1 << 10},
		"descriptors":            {int64(last.descriptors - first.descriptors), 2},
		"threads":                {int64(last.threads - first.threads), 12},
		"files of locks":         {int64(last.locks - first.locks), 0},
		"records":                {int64(last.records - first.records), 0},
		"specs":                  {int64(last.specs - first.specs), 0},
		"ledger's segments (kB)": {last.ledgerKB, (soakLedger + 2*soakSegment) >> 10},
	} {
		if grown.by > grown.most {
			s.t.Errorf("%s: %d, want at most %d", what, grown.by, grown.most)
		}
	}
}
