package plugin_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/audit/check"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/inventory"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plugin"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
	"github.com/kata-vfio/kata-vfio/test/board"
	"github.com/kata-vfio/kata-vfio/test/plugintest"
)

// scene is a board with a monitor, and what that told.
type scene struct {
	*plugin.Monitor
	t      *testing.T
	tree   *board.Tree
	fs     *sysfs.FS
	first  *device.Snapshot
	told   []string
	states map[string]finding.State
	broken error // of the ledger
	// waivers and refreshes, which may be nil, replace the scene's own.
	waivers   func() []finding.Waiver
	refreshes func(context.Context, []pci.Address) (*device.Snapshot, error)
	changed   plugintest.Wakes
}

func newScene(t *testing.T, build func(testing.TB) *board.Tree, change func(*scene, *plugin.MonitorConfig)) *scene {
	t.Helper()
	s := &scene{t: t, tree: build(t), changed: plugintest.NewWakes()}
	s.tree.KeepBaseline()
	var err error
	if s.fs, err = sysfs.Open(s.tree.Root()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.fs.Close() })
	if s.first, err = inventory.Scan(t.Context(), s.fs); err != nil {
		t.Fatal(err)
	}
	profile, _ := finding.ProfileNamed(finding.MultiTenant)
	all, err := check.Catalogue()
	if err != nil {
		t.Fatal(err)
	}
	c := plugin.MonitorConfig{
		FS: s.fs, Checks: check.Checks(all), Profile: profile, Counts: rule.High, Node: s, Ledger: s, Metrics: s,
		Changes: s.changed, Log: slog.New(slog.DiscardHandler), Every: time.Minute, Pause: 3 * time.Second,
	}
	if change != nil {
		change(s, &c)
	}
	s.Monitor = plugin.NewMonitor(c)
	return s
}

// Offered is every GPU and VF.
func (s *scene) Offered(snap *device.Snapshot) []pci.Address {
	var all []pci.Address
	for i := range snap.Functions {
		if f := &snap.Functions[i]; f.Type == device.GPU || f.Type == device.VFType {
			all = append(all, f.Address)
		}
	}
	return all
}

func (s *scene) Waivers(context.Context) []finding.Waiver {
	if s.waivers == nil {
		return nil
	}
	return s.waivers()
}

func (s *scene) Append(_ context.Context, events ...ledger.Event) (string, error) {
	if s.broken != nil {
		return "", s.broken
	}
	for i := range events {
		e := &events[i]
		words := []string{string(e.Type), string(e.Result), strings.Join(e.Codes, ",")}
		for _, d := range e.Devices {
			words = append(words, d.Address.String())
		}
		s.told = append(s.told, strings.Join(words, " "))
	}
	return "", nil
}

func (s *scene) ObserveAudit(findings []finding.Finding) {
	s.states = map[string]finding.State{}
	for _, f := range slices.Backward(findings) { // the worst of each rule stays
		s.states[f.ID] = f.State
	}
}

func (s *scene) Refresh(ctx context.Context, addrs []pci.Address) (*device.Snapshot, error) {
	if s.refreshes != nil {
		return s.refreshes(ctx, addrs)
	}
	return s.rescanned(ctx, addrs)
}

func (s *scene) rescanned(ctx context.Context, addrs []pci.Address) (*device.Snapshot, error) {
	return inventory.Rescan(ctx, s.fs, s.first, addrs)
}

// look looks as the watcher would have it: capabilities as they were at first.
func (s *scene) look() {
	s.t.Helper()
	s.Look(s.t.Context(), s.first)
}

// wantFailing checks what fails for a device of the board.
func (s *scene) wantFailing(name string, want ...string) {
	s.t.Helper()
	var got []string
	for _, f := range s.Failing(s.tree.Devices[name]) {
		got = append(got, f.ID)
	}
	if !slices.Equal(got, want) {
		s.t.Errorf("failing for %s: %v, want %v", name, got, want)
	}
}

func (s *scene) wantTold(want ...string) {
	s.t.Helper()
	if diff := cmp.Diff(want, s.told); diff != "" {
		s.t.Errorf("told (-want +got):\n%s", diff)
	}
	s.told = nil
}

// On no board in good order does anything count against a device.
func TestNothingFailsOnGoodBoards(t *testing.T) {
	for _, b := range board.All() {
		t.Run(b.Name, func(t *testing.T) {
			s := newScene(t, b.Build, nil)
			s.look()
			for name, a := range s.tree.Devices {
				if f := s.Failing(a); len(f) > 0 {
					t.Errorf("%s: %v", name, f)
				}
			}
			s.wantTold("audit ok ")
		})
	}
}

// What fails for the node fails for each device, is told once, and ends.
func TestFailureOfTheNodeCountsForAllAndEnds(t *testing.T) {
	s := newScene(t, board.Server, nil)
	s.look()
	s.wantTold("audit ok ")
	s.tree.SetParameter("vfio", "enable_unsafe_noiommu_mode", "Y")
	s.look()
	s.look()
	s.wantFailing("gpu0", "IOM-003")
	s.wantFailing("nic0/vf3", "IOM-003")
	s.wantTold("audit failed IOM-003")
	if len(s.changed) != 1 || s.states["IOM-003"] != finding.Fail {
		t.Errorf("%d changes, IOM-003 is %s", len(s.changed), s.states["IOM-003"])
	}
	s.tree.SetParameter("vfio", "enable_unsafe_noiommu_mode", "N")
	s.look()
	s.wantFailing("gpu0")
	s.wantTold("audit ok ")
	if len(s.changed) != 2 {
		t.Errorf("%d changes", len(s.changed))
	}
}

// A port's register changes without an event of the kernel; whatever is below it is
// marked, and nobody else.
func TestPortThatIsOpenedMarksWhatIsBelow(t *testing.T) {
	s := newScene(t, board.Switch, nil)
	s.look()
	s.told = nil
	gpu, _ := s.first.Function(s.tree.Devices["left"])
	s.tree.SetACS(s.tree.Devices["left/port"], 0)
	s.look()
	failures := s.Failing(gpu.Address)
	if len(failures) == 0 || failures[0].Severity != rule.Critical {
		t.Fatalf("failing for left: %v", failures)
	}
	var ids []string
	for _, f := range failures {
		ids = append(ids, f.ID)
	}
	if !slices.Contains(ids, "ACS-017") || !slices.Contains(ids, "ACS-001") {
		t.Errorf("failing for left: %v", ids)
	}
	if len(s.told) == 0 || !strings.Contains(strings.Join(s.told, "\n"), gpu.Address.String()) {
		t.Errorf("told %q", s.told)
	}
	s.wantFailing("spare")
}

// Failures below the severity, waived ones, and advice count against nobody.
func TestMonitorIgnoresWaivedAndLowFindings(t *testing.T) {
	withoutIOMMU := func(t *board.Tree) { t.SetParameter("vfio", "enable_unsafe_noiommu_mode", "Y") }
	for name, change := range map[string]func(*scene, *plugin.MonitorConfig){
		"off": func(_ *scene, c *plugin.MonitorConfig) { c.Counts = finding.Off },
		"waived": func(s *scene, _ *plugin.MonitorConfig) {
			s.waivers = waivers("9999-12-31")
		},
		"profile": func(_ *scene, c *plugin.MonitorConfig) {
			c.Profile = finding.Profile{Name: "x", Severities: map[string]rule.Severity{"IOM-003": rule.Medium}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, board.Server, change)
			withoutIOMMU(s.tree)
			s.look()
			s.wantFailing("gpu0")
			s.wantTold("audit ok ")
		})
	}
	t.Run("expired waiver", func(t *testing.T) {
		s := newScene(t, board.Server, func(s *scene, _ *plugin.MonitorConfig) {
			s.waivers = waivers("2020-01-01")
		})
		withoutIOMMU(s.tree)
		s.look()
		s.wantFailing("gpu0", "IOM-003")
	})
}

func waivers(until string) func() []finding.Waiver {
	return func() []finding.Waiver {
		return []finding.Waiver{{Rule: "IOM-003", Scope: "*", Until: until}}
	}
}

// A function on its way to a claim is in states that say nothing yet; what failed
// for it before still does.
func TestClaimInBetweenIsNotJudgedAnew(t *testing.T) {
	s := newScene(t, board.Server, nil)
	s.look()
	rec := s.record("train")
	rec.State = journal.Releasing
	s.tree.Save(rec)
	gpu := s.tree.Devices["gpu0"]
	s.tree.Put("sys/bus/pci/devices/"+gpu.String()+"/reset_method", "\n")
	s.rescan()
	s.look()
	s.wantFailing("gpu0")
	rec.State = journal.Prepared
	s.tree.Save(rec)
	s.look()
	if len(s.Failing(gpu)) == 0 {
		t.Fatal("a function that can't be reset is in order")
	}
	rec.State = journal.Releasing
	s.tree.Save(rec)
	s.look()
	if len(s.Failing(gpu)) == 0 {
		t.Error("a failure ended by the claim's way back")
	}
}

// TestSnapshotOfAnEarlierTimeIsNoFailure: it comes seconds after it was made, of a time in the midst of a claim's steps.
func TestSnapshotOfAnEarlierTimeIsNoFailure(t *testing.T) {
	s := newScene(t, board.Server, nil)
	s.look()
	s.told = nil
	method := "sys/bus/pci/devices/" + s.tree.Devices["gpu0"].String() + "/reset_method"
	whole := s.tree.Text(method)
	s.tree.Put(method, "\n")
	s.rescan()
	s.tree.Put(method, whole)
	s.look()
	s.wantFailing("gpu0")
	s.wantTold()
	s.tree.Put(method, "\n")
	s.look()
	if len(s.Failing(s.tree.Devices["gpu0"])) == 0 {
		t.Error("a function that can't be reset is in order")
	}
}

// TestClaimThatWentOnMeanwhileIsNotJudgedAnew: it was between two states when the functions were read again.
func TestClaimThatWentOnMeanwhileIsNotJudgedAnew(t *testing.T) {
	asked := 0
	var between func()
	s := newScene(t, board.Server, func(s *scene, _ *plugin.MonitorConfig) {
		s.waivers = func() []finding.Waiver {
			if asked++; asked == 1 && between != nil {
				between()
			}
			return nil
		}
	})
	s.look()
	rec := s.record("train")
	rec.State = journal.Releasing
	s.tree.Save(rec)
	s.tree.Put("sys/bus/pci/devices/"+s.tree.Devices["gpu0"].String()+"/reset_method", "\n")
	s.rescan()
	rec.State = journal.Prepared
	s.tree.Save(rec)
	asked, between = 0, func() { // after the journal was read, before the functions are
		rec.State = journal.Quarantined
		s.tree.Save(rec)
	}
	s.look()
	s.wantFailing("gpu0")
	if asked != 2 {
		t.Errorf("the checks were asked %d times, want twice", asked)
	}
}

func (s *scene) record(name string) *journal.Record {
	s.t.Helper()
	records, errs := journal.OpenReadOnly(s.tree.Path("var/lib/kata-vfio/journal")).List()
	if len(errs) > 0 {
		s.t.Fatal(errs)
	}
	i := slices.IndexFunc(records, func(r *journal.Record) bool { return r.Plan.Claim.Name == name })
	return records[i]
}

func (s *scene) rescan() {
	s.t.Helper()
	var err error
	if s.first, err = inventory.Scan(s.t.Context(), s.fs); err != nil {
		s.t.Fatal(err)
	}
}

// What the ledger did not take is told later; a stale snapshot tells nothing.
func TestLedgerMayFailForAWhile(t *testing.T) {
	s := newScene(t, board.Server, nil)
	s.broken = errors.New("no space left on device")
	s.tree.SetParameter("vfio", "enable_unsafe_noiommu_mode", "Y")
	s.look()
	s.wantFailing("gpu0", "IOM-003")
	s.broken = nil
	stale := *s.first
	stale.Stale = "the scan failed"
	s.Look(t.Context(), &stale)
	s.wantTold()
	s.look()
	s.wantTold("audit failed IOM-003")
}

// counters count looks, and what the ledger is told.
type counters struct{ looks, told atomic.Int32 }

func (c *counters) ObserveAudit([]finding.Finding) { c.looks.Add(1) }

func (c *counters) Append(context.Context, ...ledger.Event) (string, error) {
	c.told.Add(1)
	return "", nil
}

// Run gathers changes, looks again by itself, and lets the ledger see that it does.
func TestRunLooksAtChangesAndEveryOnceInAWhile(t *testing.T) {
	var count counters
	s := newScene(t, board.Server, func(_ *scene, c *plugin.MonitorConfig) {
		c.Metrics, c.Ledger, c.Every = &count, &count, 5*time.Hour
	})
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		snapshots := make(chan *device.Snapshot, 10)
		ended := make(chan error)
		go func() { ended <- s.Run(ctx, snapshots) }()
		for range 5 {
			snapshots <- s.first
		}
		for _, step := range []struct {
			wait        time.Duration
			looks, told int32
		}{
			{2 * time.Second, 0, 0},
			{2 * time.Second, 1, 1},
			{4 * time.Hour, 1, 1},
			{time.Hour, 2, 1},
			{5 * time.Hour, 3, 1},
			{5 * time.Hour, 4, 2},
		} {
			time.Sleep(step.wait)
			synctest.Wait()
			if count.looks.Load() != step.looks || count.told.Load() != step.told {
				t.Errorf("after another %v: %d looks and %d told, want %d and %d", step.wait, count.looks.Load(), count.told.Load(), step.looks, step.told)
			}
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
