package prepare_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/inventory"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/prepare"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// offered returns the refusals of a free device, which become the taints of its slice.
func (w *world) offered(p *plugin, a pci.Address) []rule.Verdict {
	w.t.Helper()
	snap, err := inventory.Scan(w.t.Context(), w.fs)
	if err != nil {
		w.t.Fatal(err)
	}
	n, err := p.PlanNode(w.t.Context(), snap)
	if err != nil {
		w.t.Fatal(err)
	}
	f, _ := snap.Function(a)
	as := plan.NewAssessor(n).Assess(f)
	return as.Faults()
}

// damageLedger flips a bit of the ledger's first segment.
func (w *world) damageLedger() {
	w.t.Helper()
	name := filepath.Join(w.history, ledger.SegmentName(0))
	data, err := os.ReadFile(name)
	if err != nil {
		w.t.Fatal(err)
	}
	data[slices.Index(data, 'p')] ^= 1
	if err := os.WriteFile(name, data, 0o600); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) removeDir(dir string) {
	w.t.Helper()
	if err := os.RemoveAll(dir); err != nil {
		w.t.Fatal(err)
	}
}

// TestNodeThatRefusesAllClaimsIsTainted: what refuses every claim of the node is published on all of its devices, else the
// scheduler sends one pod after the other there. Prepare changes nothing then.
func TestNodeThatRefusesAllClaimsIsTainted(t *testing.T) {
	for name, tt := range map[string]struct {
		spoil  func(*world)
		change func(*prepare.Config)
		want   rule.Code
	}{
		"full disk":        {change: func(c *prepare.Config) { c.Parts.Room = &disk{full: true} }, want: rule.DiskFull},
		"damaged ledger":   {spoil: (*world).damageLedger, want: rule.NoEvidence},
		"no CDI directory": {spoil: func(w *world) { w.removeDir(filepath.Dir(w.specs.File("x"))) }, want: rule.CDINotWritable},
		"no journal":       {spoil: func(w *world) { w.removeDir(filepath.Dir(w.recordFile("x"))) }, want: rule.StateNotWritable},
		"no server for Kata": {
			change: func(c *prepare.Config) { c.Server = noServer{} },
			want:   rule.PodResourcesNotServed,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			gpu := w.k.AddGPU(0x3b)
			w.mustPrepare(w.request(other, w.k.AddGPU(0x41)))
			if tt.spoil != nil {
				tt.spoil(w)
			}
			if tt.change == nil {
				tt.change = func(*prepare.Config) {}
			}
			p, writes := w.plugin(nil, tt.change), len(w.k.Writes())
			_, err := p.Prepare(t.Context(), w.request(uid, gpu))
			if e := as[*prepare.NotReadyError](t, err); e.Obstacle != tt.want {
				t.Errorf("Prepare = %v; want %s", err, tt.want)
			}
			if now := lastWrites(w, writes); len(now) > 0 {
				t.Errorf("wrote %v, want nothing", now)
			}
			faults := w.offered(p, gpu)
			if len(faults) != 1 || faults[0].Code != rule.NodeNotReady || faults[0].Obstacle != tt.want {
				t.Errorf("published with %v; want %s", faults, tt.want)
			}
			if healthy := w.plugin(nil).Ready(t.Context()); tt.spoil == nil && healthy != nil {
				t.Errorf("without the fault: %v, want nil", healthy)
			}
		})
	}
}

// TestNodeNamesEachObstacle: an operator who removes the first one must know that the taint stays.
func TestNodeNamesEachObstacle(t *testing.T) {
	w := newWorld(t)
	gpu := w.k.AddGPU(0x3b)
	p := w.plugin(nil, func(c *prepare.Config) { c.Parts.Room, c.Server = &disk{full: true}, noServer{} })
	faults := w.offered(p, gpu)
	if len(faults) != 1 || faults[0].Obstacle != rule.DiskFull {
		t.Fatalf("published with %v; want one fault, %s", faults, rule.DiskFull)
	}
	for _, want := range []string{"is full", string(rule.PodResourcesNotServed) + ": no server"} {
		if !strings.Contains(faults[0].Text, want) {
			t.Errorf("text %q, want %q in it", faults[0].Text, want)
		}
	}
}

// TestDamagedRecordTaintsWhatItMayOwn: it may explain devices on VFIO that no other record explains, and no others.
func TestDamagedRecordTaintsWhatItMayOwn(t *testing.T) {
	w := newWorld(t)
	owned, free := w.k.AddGPU(0x3b), w.k.AddGPU(0x3c)
	w.mustPrepare(w.request(other, owned))
	if err := os.WriteFile(w.recordFile(other), []byte(`{"version":99,"sha256":"","record":{}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	p := w.plugin(nil)
	if faults := w.offered(p, owned); len(faults) != 1 || faults[0].Code != rule.DamagedRecord {
		t.Errorf("the device that it may own is published with %v, want %s", faults, rule.DamagedRecord)
	}
	if faults := w.offered(p, free); len(faults) > 0 {
		t.Errorf("another device is published with %v, want none", faults)
	}
	if _, err := p.Prepare(t.Context(), w.request(uid, free)); err != nil {
		t.Errorf("a claim of another device: %v, want nil", err)
	}
}

// noServer is a server that does not answer.
type noServer struct{}

func (noServer) Served(context.Context) error { return errors.New("no server") }
